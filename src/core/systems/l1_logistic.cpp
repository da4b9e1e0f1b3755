#include "systems/l1_logistic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace bonsai {
namespace {

constexpr float kLeastCurvature = 1e-12f;  // of a row, as a part of its cost
constexpr size_t kFirstColumns = 200;      // of a working set, at least

// Σ value(row, x) over the entries of a column. Four independent sums shorten the chain of additions; columns
// are longer than what processors prefetch by themselves between accesses to the rows.
template <class Value>
float sum_over(std::span<const NodeColumns::Entry> entries, Value&& value) {
    constexpr size_t kAhead = 256;
    float a = 0, b = 0, c = 0, d = 0;
    const NodeColumns::Entry* e = entries.data();
    const NodeColumns::Entry* const end = e + entries.size();
    for (; e + 8 <= end; e += 8) {
        __builtin_prefetch(e + kAhead);
        a += value(e[0].row, e[0].value);
        b += value(e[1].row, e[1].value);
        c += value(e[2].row, e[2].value);
        d += value(e[3].row, e[3].value);
        a += value(e[4].row, e[4].value);
        b += value(e[5].row, e[5].value);
        c += value(e[6].row, e[6].value);
        d += value(e[7].row, e[7].value);
    }
    for (; e != end; ++e) a += value(e->row, e->value);
    return (a + b) + (c + d);
}

}  // namespace

float L1Logistic::dot(size_t j, const std::vector<float>& of) const {
    if (is_dense(j)) return kernels_.dot(dense(j), of.data(), of.size());
    return sum_over(x_->sparse(j), [&](uint32_t i, float x) { return x * of[i]; });
}

float L1Logistic::dot_squares(size_t j, const std::vector<float>& of) const {
    if (is_dense(j)) return kernels_.dot_squares(dense(j), of.data(), of.size());
    return sum_over(x_->sparse(j), [&](uint32_t i, float x) { return x * x * of[i]; });
}

double L1Logistic::evaluate(double part) {
    // Above 0: `step` divides by the curvature.
    const LogisticRows rows{sign_.data(),      cost_.data(),   margin_.data(),
                            direction_.data(), margin_.size(), kLeastCurvature};
    return kernels_.logistic_rows(rows, static_cast<float>(part), residual_.data(), curvature_.data());
}

// The distance from 0 to the nearest subgradient of a column.
double L1Logistic::violation(size_t j) const {
    const double g = gradient_[j];
    if (w_[j] == 0) return std::max(0.0, std::abs(g) - 1);
    return std::abs(g + (w_[j] > 0 ? 1 : -1));
}

void L1Logistic::find_gradient(size_t j) {
    gradient_[j] = dot(j, residual_);
}

// The working set: columns with a weight, and the others that violate optimality most, twice as many in all.
// Returns the violation of all columns.
double L1Logistic::choose_columns() {
    double sum = 0;
    working_.clear();
    open_.clear();
    for (size_t j = 0; j < w_.size(); ++j) {
        sum += violation(j);
        if (w_[j] != 0)
            working_.push_back(static_cast<uint32_t>(j));
        else if (std::abs(gradient_[j]) > 1)
            open_.push_back(static_cast<uint32_t>(j));
    }
    const auto n = static_cast<ptrdiff_t>(std::min(open_.size(), std::max(kFirstColumns, working_.size())));
    std::nth_element(open_.begin(), open_.begin() + n, open_.end(), [&](uint32_t a, uint32_t b) {
        const float of_a = std::abs(gradient_[a]), of_b = std::abs(gradient_[b]);
        return of_a != of_b ? of_a > of_b : a < b;
    });
    working_.insert(working_.end(), open_.begin(), open_.begin() + n);
    std::sort(working_.begin(), working_.end());
    return sum;
}

// Minimises the quadratic model over the working set: d_ is the step from w_. Coordinates that stay at 0 are
// dropped; if wrongly, the next gradient selects them again.
void L1Logistic::descend(double tol, Rng& rng) {
    constexpr int kMostPasses = 100;
    pull_.assign(pull_.size(), 0.0f);
    for (const uint32_t j : working_) d_[j] = 0;
    open_ = working_;
    for (int pass = 0; pass < kMostPasses && !open_.empty(); ++pass) {
        double moved = 0;
        size_t kept = 0;
        rng.shuffle(open_);
        for (const uint32_t j : open_) {
            if (pass == 0) diagonal_[j] = dot_squares(j, curvature_) + std::numeric_limits<float>::min();
            const float g = gradient_[j] + dot(j, pull_);
            const float h = diagonal_[j], w = w_[j] + d_[j];
            const float z = g + 1 <= h * w ? -(g + 1) / h : g - 1 >= h * w ? -(g - 1) / h : -w;
            if (w == 0 && z == 0) continue;
            open_[kept++] = j;
            moved += std::abs(z) * h;  // the violation that the step removes
            if (z == 0) continue;
            d_[j] = w + z - w_[j];
            if (w + z == 0) d_[j] = -w_[j];
            add_pull(j, z);
        }
        open_.resize(kept);
        if (moved <= tol) break;
    }
}

void L1Logistic::add_pull(size_t j, float step) {
    if (is_dense(j))
        kernels_.add_product(pull_.data(), dense(j), curvature_.data(), step, pull_.size());
    else
        for (const auto& e : x_->sparse(j)) pull_[e.row] += step * e.value * curvature_[e.row];
}

// Takes the largest step along d_ that decreases the objective enough. Returns false if no step decreases it.
bool L1Logistic::step() {
    constexpr double kEnough = 0.01;
    constexpr int kMostHalvings = 20;
    double before = 0, expected = 0;
    for (const uint32_t j : working_) {
        if (d_[j] == 0) continue;
        before += std::abs(w_[j]);
        expected += double{gradient_[j]} * d_[j] + std::abs(w_[j] + d_[j]) - std::abs(w_[j]);
    }
    // A pull is the sum of the same changes as the step of the margin, times the curvature.
    for (size_t i = 0; i < direction_.size(); ++i) direction_[i] = pull_[i] / curvature_[i];
    double part = 1;
    for (int halving = 0; halving < kMostHalvings && expected < 0; ++halving, part /= 2) {
        const double loss = evaluate(part);
        double norm = 0;
        for (const uint32_t j : working_)
            if (d_[j] != 0) norm += std::abs(w_[j] + part * d_[j]);
        if (loss - loss_ + norm - before > kEnough * part * expected) continue;
        loss_ = loss;
        for (size_t i = 0; i < margin_.size(); ++i) margin_[i] += static_cast<float>(part) * direction_[i];
        for (const uint32_t j : working_) w_[j] += static_cast<float>(part) * d_[j];
        return true;
    }
    std::fill(direction_.begin(), direction_.end(), 0.0f);
    evaluate(0);
    return false;
}

void L1Logistic::solve(const NodeColumns& x, std::span<const int8_t> sign, std::span<const float> cost,
                       const L1Params& params, Rng rng, const Control& control) {
    constexpr double kPartOfModel = 0.7;  // of the violation, which is left when the model is minimised
    constexpr double kPartOfSet = 0.1;    // of the violation, which may be left in a working set
    constexpr double kRounding = 3e-7;    // of gradients, relative to the sum of costs
    x_ = &x;
    sign_.assign(sign.begin(), sign.end());
    cost_ = cost;
    double up = 0, down = 0;
    size_t n_up = 0;
    for (size_t i = 0; i < sign.size(); ++i) {
        (sign[i] > 0 ? up : down) += cost[i];
        n_up += sign[i] > 0;
    }
    // The best bias alone.
    double bias = 0;
    if (up > down + 2) bias = std::log((up - 1) / (down + 1));
    if (down > up + 2) bias = -std::log((down - 1) / (up + 1));
    for (auto* of_row : {&direction_, &residual_, &curvature_, &pull_}) of_row->assign(sign.size(), 0.0f);
    ones_.assign(sign.size(), 1.0f);
    margin_.assign(sign.size(), static_cast<float>(bias));
    loss_ = evaluate(0);
    for (auto* of_column : {&w_, &d_, &diagonal_, &gradient_}) of_column->assign(x.size() + 1, 0.0f);
    for (size_t j = 0; j < w_.size(); ++j) find_gradient(j);
    w_.back() = static_cast<float>(bias);
    const double fewer = static_cast<double>(std::max<size_t>(1, std::min(n_up, sign.size() - n_up)));
    const double part = params.tol * fewer / static_cast<double>(std::max<size_t>(1, sign.size()));
    double target = 0;
    for (n_iter_ = 0;; ++n_iter_) {
        control.check();
        const double left = choose_columns();
        if (n_iter_ == 0) target = std::max(kRounding * (up + down), part * left);
        if (left <= target || n_iter_ == params.max_iter) break;
        descend(kPartOfModel * left, rng);
        if (!step()) break;  // the limit of floating-point accuracy
        // A second step on the same columns, unless little is left there.
        double of_set = 0;
        for (const uint32_t j : working_) {
            find_gradient(j);
            of_set += violation(j);
        }
        if (of_set > std::max(target, kPartOfSet * left) && n_iter_ + 1 < params.max_iter) {
            ++n_iter_;
            descend(kPartOfModel * of_set, rng);
            step();
        }
        for (size_t j = 0; j < w_.size(); ++j) find_gradient(j);
    }
    objective_ = loss_;
    for (const float w : w_) objective_ += std::abs(w);
}

}  // namespace bonsai

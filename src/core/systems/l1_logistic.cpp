#include "systems/l1_logistic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bonsai {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};
constexpr float kLeastCurvature = 1e-12f;

}  // namespace

void SignedColumns::build(const RowsView& x, std::span<const float> factors, std::span<const uint32_t> ids,
                          std::span<const int8_t> sign, std::span<const float> cost) {
    n_rows_ = ids.size();
    seen_.resize(x.n_features);
    place_.resize(x.n_features, kNowhere);
    touched_.clear();
    features_.clear();
    for (size_t i = 0; i < ids.size(); ++i) {
        const float factor = factors[ids[i]] * cost[i] * static_cast<float>(sign[i]);
        for_each_entry(x, ids[i], [&](uint32_t feature, float value) {
            Feature& seen = seen_[feature];
            if (seen.count++ == 0) touched_.push_back(feature);
            const float pull = value * factor;
            (pull > 0 ? seen.up : seen.down) += std::abs(pull);
        });
    }
    for (const uint32_t f : touched_)
        if (std::max(seen_[f].up, seen_[f].down) > 1) features_.push_back(f);
    std::sort(features_.begin(), features_.end());
    ptr_.assign(1, 0);
    for (const uint32_t f : features_) {
        place_[f] = static_cast<uint32_t>(ptr_.size() - 1);
        ptr_.push_back(ptr_.back() + seen_[f].count);
    }
    for (const uint32_t f : touched_) seen_[f] = {};
    row_.resize(ptr_.back());
    value_.resize(ptr_.back());
    // While columns are filled, ptr_[j] is the place of the next entry of column j.
    for (size_t i = 0; i < ids.size() && !features_.empty(); ++i) {
        const float factor = factors[ids[i]];
        for_each_entry(x, ids[i], [&](uint32_t feature, float value) {
            const uint32_t j = place_[feature];
            if (j == kNowhere) return;
            const size_t at = ptr_[j]++;
            row_[at] = static_cast<uint32_t>(i);
            value_[at] = value * factor;
        });
    }
    for (size_t j = ptr_.size() - 1; j > 0; --j) ptr_[j] = ptr_[j - 1];
    ptr_[0] = 0;
    for (const uint32_t f : features_) place_[f] = kNowhere;
}

// Four sums side by side: the next addition need not wait for the last.
float L1Logistic::dot(size_t j, const float* values) const {
    if (j == x_->size()) {
        double sum = 0;
        for (size_t i = 0; i < x_->n_rows(); ++i) sum += values[i];
        return static_cast<float>(sum);
    }
    const uint32_t* row = x_->row();
    const float* x = x_->value();
    float a = 0, b = 0, c = 0, d = 0;
    size_t e = x_->begin(j);
    const size_t end = x_->begin(j + 1);
    for (; e + 4 <= end; e += 4) {
        a += x[e] * values[row[e]];
        b += x[e + 1] * values[row[e + 1]];
        c += x[e + 2] * values[row[e + 2]];
        d += x[e + 3] * values[row[e + 3]];
    }
    for (; e < end; ++e) a += x[e] * values[row[e]];
    return (a + b) + (c + d);
}

float L1Logistic::curvature_of(size_t j) const {
    float sum = kLeastCurvature;
    if (j == x_->size()) {
        for (const float curvature : curvature_) sum += curvature;
        return sum;
    }
    for (size_t e = x_->begin(j); e < x_->begin(j + 1); ++e)
        sum += x_->value()[e] * x_->value()[e] * curvature_[x_->row()[e]];
    return sum;
}

void L1Logistic::add(size_t j, float step, float* to) const {
    if (j == x_->size()) {
        for (size_t i = 0; i < x_->n_rows(); ++i) to[i] += step;
        return;
    }
    for (size_t e = x_->begin(j); e < x_->begin(j + 1); ++e) to[x_->row()[e]] += step * x_->value()[e];
}

void L1Logistic::add_curved(size_t j, float step) {
    if (j == x_->size()) {
        for (size_t i = 0; i < x_->n_rows(); ++i) curved_[i] += step * curvature_[i];
        return;
    }
    for (size_t e = x_->begin(j); e < x_->begin(j + 1); ++e) {
        const uint32_t i = x_->row()[e];
        curved_[i] += step * x_->value()[e] * curvature_[i];
    }
}

double L1Logistic::evaluate(double part) {
    double loss = 0;
    const auto step = static_cast<float>(part);
    for (size_t i = 0; i < margin_.size(); ++i) {
        const float sign = sign_[i], cost = cost_[i];
        const float z = sign * (margin_[i] + step * direction_[i]);
        const float e = std::exp(-std::abs(z));
        const float wrong = (z > 0 ? e : 1.0f) / (1.0f + e);  // the probability of the other sign
        loss += cost * (std::log1p(e) + std::max(0.0f, -z));
        residual_[i] = -cost * sign * wrong;
        curvature_[i] = cost * wrong * (1.0f - wrong);
    }
    return loss;
}

// How far the subgradient of a column that is nearest to 0 is from it.
double L1Logistic::violation(size_t j) const {
    const double g = gradient_[j];
    if (w_[j] == 0) return std::max(0.0, std::abs(g) - 1);
    return std::abs(g + (w_[j] > 0 ? 1 : -1));
}

double L1Logistic::look_at_all() {
    double sum = 0;
    working_.clear();
    for (size_t j = 0; j < w_.size(); ++j) {
        gradient_[j] = dot(j, residual_.data());
        sum += violation(j);
        if (w_[j] != 0 || std::abs(gradient_[j]) > 1) working_.push_back(static_cast<uint32_t>(j));
    }
    return sum;
}

double L1Logistic::look_at_working() {
    double sum = 0;
    for (const uint32_t j : working_) {
        gradient_[j] = dot(j, residual_.data());
        sum += violation(j);
    }
    return sum;
}

// Minimises the quadratic model over the working set: d_ is the step from w_. Coordinates that stay at 0 are
// dropped; the next look at the gradient finds those that should not have been.
void L1Logistic::descend(double tol, Rng& rng) {
    constexpr int kMostPasses = 100;
    std::fill(curved_.begin(), curved_.end(), 0.0f);
    for (const uint32_t j : working_) {
        d_[j] = 0;
        diagonal_[j] = curvature_of(j);
    }
    open_ = working_;
    for (int pass = 0; pass < kMostPasses && !open_.empty(); ++pass) {
        double moved = 0;
        size_t kept = 0;
        rng.shuffle(open_);
        for (const uint32_t j : open_) {
            const float g = gradient_[j] + dot(j, curved_.data());
            const float h = diagonal_[j], w = w_[j] + d_[j];
            const float z = g + 1 <= h * w ? -(g + 1) / h : g - 1 >= h * w ? -(g - 1) / h : -w;
            if (w == 0 && z == 0) continue;
            open_[kept++] = j;
            moved += std::abs(z) * h;  // the violation that the step removes
            if (z == 0) continue;
            d_[j] = w + z - w_[j];
            if (w + z == 0) d_[j] = -w_[j];
            add_curved(j, z);
        }
        open_.resize(kept);
        if (moved <= tol) break;
    }
}

// Goes along d_ as far as the objective falls enough. Returns false where it does not fall at all.
bool L1Logistic::step() {
    constexpr double kEnough = 0.01;
    constexpr int kMostHalvings = 20;
    std::fill(direction_.begin(), direction_.end(), 0.0f);
    double before = 0, expected = 0;
    for (const uint32_t j : working_) {
        if (d_[j] == 0) continue;
        add(j, d_[j], direction_.data());
        before += std::abs(w_[j]);
        expected += double{gradient_[j]} * d_[j] + std::abs(w_[j] + d_[j]) - std::abs(w_[j]);
    }
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

void L1Logistic::solve(const SignedColumns& x, std::span<const int8_t> sign, std::span<const float> cost,
                       const L1Params& params, Rng rng, const Control& control) {
    constexpr int kStepsOfSet = 3;
    constexpr double kPartOfSet = 0.3;  // the working set is solved until this part of its violation is left
    constexpr double kPartOfModel = 0.3;
    constexpr double kRounding = 3e-7;  // of gradients, as a part of all costs
    x_ = &x;
    sign_ = sign;
    cost_ = cost;
    n_iter_ = 0;
    for (auto* of_column : {&w_, &d_, &gradient_, &diagonal_}) of_column->assign(x.size() + 1, 0.0f);
    for (auto* of_row : {&direction_, &residual_, &curvature_, &curved_}) of_row->assign(x.n_rows(), 0.0f);
    // The best bias alone.
    double up = 0, down = 0;
    size_t n_up = 0;
    for (size_t i = 0; i < sign.size(); ++i) {
        (sign[i] > 0 ? up : down) += cost[i];
        n_up += sign[i] > 0;
    }
    if (up > down + 2) w_.back() = static_cast<float>(std::log((up - 1) / (down + 1)));
    if (down > up + 2) w_.back() = static_cast<float>(-std::log((down - 1) / (up + 1)));
    margin_.assign(x.n_rows(), w_.back());
    loss_ = evaluate(0);
    const double fewer = static_cast<double>(std::max<size_t>(1, std::min(n_up, sign.size() - n_up)));
    double target = 0;
    for (bool first = true; n_iter_ < params.max_iter; first = false) {
        const double all = look_at_all();
        if (first)
            target =
                std::max(kRounding * (up + down),
                         params.tol * all * fewer / static_cast<double>(std::max<size_t>(1, sign.size())));
        if (all <= target) break;
        bool moved = false;
        double left = all;
        for (int k = 0; k < kStepsOfSet && n_iter_ < params.max_iter; ++k, ++n_iter_) {
            control.check();
            if (k > 0) left = look_at_working();
            if (k > 0 && left <= std::max(target / 2, kPartOfSet * all)) break;
            descend(kPartOfModel * left, rng);
            if (!step()) break;
            moved = true;
        }
        if (!moved) break;  // as exact as these numbers can be
    }
    objective_ = loss_;
    for (const float w : w_) objective_ += std::abs(w);
}

}  // namespace bonsai

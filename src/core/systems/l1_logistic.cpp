#include "systems/l1_logistic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace bonsai {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};
constexpr float kLeastCurvature = 1e-12f;  // of a row, as a part of its cost
constexpr size_t kFirstColumns = 200;      // of a working set, at least

// Two sums over a column, of pulls and of their sizes.
struct Pulls {
    float sum = 0, size = 0;
    void operator+=(float pull) { sum += pull, size += std::abs(pull); }
    void operator+=(const Pulls& other) { sum += other.sum, size += other.size; }
};

// Σ value(row, x) over the entries of a column. Four independent sums shorten the chain of additions.
template <class Sum, class Value>
Sum sum_over(std::span<const NodeColumns::Entry> entries, Value&& value) {
    Sum a{}, b{}, c{}, d{};
    size_t e = 0;
    for (; e + 4 <= entries.size(); e += 4) {
        a += value(entries[e].row, entries[e].value);
        b += value(entries[e + 1].row, entries[e + 1].value);
        c += value(entries[e + 2].row, entries[e + 2].value);
        d += value(entries[e + 3].row, entries[e + 3].value);
    }
    for (; e < entries.size(); ++e) a += value(entries[e].row, entries[e].value);
    a += b;
    c += d;
    a += c;
    return a;
}

}  // namespace

void NodeColumns::take(std::span<const uint32_t> ids, std::span<const float> pull, float least) {
    // Where a node has many of the rows, reading all columns in order takes less time than writing to as many
    // places as there are columns.
    constexpr size_t kMany = 3;
    n_rows_ = ids.size();
    features_.clear();
    columns_.clear();
    pulls_.clear();
    if (kMany * n_rows_ <= data_.n_rows())
        transpose(ids, pull, least);
    else if (n_rows_ < data_.n_rows())
        select(ids, pull, least);
    else
        for (uint32_t f = 0; f < all_.size(); ++f) add(f, all_[f], pull, least);
}

void NodeColumns::add(uint32_t feature, std::span<const Entry> column, std::span<const float> pull,
                      float least) {
    const auto pulls = sum_over<Pulls>(column, [&](uint32_t i, float value) { return value * pull[i]; });
    if (pulls.size > least) add(feature, column, pulls.sum);
}

void NodeColumns::select(std::span<const uint32_t> ids, std::span<const float> pull, float least) {
    place_.assign(data_.n_rows(), kNowhere);
    size_t n_entries = 0;
    for (uint32_t i = 0; i < ids.size(); ++i) {
        place_[ids[i]] = i;
        n_entries += data_.x().row_size(ids[i]);
    }
    entries_.resize(n_entries + 1);  // one is written beyond the last
    Entry* end = entries_.data();
    for (uint32_t f = 0; f < all_.size(); ++f) {
        Entry* const begin = end;
        for (const Entry& e : all_[f]) {
            *end = {place_[e.row], e.value};
            end += end->row != kNowhere;
        }
        add(f, {begin, end}, pull, least);
    }
}

void NodeColumns::transpose(std::span<const uint32_t> ids, std::span<const float> pull, float least) {
    size_t n_entries = 0;
    for (const uint32_t id : ids) n_entries += data_.x().row_size(id);
    sums_.resize(all_.size());
    const auto sum_rows = [&](auto&& touch) {
        for (size_t i = 0; i < ids.size(); ++i) {
            const float of_row = data_.factors()[ids[i]] * pull[i];
            for_each_entry(data_.x(), ids[i], [&](uint32_t f, float value) {
                Sums& sums = sums_[f];
                touch(f, sums.n == 0);
                sums.pull += of_row * value;
                sums.size += std::abs(of_row * value);
                ++sums.n;
            });
        }
    };
    // The order of the columns is that of dense rows, too, which have room for more entries.
    if (ids.size() * all_.n_entries() < data_.n_rows() * all_.size()) {
        touched_.resize(n_entries + 1);  // one is written beyond the last
        size_t n = 0;
        sum_rows([&](uint32_t f, bool first) {
            touched_[n] = f;
            n += first;
        });
        touched_.resize(n);
    } else {
        touched_.resize(all_.size());
        std::iota(touched_.begin(), touched_.end(), 0u);
        sum_rows([](uint32_t, bool) {});
    }
    // Entries of all other columns go to one place, which costs less than a branch for each.
    next_.resize(all_.size());
    entries_.resize(n_entries + ids.size());
    Entry* const others = entries_.data();
    Entry* end = others + ids.size();
    for (const uint32_t f : touched_) {
        const Sums sums = std::exchange(sums_[f], {});
        next_[f] = sums.size > least ? end : others;
        if (!(sums.size > least)) continue;
        end += sums.n;
        add(f, {next_[f], end}, sums.pull);
    }
    if (columns_.empty()) return;
    for (uint32_t i = 0; i < ids.size(); ++i) {
        const float factor = data_.factors()[ids[i]];
        for_each_entry(data_.x(), ids[i], [&](uint32_t f, float value) {
            Entry*& next = next_[f];
            __builtin_prefetch(next + Columns::kAhead, 1);
            *next++ = {i, value * factor};
        });
    }
}

template <class Sum, class Value>
Sum L1Logistic::sum_of(size_t j, Value&& value) const {
    if (j < x_->size()) return sum_over<Sum>((*x_)[j], value);
    Sum sum{};
    for (uint32_t i = 0; i < x_->n_rows(); ++i) sum += value(i, 1.0f);
    return sum;
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
        // Above 0: `step` divides by it.
        curve_[i].curvature = std::max(cost * wrong * (1.0f - wrong),
                                       std::max(kLeastCurvature * cost, std::numeric_limits<float>::min()));
    }
    return loss;
}

// The distance from 0 to the nearest subgradient of a column.
double L1Logistic::violation(size_t j) const {
    const double g = gradient_[j];
    if (w_[j] == 0) return std::max(0.0, std::abs(g) - 1);
    return std::abs(g + (w_[j] > 0 ? 1 : -1));
}

void L1Logistic::find_gradient(size_t j) {
    gradient_[j] = sum_of<float>(j, [&](uint32_t i, float x) { return x * residual_[i]; });
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
    for (Curve& row : curve_) row.pull = 0;
    for (const uint32_t j : working_) d_[j] = 0;
    open_ = working_;
    for (int pass = 0; pass < kMostPasses && !open_.empty(); ++pass) {
        double moved = 0;
        size_t kept = 0;
        rng.shuffle(open_);
        for (const uint32_t j : open_) {
            float pull;
            if (pass == 0) {
                const auto sums = sum_of<Sums<2>>(j, [&](uint32_t i, float x) {
                    return Sums<2>{x * x * curve_[i].curvature, x * curve_[i].pull};
                });
                diagonal_[j] = sums.of[0] + std::numeric_limits<float>::min();
                pull = sums.of[1];
            } else {
                pull = sum_of<float>(j, [&](uint32_t i, float x) { return x * curve_[i].pull; });
            }
            const float g = gradient_[j] + pull;
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
    if (j == x_->size())
        for (Curve& row : curve_) row.pull += step * row.curvature;
    else
        for (const auto& e : (*x_)[j]) curve_[e.row].pull += step * e.value * curve_[e.row].curvature;
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
    for (size_t i = 0; i < direction_.size(); ++i) direction_[i] = curve_[i].pull / curve_[i].curvature;
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

void L1Logistic::solve(NodeColumns& x, std::span<const uint32_t> rows, std::span<const int8_t> sign,
                       std::span<const float> cost, const L1Params& params, Rng rng, const Control& control) {
    constexpr double kPartOfModel = 0.7;  // of the violation, which is left when the model is minimised
    constexpr double kPartOfSet = 0.1;    // of the violation, which may be left in a working set
    constexpr double kRounding = 3e-7;    // of gradients, relative to the sum of costs
    x_ = &x;
    sign_ = sign;
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
    for (auto* of_row : {&direction_, &residual_}) of_row->assign(rows.size(), 0.0f);
    curve_.assign(rows.size(), {});
    margin_.assign(rows.size(), static_cast<float>(bias));
    loss_ = evaluate(0);
    // Nowhere does the gradient of column j exceed Σ cᵢ |xᵢⱼ|, and no weight leaves 0 while it is at most 1.
    // A residual is cᵢ times a probability, which is this at least:
    const double least = 1 / (1 + std::exp(std::abs(bias)));
    x.take(rows, residual_, static_cast<float>(least));
    gradient_.assign(x.pulls().begin(), x.pulls().end());
    gradient_.push_back(sum_of<float>(x.size(), [&](uint32_t i, float) { return residual_[i]; }));
    for (auto* of_column : {&w_, &d_, &diagonal_}) of_column->assign(x.size() + 1, 0.0f);
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

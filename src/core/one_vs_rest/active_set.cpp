#include "one_vs_rest/active_set.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/random.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsBetweenPolls = 4096;
constexpr size_t kSampleRows = 1024;  // rows of the sample that warm-up visits first
constexpr size_t kFirstSample = 32;   // its first part; each further part is twice as large
constexpr size_t kWarmUpRows = 8192;  // rows of the first scan
constexpr int kWarmUpPasses = 1;      // passes of a descent during warm-up, before its last round
constexpr double kShrinkSlack = 0.5;  // times tol: rows this close to the margin are not shrunk
constexpr double kMinGradient = 0.2;  // times tol: smaller gradients do not update alpha

}  // namespace

OneVsRestContext::OneVsRestContext(const LabelRows& of_labels, const QuantisedRows& rows,
                                   const RowIndex* index, std::span<const float> costs, uint64_t key,
                                   const LinearParams& params, const Kernels& kernels, const Control& control)
    : of_labels(of_labels),
      rows(rows),
      index(index),
      costs(costs),
      key(key),
      params(params),
      kernels(kernels),
      control(control),
      scan_cost(static_cast<double>(rows.n_entries())),
      all(rows.n_rows()),
      sample(Rng(key).sample(rows.n_rows(), std::min(rows.n_rows(), kWarmUpRows))) {
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
}

ActiveSetSolver::ActiveSetSolver(const OneVsRestContext& context)
    : context_(context),
      w_(padded_lanes(context.rows.n_features()), 0.0f),
      feature_(w_.size() + kLaneStep),
      value_(w_.size() + kLaneStep),
      panel_row_(context.rows.n_features(), 0),
      in_set_(context.rows.n_rows(), 0),
      search_(context.index ? std::make_unique<RowSearch>(*context.index) : nullptr) {}

void ActiveSetSolver::load(std::span<ActiveSet* const> sets) {
    n_lanes_ = sets.size();
    for (size_t l = 0; l < n_lanes_; ++l) lanes_[l] = *sets[l];
}

void ActiveSetSolver::store(std::span<ActiveSet* const> sets) const {
    for (size_t l = 0; l < n_lanes_; ++l) *sets[l] = ActiveSet(lanes_[l]);  // a copy has no spare capacity
}

// A sample of the rows, and the positives of the whole group.
std::vector<uint32_t> ActiveSetSolver::warm_up_rows() {
    std::vector<uint32_t> rows = context_.sample;
    for (const uint32_t row : rows) in_set_[row] = 1;
    for (size_t l = 0; l < n_lanes_; ++l)
        for (const int32_t row : context_.of_labels.of(lanes_[l].position)) {
            if (!in_set_[row]) rows.push_back(static_cast<uint32_t>(row));
            in_set_[row] = 1;
        }
    for (const uint32_t row : rows) in_set_[row] = 0;
    std::sort(rows.begin(), rows.end());
    return rows;
}

// Solves the `open` classifiers on their active sets, then adds the margin violations among the rows of
// `scope`. Returns the classifiers that are still unsolved.
uint64_t ActiveSetSolver::solve_and_scan(uint64_t open, std::span<const uint32_t> scope, int round) {
    const uint64_t unconverged = solve(open, round);
    const bool all_rows = scope.size() == context_.all.size() && round > 0;
    const uint64_t searched = search_ && all_rows ? search(open, round) : 0;
    uint64_t violated = add_found(searched);
    if (open & ~searched) violated |= scan_and_confirm(open & ~searched, scope, round);
    return is_last_warm_up(round) ? violated : unconverged | violated;
}

// Descends on the active sets, and leaves the weights in weights_. Returns the lanes that have not converged.
uint64_t ActiveSetSolver::solve(uint64_t open, int round) {
    uint64_t unconverged = 0;
    const int max_iter = context_.params.max_iter;
    for (uint64_t bits = open; bits; bits &= bits - 1) {
        context_.control.check();
        const auto l = static_cast<size_t>(std::countr_zero(bits));
        ActiveSet& set = lanes_[l];
        if (round == 0)
            start(set);
        else if (round < kWarmUpRounds)
            for (const Entry& w : weights_[l]) w_[w.feature] = w.value;
        else
            sum_rows(set);
        descend(set, round, is_last_warm_up(round) ? max_iter : std::min(kWarmUpPasses, max_iter));
        unconverged |= uint64_t{!set.converged} << l;
        extract(set, weights_[l]);
    }
    return unconverged;
}

void ActiveSetSolver::resume(std::span<ActiveSet* const> sets, const OldClassifiers& old) {
    load(sets);
    for (size_t l = 0; l < n_lanes_; ++l) {
        ActiveSet& set = lanes_[l];
        const auto positives = context_.of_labels.of(set.position);  // ascending
        set.row.assign(positives.begin(), positives.end());
        set.alpha.assign(set.row.size(), 0.0f);
        set.n_positive = set.row.size();
        set.prior = &old.weights[set.position];
        load_prior(set);
        set.anchor.clear();
        for (size_t m = 0; m < set.row.size() && set.row[m] < old.n_rows; ++m) {
            if (m + 2 < set.row.size()) context_.rows.prefetch(set.row[m + 2]);
            set.anchor.push_back(context_.rows.dot(set.row[m], w_.data()));
        }
        for (const Entry& w : *set.prior) w_[w.feature] = 0;
        weights_[l] = *set.prior;
    }
    scan(all_lanes(), std::span(context_.all).subspan(old.n_rows), 1);
    store(sets);
}

void ActiveSetSolver::load_prior(const ActiveSet& set) {
    if (!set.prior) return;
    for (const Entry& w : *set.prior) w_[w.feature] = w.value;
}

// By how much a negative row violates the margin of the classifier in w_.
float ActiveSetSolver::violation(uint32_t row) const {
    return context_.rows.dot(row, w_.data()) + context_.params.fixed_bias + 1;
}

// Starts with the positives and goes through growing parts of the sample, with a pass over the active set
// after each part. Leaves the weights in w_.
void ActiveSetSolver::start(ActiveSet& set) {
    const auto positives = context_.of_labels.of(set.position);
    set.row.assign(positives.begin(), positives.end());
    set.n_positive = positives.size();
    set.alpha.assign(positives.size(), 0.0f);
    const auto sample = std::span(context_.sample).first(std::min(context_.sample.size(), kSampleRows));
    int round = 0;
    for (size_t from = 0, to = kFirstSample; from < sample.size(); from = to, to *= 2) {
        descend(set, --round, 1);
        add_violations(set, sample.subspan(from, std::min(to, sample.size()) - from));
    }
}

// Adds the rows that violate the margin, each with the alpha that removes the violation.
void ActiveSetSolver::add_violations(ActiveSet& set, std::span<const uint32_t> rows) {
    const auto positives = context_.of_labels.of(set.position);
    for (size_t r = 0; r < rows.size(); ++r) {
        const uint32_t i = rows[r];
        if (r + 2 < rows.size()) context_.rows.prefetch(rows[r + 2]);
        const float excess = violation(i);
        if (excess <= context_.params.tol ||
            std::binary_search(positives.begin(), positives.end(), static_cast<int32_t>(i)))
            continue;
        const float alpha = excess / (context_.rows.norm2(i) + diagonal(set.position, i));
        set.row.push_back(i);
        set.alpha.push_back(alpha);
        context_.rows.add(i, -alpha, w_.data());
    }
}

// The diagonal term that the squared hinge adds to Q_ii: 1 / (2 C_i).
float ActiveSetSolver::diagonal(uint32_t position, uint32_t row) const {
    const double cost = context_.params.c * (context_.costs.empty() ? 1.0 : double{context_.costs[position]});
    return static_cast<float>(0.5 / (cost * double{context_.of_labels.weight(row)}));
}

// w_ = the weights of an active set; w_ must be 0.
void ActiveSetSolver::sum_rows(const ActiveSet& set) {
    load_prior(set);
    for (size_t m = 0; m < set.row.size(); ++m) {
        if (m + 2 < set.row.size()) context_.rows.prefetch(set.row[m + 2]);
        if (set.alpha[m] != 0) context_.rows.add(set.row[m], set.sign(m) * set.alpha[m], w_.data());
    }
}

// Algorithm 1 of Hsieh et al. (ICML 2008) on the active set, whose classifier is in w_. Negatives without
// weight are then removed from the set; a scan finds them again if they violate the margin.
void ActiveSetSolver::descend(ActiveSet& set, int round, int max_passes) {
    order_.resize(set.row.size());
    for (size_t m = 0; m < order_.size(); ++m) order_[m] = static_cast<uint32_t>(m);
    Rng rng(derive(derive(context_.key, context_.of_labels.labels()[set.position]),
                   static_cast<uint64_t>(round)));
    const float usual_diagonal = diagonal(set.position, 0);
    set.converged = false;
    for (int p = 0; p < max_passes && !set.converged; ++p) {
        rng.shuffle(order_);
        set.converged = pass(set, usual_diagonal) <= context_.params.tol;
        ++set.n_iter;
    }
    drop_zeros(set);
}

// A pass with shrinking: negatives without weight that are well inside the margin are removed from the order.
// Returns the range of the projected gradient.
float ActiveSetSolver::pass(ActiveSet& set, float usual_diagonal) {
    const auto slack = static_cast<float>(-kShrinkSlack * context_.params.tol);
    const auto min_gradient = static_cast<float>(kMinGradient * context_.params.tol);
    float high = 0, low = 0;
    size_t kept = 0;
    for (size_t t = 0; t < order_.size(); ++t) {
        if (t % kRowsBetweenPolls == 0) context_.control.check();
        const uint32_t m = order_[t], i = set.row[m];
        if (t + 2 < order_.size()) context_.rows.prefetch(set.row[order_[t + 2]]);
        const float y = set.sign(m), a = set.alpha[m];
        const float extra = context_.of_labels.weighted() ? diagonal(set.position, i) : usual_diagonal;
        const float dot = context_.rows.dot(i, w_.data());
        const bool anchored = m < set.anchor.size();
        const float loss = anchored ? dot - set.anchor[m] : y * (dot + context_.params.fixed_bias) - 1;
        const float g = loss + a * extra;
        const bool at_bound = !anchored && a == 0 && g >= (m < set.n_positive ? 0 : slack);
        if (!at_bound || m < set.n_positive) order_[kept++] = m;
        if (at_bound) continue;
        high = std::max(high, g);
        low = std::min(low, g);
        if ((a > 0 || anchored) && std::abs(g) <= min_gradient) continue;
        const float step = a - g / (context_.rows.norm2(i) + extra);
        const float next = anchored ? step : std::max(0.0f, step);
        if (next == a) continue;
        set.alpha[m] = next;
        context_.rows.add(i, (next - a) * y, w_.data());
    }
    order_.resize(kept);
    return high - low;
}

void ActiveSetSolver::drop_zeros(ActiveSet& set) const {
    size_t kept = set.n_positive;
    for (size_t m = kept; m < set.row.size(); ++m) {
        if (set.alpha[m] == 0) continue;
        set.row[kept] = set.row[m];
        set.alpha[kept++] = set.alpha[m];
    }
    set.row.resize(kept);
    set.alpha.resize(kept);
    set.n_solved = kept;
}

// Moves the weights out of w_: through the rows of the active set, or through all features if that is less
// work.
void ActiveSetSolver::extract(const ActiveSet& set, std::vector<Entry>& weights) {
    size_t n = 0;
    for (const uint32_t row : set.row) n += context_.rows.row_size(row);
    weights.clear();
    if (n < w_.size() / 64 && !set.prior) {
        for (const uint32_t row : set.row)
            for (const int32_t f : context_.rows.features(row)) {
                if (w_[f] == 0) continue;
                weights.push_back({static_cast<uint32_t>(f), w_[f]});
                w_[f] = 0;
            }
        std::sort(weights.begin(), weights.end(),
                  [](const Entry& a, const Entry& b) { return a.feature < b.feature; });
        return;
    }
    weights.resize(context_.kernels.drain_nonzeros(w_.data(), w_.size(), feature_.data(), value_.data()));
    for (size_t k = 0; k < weights.size(); ++k) weights[k] = {feature_[k], value_[k]};
}

std::vector<Entry> ActiveSetSolver::weights(const ActiveSet& set) {
    std::vector<Entry> weights;
    sum_rows(set);
    extract(set, weights);
    return weights;
}

}  // namespace bonsai

#include "one_vs_rest/active_set.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/random.hpp"

namespace bonsai {
namespace {

constexpr size_t kScanRows = 256;  // rows of a call of the scan kernel
constexpr size_t kScansBetweenPolls = 64;
constexpr size_t kRowsBetweenPolls = 4096;
constexpr size_t kSampleRows = 1024;     // that each classifier sees first, one by one …
constexpr size_t kFirstSample = 32;      // … this many to begin with, then twice as many, and so on
constexpr size_t kWarmUpRows = 8192;     // of the first scan
constexpr double kWarmUpTolerance = 3;   // times tol, for the violations of the first scan
constexpr int kWarmUpPasses = 1;         // of a descent during warm-up, before its last round
constexpr double kShrinkSlack = 0.5;     // times tol: within it of the margin, a row is not shrunk
constexpr double kMinGradient = 0.2;     // times tol: smaller gradients do not update alpha
constexpr size_t kPanelFeatures = 1024;  // whose part of a panel stays in L2
// Times tol, the least product that a search adds up: a fine search is between two coarse ones. The first
// finds what matters most, the last what the second has brought about.
constexpr double kCoarseProduct = 0.25, kFineProduct = 0.125;

bool is_last_warm_up(int round) {
    return round >= kWarmUpRounds - 1;
}

}  // namespace

OneVsRestContext::OneVsRestContext(const Dataset& data, const QuantisedRows& rows, const RowIndex* index,
                                   std::span<const uint32_t> labels, std::span<const float> costs,
                                   uint64_t key, const LinearParams& params, const Kernels& kernels,
                                   const Control& control)
    : data(data),
      rows(rows),
      index(index),
      labels(labels),
      costs(costs),
      key(key),
      params(params),
      kernels(kernels),
      control(control),
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
      above_(kScanRows),
      search_(context.index ? std::make_unique<RowSearch>(*context.index) : nullptr) {}

void ActiveSetSolver::load(std::span<ActiveSet* const> sets) {
    n_lanes_ = sets.size();
    for (size_t l = 0; l < n_lanes_; ++l) lanes_[l] = *sets[l];
}

void ActiveSetSolver::store(std::span<ActiveSet* const> sets) const {
    for (size_t l = 0; l < n_lanes_; ++l) *sets[l] = ActiveSet(lanes_[l]);  // a copy has no spare capacity
}

// A sample, and the positives of the whole group.
std::vector<uint32_t> ActiveSetSolver::warm_up_rows() {
    std::vector<uint32_t> rows = context_.sample;
    for (const uint32_t row : rows) in_set_[row] = 1;
    for (size_t l = 0; l < n_lanes_; ++l)
        for (const int32_t row : context_.data.rows_of(context_.labels[lanes_[l].position])) {
            if (!in_set_[row]) rows.push_back(static_cast<uint32_t>(row));
            in_set_[row] = 1;
        }
    for (const uint32_t row : rows) in_set_[row] = 0;
    std::sort(rows.begin(), rows.end());
    return rows;
}

// Solves the `open` classifiers on their active sets, then adds the margin violations among the rows of
// `scope`. Returns the classifiers that are not solved yet.
uint64_t ActiveSetSolver::solve_and_scan(uint64_t open, std::span<const uint32_t> scope, int round) {
    const uint64_t unconverged = solve(open, round);
    const bool searched = search_ && scope.size() == context_.all.size() && round > 0;
    const uint64_t violated = searched ? search(open, round) : scan_and_confirm(open, scope, round);
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
        const auto positives = context_.data.rows_of(context_.labels[set.position]);  // ascending
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

// Adds rows to the active sets, with alpha 0, whose quantised margins are above the threshold. Returns the
// lanes with such rows.
uint64_t ActiveSetSolver::scan(uint64_t open, std::span<const uint32_t> scope, int round) {
    float scale[kMaxLanes] = {}, threshold[kMaxLanes];
    std::fill_n(threshold, kMaxLanes, std::numeric_limits<float>::max());
    const LinearParams& params = context_.params;
    const double least = -1 - double{params.fixed_bias} + params.tol * (round == 0 ? kWarmUpTolerance : 1);
    for (uint64_t bits = open; bits; bits &= bits - 1) {
        const auto l = static_cast<size_t>(std::countr_zero(bits));
        double norm2 = 0;
        float largest = 0;
        for (const Entry& w : weights_[l]) {
            norm2 += double{w.value} * w.value;
            largest = std::max(largest, std::abs(w.value));
        }
        scale[l] = context_.rows.weight_scale(std::sqrt(norm2), largest);
        if (scale[l] > 0)
            threshold[l] = static_cast<float>(std::min(least * QuantisedRows::kUnits * scale[l], 1e30));
        for (const uint32_t row : lanes_[l].row) in_set_[row] |= uint64_t{1} << l;
    }
    build_panel(scale);
    const QuantisedScan scan =
        context_.rows.scan(panel_row_.data(), panel_.data(), threshold, is_last_warm_up(round));
    uint64_t violated = 0;
    for (size_t begin = 0; begin < scope.size(); begin += kScanRows) {
        if (begin % (kScanRows * kScansBetweenPolls) == 0) context_.control.check();
        const auto part = scope.subspan(begin, std::min(kScanRows, scope.size() - begin));
        context_.kernels.scan_quantised(scan, part.data(), part.size(), above_.data());
        for (size_t r = 0; r < part.size(); ++r)
            for (uint64_t bits = above_[r] & ~in_set_[part[r]]; bits; bits &= bits - 1) {
                ActiveSet& set = lanes_[static_cast<size_t>(std::countr_zero(bits))];
                set.row.push_back(part[r]);
                set.alpha.push_back(0.0f);
                violated |= bits;
            }
    }
    for (size_t l = 0; l < n_lanes_; ++l)
        for (const uint32_t row : lanes_[l].row) in_set_[row] = 0;
    for (const uint32_t f : panel_features_) panel_row_[f] = 0;
    return violated;
}

uint64_t ActiveSetSolver::scan_and_confirm(uint64_t open, std::span<const uint32_t> scope, int round) {
    const uint64_t violated = scan(open, scope, round);
    if (!is_last_warm_up(round)) return violated;
    uint64_t confirmed = 0;
    for (uint64_t bits = open; bits; bits &= bits - 1) {
        const auto l = static_cast<size_t>(std::countr_zero(bits));
        confirmed |= uint64_t{confirm(lanes_[l], weights_[l])} << l;
    }
    return confirmed;
}

// Adds rows to the active sets, with alpha 0, that the index finds and that violate the margin. Returns the
// lanes with such rows.
uint64_t ActiveSetSolver::search(uint64_t open, int round) {
    const double tol = context_.params.tol;
    const double least_sum = -1 - double{context_.params.fixed_bias} + tol;
    const double least_product = tol * (round == kWarmUpRounds - 1 ? kFineProduct : kCoarseProduct);
    uint64_t violated = 0;
    for (uint64_t bits = open; bits; bits &= bits - 1) {
        context_.control.check();
        const auto l = static_cast<size_t>(std::countr_zero(bits));
        const auto found =
            search_->find(weights_[l], static_cast<float>(least_product), static_cast<float>(least_sum));
        violated |= uint64_t{add_found(lanes_[l], found, weights_[l])} << l;
    }
    return violated;
}

bool ActiveSetSolver::add_found(ActiveSet& set, std::span<const uint32_t> rows,
                                const std::vector<Entry>& weights) {
    constexpr size_t ahead = 4;
    for (const uint32_t row : set.row) in_set_[row] = 1;
    for (const Entry& w : weights) w_[w.feature] = w.value;
    const size_t n_before = set.row.size();
    for (size_t r = 0; r < rows.size(); ++r) {
        if (r + ahead < rows.size()) context_.rows.prefetch(rows[r + ahead]);
        if (in_set_[rows[r]] || !(violation(rows[r]) > context_.params.tol)) continue;
        set.row.push_back(rows[r]);
        set.alpha.push_back(0.0f);
    }
    for (const Entry& w : weights) w_[w.feature] = 0;
    for (size_t m = 0; m < n_before; ++m) in_set_[set.row[m]] = 0;
    return set.row.size() > n_before;
}

// Of the rows that the scan has added, those remain that violate the margin indeed, which int8 weights tell
// only roughly. Returns whether there are any.
bool ActiveSetSolver::confirm(ActiveSet& set, const std::vector<Entry>& weights) {
    size_t kept = set.n_solved;
    if (kept == set.row.size()) return false;
    for (const Entry& w : weights) w_[w.feature] = w.value;
    for (size_t m = kept; m < set.row.size(); ++m) {
        if (m + 2 < set.row.size()) context_.rows.prefetch(set.row[m + 2]);
        if (violation(set.row[m]) > context_.params.tol) set.row[kept++] = set.row[m];
    }
    for (const Entry& w : weights) w_[w.feature] = 0;
    set.row.resize(kept);
    set.alpha.resize(kept);
    return kept > set.n_solved;
}

// By how much a negative row violates the margin of the classifier in w_.
float ActiveSetSolver::violation(uint32_t row) const {
    return context_.rows.dot(row, w_.data()) + context_.params.fixed_bias + 1;
}

// From the positives through growing parts of the sample, with a pass over the active set after each. Leaves
// the weights in w_.
void ActiveSetSolver::start(ActiveSet& set) {
    const auto positives = context_.data.rows_of(context_.labels[set.position]);
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

// Adds the rows that violate the margin, each with the alpha that ends the violation.
void ActiveSetSolver::add_violations(ActiveSet& set, std::span<const uint32_t> rows) {
    const auto positives = context_.data.rows_of(context_.labels[set.position]);
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

// What the squared hinge adds to Q_ii: 1 / (2 C_i).
float ActiveSetSolver::diagonal(uint32_t position, uint32_t row) const {
    const double cost = context_.params.c * (context_.costs.empty() ? 1.0 : double{context_.costs[position]});
    return static_cast<float>(0.5 / (cost * double{context_.data.weight(row)}));
}

// w_ = the weights of an active set; it was 0.
void ActiveSetSolver::sum_rows(const ActiveSet& set) {
    load_prior(set);
    for (size_t m = 0; m < set.row.size(); ++m) {
        if (m + 2 < set.row.size()) context_.rows.prefetch(set.row[m + 2]);
        if (set.alpha[m] != 0) context_.rows.add(set.row[m], set.sign(m) * set.alpha[m], w_.data());
    }
}

// Algorithm 1 of Hsieh et al. (ICML 2008) on the active set, whose classifier is in w_. Negatives without
// weight then leave the set; should they violate the margin again, a scan will find them.
void ActiveSetSolver::descend(ActiveSet& set, int round, int max_passes) {
    order_.resize(set.row.size());
    for (size_t m = 0; m < order_.size(); ++m) order_[m] = static_cast<uint32_t>(m);
    Rng rng(derive(derive(context_.key, context_.labels[set.position]), static_cast<uint64_t>(round)));
    const float usual_diagonal = diagonal(set.position, 0);
    set.converged = false;
    for (int p = 0; p < max_passes && !set.converged; ++p) {
        rng.shuffle(order_);
        set.converged = pass(set, usual_diagonal) <= context_.params.tol;
        ++set.n_iter;
    }
    drop_zeros(set);
}

// A pass with shrinking: negatives without weight that are well inside the margin leave the order. Returns
// the range of the projected gradient.
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
        const float extra = context_.data.weighted() ? diagonal(set.position, i) : usual_diagonal;
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

// Moves the weights out of w_: by the rows of the active set, or by all features where that is less.
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

// Scatters the weights of all lanes, times their scale, into the panel; a lane with a scale of 0 is left out.
// A range of features at a time, so that the part of the panel that is written stays in cache.
void ActiveSetSolver::build_panel(const float (&scale)[kMaxLanes]) {
    panel_features_.clear();
    panel_.assign(kLanePairs, 0);
    const Entry* next[kMaxLanes];
    for (size_t l = 0; l < kMaxLanes; ++l) next[l] = weights_[l].data();
    for (size_t end = kPanelFeatures; end < w_.size() + kPanelFeatures; end += kPanelFeatures)
        for (size_t l = 0; l < kMaxLanes; ++l) {
            if (scale[l] == 0) continue;
            const Entry* const last = weights_[l].data() + weights_[l].size();
            for (; next[l] != last && next[l]->feature < end; ++next[l]) {
                uint32_t& row = panel_row_[next[l]->feature];
                // The lower weight of the word, which is there already, adds to the upper one.
                const auto lower = static_cast<float>(panel_[row * kLanePairs + l % kLanePairs]) / 256;
                const float scaled = next[l]->value * scale[l] - (l < kLanePairs ? 0 : lower);
                const auto rounded = static_cast<int16_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
                if (row == 0) {
                    panel_features_.push_back(next[l]->feature);
                    row = static_cast<uint32_t>(panel_features_.size());
                    panel_.resize(panel_.size() + kLanePairs, 0);
                }
                panel_[row * kLanePairs + l % kLanePairs] +=
                    static_cast<int16_t>(l < kLanePairs ? rounded : rounded * 256);
            }
        }
}

}  // namespace bonsai

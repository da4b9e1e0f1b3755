// Finds the rows that violate the margin, by scans or by index searches.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "one_vs_rest/active_set.hpp"

namespace bonsai {
namespace {

constexpr size_t kScanRows = 256;  // rows per call of the scan kernel
constexpr size_t kScansBetweenPolls = 64;
constexpr double kWarmUpTolerance = 3;   // times tol, in the first scan
constexpr size_t kPanelFeatures = 1024;  // features whose part of a panel stays in L2
// The least product that a search adds up, times tol: in the warm-up, and in later rounds, which look only
// for violations that earlier rounds have caused.
constexpr double kFineProduct = 0.125, kCoarseProduct = 0.25;
// The costs of a search, for a posting and for a row that is found and compared exactly; scanning an entry
// for 64 labels costs 1. Half of the measured costs, as the solver takes longer with the rows that scans
// find.
constexpr double kPostingCost = 0.75, kFoundCost = 25;
// A search stops as soon as its lanes cost more than their share of a scan and the share of this many further
// lanes.
constexpr double kSpareLanes = 16;

}  // namespace

// Adds the rows whose quantised margins are above the threshold to the active sets, with alpha 0. Returns the
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
    above_.resize(kScanRows);
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

// Finds rows by the index, as found_. In the warm-up, a group whose search costs more than a scan is scanned
// instead, then and later. Returns the lanes that were searched.
uint64_t ActiveSetSolver::search(uint64_t open, int round) {
    const double tol = context_.params.tol;
    const double least_sum = -1 - double{context_.params.fixed_bias} + tol;
    const double least_product = tol * (round < kWarmUpRounds ? kFineProduct : kCoarseProduct);
    uint64_t searched = 0;
    for (uint64_t bits = open; bits; bits &= bits - 1)
        if (!lanes_[std::countr_zero(bits)].scanned) searched |= bits & -bits;
    const double n_searched = std::popcount(searched);
    double cost = 0, n_done = 0;
    for (uint64_t bits = searched; bits; bits &= bits - 1) {
        context_.control.check();
        const auto l = static_cast<size_t>(std::countr_zero(bits));
        const auto rows =
            search_->find(weights_[l], static_cast<float>(least_product), static_cast<float>(least_sum));
        found_[l].assign(rows.begin(), rows.end());
        cost += kPostingCost * static_cast<double>(search_->n_postings()) +
                kFoundCost * static_cast<double>(rows.size());
        ++n_done;
        if (round >= kWarmUpRounds ||
            cost <= context_.scan_cost * (n_done + kSpareLanes) / (n_searched + kSpareLanes))
            continue;
        for (size_t s = 0; s < n_lanes_; ++s) lanes_[s].scanned = true;
        return 0;
    }
    return searched;
}

// Adds the rows of found_ that violate the margin to the active sets, with alpha 0. Returns the lanes with
// such rows.
uint64_t ActiveSetSolver::add_found(uint64_t searched) {
    uint64_t violated = 0;
    for (uint64_t bits = searched; bits; bits &= bits - 1) {
        context_.control.check();
        const auto l = static_cast<size_t>(std::countr_zero(bits));
        violated |= uint64_t{add_violations_of(lanes_[l], found_[l], weights_[l])} << l;
    }
    return violated;
}

bool ActiveSetSolver::add_violations_of(ActiveSet& set, std::span<const uint32_t> rows,
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

// Removes the rows added by the scan that do not violate the margin in exact arithmetic; the int8 scan is
// approximate. Returns whether any remain.
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

// Scatters the weights of all lanes, times their scale, into the panel; lanes with scale 0 are left out. One
// range of features at a time, so that the part of the panel being written stays in cache.
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
                // The lower weight is already in the word and adds to the upper one.
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

// One classifier for each label against all rows, on active sets: the solver of a group of up to 64 labels.
//
// With a fixed bias of -1 or below, a negative row violates the margin only if w.x is above 0: most rows
// never do. So a classifier is solved on an active set: its positives, and the negatives that have violated
// the margin. Then all rows are scanned, and new violations are added to the active set, until there are
// none: the chunking of Osuna, Freund and Girosi ("An improved training algorithm for support vector
// machines", NNSP 1997), with one scan for 64 labels. With many labels, a search in an index over the rows
// replaces the scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "one_vs_rest/label_rows.hpp"
#include "one_vs_rest/quantised_rows.hpp"
#include "one_vs_rest/row_index.hpp"

namespace bonsai {

// Rounds that a new group completes in one go: nearly all labels need them.
inline constexpr int kWarmUpRounds = 3;
inline constexpr bool is_last_warm_up(int round) {
    return round >= kWarmUpRounds - 1;
}
// An upper bound that is not reached in practice: observed training ends after at most 8 rounds.
inline constexpr int kMaxRounds = 20;

// Classifiers trained on the first rows, the starting point when rows are added.
struct OldClassifiers {
    size_t n_rows = 0;                        // rows they were trained on
    std::vector<std::vector<Entry>> weights;  // for each label to train, ascending by feature
};

// The state of a label's classifier between rounds: w = prior + sum over the rows of y alpha x.
//
// A prior is a classifier that was optimal for the first rows. Training continues from it without solving
// these rows again: near the optimum, their loss grows with the square of the change in their margins. For
// the rows that matter most, the old positives, C (w.x - prior.x)^2 replaces the loss. These rows are
// anchored: their alpha may have any sign.
struct ActiveSet {
    uint32_t position = 0;      // of the label among the labels to train
    std::vector<uint32_t> row;  // the positives, anchored ones first, then negatives
    std::vector<float> alpha;
    const std::vector<Entry>* prior = nullptr;  // null: 0
    std::vector<float> anchor = {};             // prior.x per anchored row
    size_t n_positive = 0;
    size_t n_solved = 0;  // later rows were added after the last descent
    int32_t n_iter = 0;   // passes over the active set
    bool converged = false;
    bool scanned = false;  // although there is an index: a search would cost more

    float sign(size_t m) const { return m < n_positive ? 1.0f : -1.0f; }
};

// Data that all labels share; immutable.
struct OneVsRestContext {
    OneVsRestContext(const LabelRows& of_labels, const QuantisedRows& rows, const RowIndex* index,
                     std::span<const float> costs, uint64_t key, const LinearParams& params,
                     const Kernels& kernels, const Control& control);

    const LabelRows& of_labels;
    const QuantisedRows& rows;
    const RowIndex* index;         // over the rows; null: all rows are scanned
    std::span<const float> costs;  // factor of C for each label; empty: 1
    uint64_t key;
    const LinearParams& params;
    const Kernels& kernels;
    const Control& control;
    double scan_cost;              // cost of scanning all rows for 64 labels: the number of entries
    std::vector<uint32_t> all;     // all rows
    std::vector<uint32_t> sample;  // random rows that warm-up begins with
};

// The solver of one worker, with its buffers. The result of a label does not depend on the worker. It depends
// on the other labels of its group in the warm-up only.
class ActiveSetSolver {
  public:
    explicit ActiveSetSolver(const OneVsRestContext& context);

    // The first kWarmUpRounds rounds of up to 64 labels; only the positions in the sets are read. Returns bit
    // l: sets[l] is still unsolved. after_round(r) is called after each round r.
    template <class Fn>
    uint64_t warm_up(std::span<ActiveSet* const> sets, Fn&& after_round) {
        load(sets);
        solve_and_scan(all_lanes(), warm_up_rows(), 0);  // a part of the rows: no label can be solved yet
        after_round(0);
        uint64_t open = all_lanes();
        for (int round = 1; round < kWarmUpRounds; ++round) {
            open = solve_and_scan(open, context_.all, round);
            after_round(round);
        }
        store(sets);
        return open;
    }

    // Replaces the warm-up for labels with a classifier in `old`, which becomes their prior.
    void resume(std::span<ActiveSet* const> sets, const OldClassifiers& old);

    // Round `round`, from kWarmUpRounds on, of up to 64 labels, whose sets may gain rows from `first_row` on;
    // returns as above.
    uint64_t advance(std::span<ActiveSet* const> sets, int round, size_t first_row = 0) {
        load(sets);
        const auto scope = std::span(context_.all).subspan(first_row);
        const uint64_t open = solve_and_scan(all_lanes(), scope, round);
        store(sets);
        return open;
    }

    // The weights of a solved classifier, ascending by feature.
    std::vector<Entry> weights(const ActiveSet& set);

  private:
    uint64_t all_lanes() const { return ~uint64_t{0} >> (kMaxLanes - n_lanes_); }
    void load(std::span<ActiveSet* const> sets);
    void store(std::span<ActiveSet* const> sets) const;
    std::vector<uint32_t> warm_up_rows();
    uint64_t solve_and_scan(uint64_t open, std::span<const uint32_t> scope, int round);
    uint64_t solve(uint64_t open, int round);
    uint64_t scan(uint64_t open, std::span<const uint32_t> scope, int round);
    uint64_t scan_and_confirm(uint64_t open, std::span<const uint32_t> scope, int round);
    uint64_t search(uint64_t open, int round);
    uint64_t add_found(uint64_t searched);
    bool add_violations_of(ActiveSet& set, std::span<const uint32_t> rows, const std::vector<Entry>& weights);
    void load_prior(const ActiveSet& set);
    bool confirm(ActiveSet& set, const std::vector<Entry>& weights);
    void start(ActiveSet& set);
    void add_violations(ActiveSet& set, std::span<const uint32_t> rows);
    void descend(ActiveSet& set, int round, int max_passes);
    float pass(ActiveSet& set, float usual_diagonal);
    void drop_zeros(ActiveSet& set) const;
    void sum_rows(const ActiveSet& set);
    void extract(const ActiveSet& set, std::vector<Entry>& weights);
    void build_panel(const float (&scale)[kMaxLanes]);
    float diagonal(uint32_t position, uint32_t row) const;
    float violation(uint32_t row) const;

    const OneVsRestContext& context_;
    // The active sets of the group. While they are solved they grow to a multiple of their final size: only
    // these buffers have that capacity.
    ActiveSet lanes_[kMaxLanes];
    size_t n_lanes_ = 0;
    Panel w_;                                // one classifier; 0 between uses
    std::vector<uint32_t> order_;            // of the rows of its active set
    std::vector<uint32_t> feature_;          // of the weights moved out of w_
    std::vector<float> value_;               // these weights
    std::vector<Entry> weights_[kMaxLanes];  // per classifier of the group, ascending by feature
    std::vector<uint32_t> panel_row_;        // feature -> row of the panel; 0 between uses
    std::vector<uint32_t> panel_features_;   // features with a row of their own
    AlignedVector<int16_t> panel_;           // row 0 is zero
    std::vector<uint64_t> in_set_;       // for each row, bit l: in the active set of lane l; 0 between uses
    std::vector<uint64_t> above_;        // rows of a scan with a margin above the threshold
    std::unique_ptr<RowSearch> search_;  // null without an index
    std::vector<uint32_t> found_[kMaxLanes];  // rows found by the last search
};

}  // namespace bonsai

// One-vs-rest training as units of work, and the solver of a unit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/slice.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"
#include "model/pack.hpp"
#include "one_vs_rest/active_set.hpp"
#include "one_vs_rest/label_rows.hpp"
#include "one_vs_rest/quantised_rows.hpp"
#include "one_vs_rest/row_index.hpp"

namespace bonsai {

// Groups of 64 labels in a window. Labels that need further rounds are regrouped within their window, so that
// many labels share a scan. All active sets of a window are in memory at the same time.
inline constexpr size_t kWindowGroups = 64;

// Whether active sets can solve such problems: the squared hinge, the dual solver, sparse rows, and a bias
// fixed at -1 or below.
bool can_use_active_sets(bool dense, const LinearParams& params);

// Training as units of work: panels of frequent labels, then windows of the other labels. Labels are given by
// position.
class Plan {
  public:
    // Labels of more than this share of the rows are frequent.
    Plan(const LabelRows& rows, double frequent_share);

    // Panels are few and take long: they come first, so that windows keep the other threads busy.
    size_t n_units() const { return n_panels() + n_windows(); }
    size_t n_panels() const { return (frequent_.size() + kMaxLanes - 1) / kMaxLanes; }
    size_t n_windows() const { return (rare_.size() + kWindow - 1) / kWindow; }

    const LabelRows& rows() const { return rows_; }
    // All frequent labels, in descending order of frequency.
    std::span<const uint32_t> frequent() const { return frequent_; }
    std::span<const uint32_t> panel(size_t i) const { return part(frequent_, i, kMaxLanes); }
    std::span<const uint32_t> window(size_t i) const { return part(rare_, i, kWindow); }
    // The labels of a unit.
    std::span<const uint32_t> unit(size_t i) const {
        return i < n_panels() ? panel(i) : window(i - n_panels());
    }

    // The work of a unit in the measure of the progress. Half of a label's time grows with its positives
    // (measured on EURLEX57K, Delicious and YSO); a panel of frequent labels takes as long as one or two
    // groups.
    uint64_t cost(uint32_t position) const { return mean_positives_ + n_positives(position); }
    uint64_t panel_cost(size_t i) const { return 2 * mean_positives_ * panel(i).size(); }
    uint64_t unit_cost(size_t i) const;

  private:
    static constexpr size_t kWindow = kWindowGroups * kMaxLanes;

    static std::span<const uint32_t> part(std::span<const uint32_t> all, size_t i, size_t size) {
        return all.subspan(i * size, std::min(size, all.size() - i * size));
    }
    size_t n_positives(uint32_t position) const { return rows_.of(position).size(); }

    const LabelRows& rows_;
    std::vector<uint32_t> rare_, frequent_;
    uint64_t mean_positives_ = 0;  // of the rare labels
};

// The rows in the form the solvers need, and the problem of the frequent labels.
struct PreparedRows {
    // `indexed`: an index over the rows finds margin violations, if it can hold the rows.
    PreparedRows(const Plan& plan, bool indexed, uint64_t key, Pool& pool);

    Slice slice;
    QuantisedRows rows;
    std::optional<RowIndex> index;
    Problem frequent_problem;
};

// The classifiers of the labels in a forest, with the feature numbers of the slice of all rows.
OldClassifiers old_classifiers(const Forest& forest, size_t n_rows, const LabelRows& rows,
                               const Slice& slice);

// Solves the units of a plan. Its buffers belong to a pool.
class UnitSolver {
  public:
    // If `old` is null, all labels are trained from scratch. `costs`: see OneVsRestContext. `progress` counts
    // solved work by Plan::unit_cost.
    UnitSolver(const Plan& plan, const PreparedRows& prepared, std::span<const float> costs, uint64_t key,
               const LinearParams& params, const OldClassifiers* old, const Kernels& kernels, Pool& pool,
               Control& progress);
    UnitSolver(const UnitSolver&) = delete;
    UnitSolver& operator=(const UnitSolver&) = delete;

    // The classifiers of the unit's labels; features are columns of the data.
    std::vector<QuantisedClassifier> solve(size_t unit) {
        return unit < plan_.n_panels() ? solve_frequent(unit) : solve_window(unit - plan_.n_panels());
    }

  private:
    struct Window {
        std::vector<ActiveSet> sets;
        std::vector<ProgressShare> shares;
        std::vector<QuantisedClassifier> found;

        size_t index(const ActiveSet* set) const { return static_cast<size_t>(set - sets.data()); }
    };

    std::vector<QuantisedClassifier> solve_frequent(size_t panel) const;
    std::vector<QuantisedClassifier> solve_window(size_t number);
    void solve_rounds(Window& window, std::vector<ActiveSet*> open, bool resumed);
    uint64_t solve_group(Window& window, std::span<ActiveSet* const> group, int round, bool resumed,
                         ActiveSetSolver& solver) const;
    QuantisedClassifier finish(ActiveSet& set, ActiveSetSolver& solver) const;
    QuantisedClassifier quantised(std::span<const Entry> weights) const;

    const Plan& plan_;
    const PreparedRows& prepared_;
    const OldClassifiers* const old_;
    const OneVsRestContext context_;
    Pool& pool_;
    Control& progress_;
    std::vector<std::optional<ActiveSetSolver>> solvers_;  // one for each worker, made when it is needed
};

}  // namespace bonsai

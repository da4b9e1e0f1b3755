#include "one_vs_rest/train_one_vs_rest.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/random.hpp"
#include "data/slice.hpp"
#include "linear/solve.hpp"
#include "model/pack.hpp"
#include "one_vs_rest/active_set.hpp"
#include "one_vs_rest/quantised_rows.hpp"
#include "tree/train_trees.hpp"

namespace bonsai {
namespace {

// Groups of 64 labels in a window. Labels that need further rounds are regrouped within their window, so that
// scans are shared by many; and a window's active sets are in memory at the same time.
constexpr size_t kWindowGroups = 64;
// The preparation of the rows takes about 1 / kPreparation of the other work.
constexpr uint64_t kPreparation = 20;

// The part of a label's work that is done after a round, as measured: the third round, the first with all
// passes, takes most of the time, and half of the labels need one more, and so on.
double part_solved(int round) {
    constexpr double warm_up[] = {0.05, 0.15, 0.55};
    return round < kWarmUpRounds ? warm_up[round] : 1 - 0.45 * std::pow(0.5, round - kWarmUpRounds + 1);
}

struct Classifier {
    std::vector<Entry> weights;  // pruned, ascending by feature
    float bias = 0;
    int32_t n_iter = 0;
    bool converged = false;
};

// Training as units of work: panels of frequent labels, then windows of the others. Labels are given by their
// positions.
class Plan {
  public:
    Plan(const Dataset& data, std::span<const uint32_t> labels, double frequent_share)
        : data_(data), labels_(labels) {
        const double most = frequent_share * static_cast<double>(data.n_rows());
        size_t sum = 0;
        for (uint32_t p = 0; p < labels.size(); ++p) {
            const bool is_frequent = static_cast<double>(n_positives(p)) > most;
            (is_frequent ? frequent_ : rare_).push_back(p);
            if (!is_frequent) sum += n_positives(p);
        }
        std::stable_sort(frequent_.begin(), frequent_.end(),
                         [&](uint32_t a, uint32_t b) { return n_positives(a) > n_positives(b); });
        mean_positives_ = std::max<uint64_t>(1, sum / std::max<size_t>(1, rare_.size()));
    }

    // Panels are few and take long: they are first, so that windows keep the other threads busy.
    size_t n_units() const { return n_panels() + n_windows(); }
    size_t n_panels() const { return (frequent_.size() + kMaxLanes - 1) / kMaxLanes; }
    size_t n_windows() const { return (rare_.size() + kWindow - 1) / kWindow; }

    // All frequent labels, in descending order of frequency; labels of a panel or a window.
    std::span<const uint32_t> frequent() const { return frequent_; }
    std::span<const uint32_t> panel(size_t i) const { return part(frequent_, i, kMaxLanes); }
    std::span<const uint32_t> window(size_t i) const { return part(rare_, i, kWindow); }

    // Work in the units of the progress. Half of a label's time grows with its positives, as measured on
    // EURLEX57K, Delicious and YSO; a panel of frequent labels takes the time of a group or two.
    uint64_t cost(uint32_t position) const { return mean_positives_ + n_positives(position); }
    uint64_t panel_cost(size_t i) const { return 2 * mean_positives_ * panel(i).size(); }
    uint64_t cost() const {
        uint64_t sum = 0;
        for (size_t i = 0; i < n_panels(); ++i) sum += panel_cost(i);
        for (const uint32_t position : rare_) sum += cost(position);
        return sum;
    }

  private:
    static constexpr size_t kWindow = kWindowGroups * kMaxLanes;

    static std::span<const uint32_t> part(std::span<const uint32_t> all, size_t i, size_t size) {
        return all.subspan(i * size, std::min(size, all.size() - i * size));
    }
    size_t n_positives(uint32_t position) const { return data_.rows_of(labels_[position]).size(); }

    const Dataset& data_;
    std::span<const uint32_t> labels_;
    std::vector<uint32_t> rare_, frequent_;
    uint64_t mean_positives_ = 0;  // of the rare labels
};

// The classifiers of a unit are a function of the data, the parameters and the unit's number alone: units can
// be solved in any order, and anywhere.
class UnitSolver {
  public:
    UnitSolver(const Plan& plan, const OneVsRestContext& context, const Slice& slice, Pool& pool)
        : plan_(plan), context_(context), pool_(pool) {
        if (plan.n_panels() > 0) build_frequent_problem(slice);
        for (unsigned worker = 0; worker < pool.threads(); ++worker) solvers_.emplace_back(context_);
    }

    // Calls done(position, Classifier) for each label of the unit, by several threads.
    template <class Fn>
    void solve(size_t unit, Fn&& done) {
        if (unit < plan_.n_panels())
            solve_frequent(unit, done);
        else
            solve_window(unit - plan_.n_panels(), done);
    }

  private:
    // Nearly every row matters to a frequent label: all rows by the panel solver, and a learnt bias.
    void build_frequent_problem(const Slice& slice) {
        const auto frequent = plan_.frequent();
        std::vector<uint32_t> class_of_label(context_.data.n_labels(), kNoClass);
        for (uint32_t c = 0; c < frequent.size(); ++c) class_of_label[context_.labels[frequent[c]]] = c;
        frequent_problem_ =
            build_problem(context_.data, context_.all, slice, class_of_label, frequent.size(), context_.key);
    }

    // Labels of similar frequency share a panel, and the mean of their costs.
    template <class Fn>
    void solve_frequent(size_t panel, Fn&& done) {
        const auto positions = plan_.panel(panel);
        const size_t first = panel * kMaxLanes, n = positions.size();
        LinearParams params = context_.params;
        params.learn_bias = true;
        if (!context_.costs.empty()) {
            double sum = 0;
            for (const uint32_t position : positions) sum += context_.costs[position];
            params.c *= sum / static_cast<double>(n);
        }
        ProgressShare progress(pool_.control(), plan_.panel_cost(panel));
        const Solution solution =
            solve_panel(frequent_problem_, first, n, params, context_.kernels, context_.control, &progress);
        std::vector<Classifier> found(n);
        for (const Weight& w : solution.weights) found[w.cls - first].weights.push_back({w.feature, w.value});
        for (size_t c = 0; c < n; ++c) {
            found[c].bias = solution.bias[c];
            found[c].n_iter = solution.n_iter[c];
            found[c].converged = solution.converged[c] != 0;
            done(positions[c], std::move(found[c]));
        }
        progress.finish();
    }

    struct Window {
        std::vector<ActiveSet> sets;
        std::vector<ProgressShare> shares;

        ProgressShare& share(const ActiveSet* set) { return shares[static_cast<size_t>(set - sets.data())]; }
    };

    // Rounds of groups of 64, until all labels of the window are solved. In the warm-up, a group is 64
    // consecutive labels; later, 64 of the labels that are not solved yet.
    template <class Fn>
    void solve_window(size_t number, Fn&& done) {
        const auto positions = plan_.window(number);
        Window window{.sets = std::vector<ActiveSet>(positions.size()), .shares = {}};
        std::vector<ActiveSet*> open;
        for (size_t s = 0; s < positions.size(); ++s) {
            window.sets[s].position = positions[s];
            window.shares.emplace_back(pool_.control(), plan_.cost(positions[s]));
            open.push_back(&window.sets[s]);
        }
        for (int round = kWarmUpRounds - 1; round < kMaxRounds && !open.empty(); ++round) {
            std::vector<uint64_t> unsolved((open.size() + kMaxLanes - 1) / kMaxLanes);
            pool_.run(unsolved.size(), [&](size_t g, unsigned worker) {
                const size_t begin = g * kMaxLanes, size = std::min(kMaxLanes, open.size() - begin);
                unsolved[g] =
                    solve_group(window, std::span(open).subspan(begin, size), round, solvers_[worker], done);
            });
            size_t n_open = 0;
            for (size_t o = 0; o < open.size(); ++o)
                if (unsolved[o / kMaxLanes] >> (o % kMaxLanes) & 1) open[n_open++] = open[o];
            open.resize(n_open);
        }
    }

    // Returns bit l: group[l] is not solved yet. The others are done, and all are after the last round.
    template <class Fn>
    uint64_t solve_group(Window& window, std::span<ActiveSet* const> group, int round,
                         ActiveSetSolver& solver, Fn&& done) const {
        const auto report = [&](int after_round) {
            for (const ActiveSet* set : group) window.share(set).advance_to(part_solved(after_round));
        };
        const uint64_t unsolved =
            round < kWarmUpRounds ? solver.warm_up(group, report) : solver.advance(group, round);
        report(round);
        for (size_t l = 0; l < group.size(); ++l) {
            const bool solved = !(unsolved >> l & 1);
            if (!solved && round + 1 < kMaxRounds) continue;
            group[l]->converged &= solved;
            done(group[l]->position, finish(*group[l], solver));
            window.share(group[l]).finish();
        }
        return unsolved;
    }

    // The active set is freed.
    Classifier finish(ActiveSet& set, ActiveSetSolver& solver) const {
        Classifier found{.weights = solver.weights(set),
                         .bias = context_.params.fixed_bias,
                         .n_iter = set.n_iter,
                         .converged = set.converged};
        std::erase_if(found.weights,
                      [&](const Entry& w) { return !(std::abs(w.value) > context_.params.prune); });
        found.weights.shrink_to_fit();
        set.row = {};
        set.alpha = {};
        return found;
    }

    const Plan& plan_;
    const OneVsRestContext& context_;
    Pool& pool_;
    Problem frequent_problem_;
    std::vector<ActiveSetSolver> solvers_;  // one for each worker
};

// Packs a block of 128 classifiers as soon as the last of them is there.
class BlockPacker {
  public:
    BlockPacker(size_t n_labels, std::span<const uint32_t> features)
        : features_(features),
          classifiers_(n_labels),
          blocks_((n_labels + kBlockChildren - 1) / kBlockChildren),
          missing_(std::make_unique<std::atomic<size_t>[]>(blocks_.size())) {
        for (size_t b = 0; b < blocks_.size(); ++b) missing_[b] = size_of(b);
    }

    void add(size_t position, Classifier classifier) {
        classifiers_[position] = std::move(classifier);
        const size_t block = position / kBlockChildren;
        if (--missing_[block] == 0) pack_block(block);
    }

    std::vector<PackedNode>& blocks() { return blocks_; }

  private:
    size_t size_of(size_t block) const {
        return std::min(kBlockChildren, classifiers_.size() - block * kBlockChildren);
    }

    void pack_block(size_t block) {
        const size_t n = size_of(block);
        std::vector<Solution> panels((n + kMaxLanes - 1) / kMaxLanes);
        for (size_t c = 0; c < n; ++c) {
            Classifier found = std::move(classifiers_[block * kBlockChildren + c]);
            Solution& panel = panels[c / kMaxLanes];
            for (const Entry& w : found.weights)
                panel.weights.push_back({w.feature, static_cast<uint32_t>(c), w.value});
            panel.bias.push_back(found.bias);
            panel.n_iter.push_back(found.n_iter);
            panel.converged.push_back(found.converged);
        }
        blocks_[block] = pack(panels, features_, n);
    }

    std::span<const uint32_t> features_;
    std::vector<Classifier> classifiers_;
    std::vector<PackedNode> blocks_;
    std::unique_ptr<std::atomic<size_t>[]> missing_;  // classifiers of each block
};

bool can_use_active_sets(const Dataset& data, const LinearParams& params) {
    return params.loss == Loss::squared_hinge && params.solver == Solver::dual && !params.learn_bias &&
           params.fixed_bias <= -1 && !data.x().is_dense();
}

OwnedForest assemble(std::span<const uint32_t> labels, std::vector<PackedNode>& blocks,
                     const Control& control, TrainReport& report) {
    OwnedForest forest;
    forest.tree_ptr = {0, 1};
    forest.child_ptr = {0, static_cast<int64_t>(labels.size())};
    forest.children.assign(labels.begin(), labels.end());
    forest.is_leaf = {1};
    forest.bucket_ptr = forest.record_ptr = {0};
    size_t n_bytes = 0;
    for (const PackedNode& block : blocks) n_bytes += block.part.records.size();
    forest.records.reserve(n_bytes);
    for (PackedNode& block : blocks) {
        control.check();
        report.n_classifiers += block.part.bias.size();
        report.n_unconverged += block.n_unconverged;
        report.max_iter = std::max(report.max_iter, block.max_iter);
        append(forest, block.part);
        block = {};
    }
    forest.block_ptr = {0, static_cast<int64_t>(forest.shift.size())};
    return forest;
}

}  // namespace

OwnedForest train_one_vs_rest(const Dataset& data, std::span<const uint32_t> labels,
                              std::span<const float> costs, double frequent_share, uint64_t seed,
                              const LinearParams& params, const Kernels& kernels, Pool& pool,
                              TrainReport& report) {
    if (!can_use_active_sets(data, params)) {
        if (!costs.empty())
            throw std::invalid_argument(
                "costs of labels need sparse rows, the squared hinge, the dual solver and a bias fixed at -1 "
                "or below");
        const Tree tree{.child_ptr = {0, static_cast<int64_t>(labels.size())},
                        .children = {labels.begin(), labels.end()},
                        .is_leaf = {1}};
        const TreeView view = tree.view();
        return train_trees(data, {&view, 1}, seed, params, false, kernels, pool, report);
    }
    const Plan plan(data, labels, frequent_share);
    pool.control().done = 0;
    pool.control().total = plan.cost() + plan.cost() / kPreparation;
    std::vector<uint32_t> all(data.n_rows());
    std::iota(all.begin(), all.end(), 0u);
    Slice::Scratch scratch;
    const Slice slice(data.x(), all, data.factors(), scratch, pool.control());
    const QuantisedRows rows(slice.rows(), pool);
    const OneVsRestContext context(data, rows, labels, costs, derive(seed, kForSolver), params, kernels,
                                   pool.control());
    UnitSolver solver(plan, context, slice, pool);
    pool.control().done += plan.cost() / kPreparation;
    BlockPacker packer(labels.size(), slice.features());
    pool.run(plan.n_units(), [&](size_t unit, unsigned) {
        solver.solve(unit,
                     [&](size_t position, Classifier found) { packer.add(position, std::move(found)); });
    });
    return assemble(labels, packer.blocks(), pool.control(), report);
}

}  // namespace bonsai

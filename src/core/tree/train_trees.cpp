#include "tree/train_trees.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "data/slice.hpp"
#include "linear/solve.hpp"
#include "model/pack.hpp"
#include "one_vs_rest/label_units.hpp"
#include "one_vs_rest/solve_leaf.hpp"

namespace bonsai {
namespace {

// One node of one tree.
struct Job {
    size_t tree = 0;
    size_t node = 0;
    uint64_t key = 0;
    std::vector<uint32_t> labels = {};    // all labels below the node, ascending
    std::vector<uint32_t> class_of = {};  // for each label, the child above it
    size_t n_classes = 0;
    uint64_t cost = 0;  // roughly rows × classes; 0 without classifiers
    size_t first_unit = 0;
    size_t n_units = 0;  // 0 without classifiers
};

// A range of a job's classes.
struct Unit {
    size_t job;
    size_t first;
    size_t n;
};

// A root with more classes than this, as in one-vs-rest, is divided into units of this many classes, whole
// blocks of the model; its rows are prepared once for all units.
constexpr size_t kClassesPerUnit = 4 * kBlockChildren;
constexpr size_t kLabelsBetweenPolls = 4096;
// From this many threads on, threads would wait for a root's panels. Panels are then half as wide: that takes
// a sixth more time in total, but little more than half the time per panel.
constexpr unsigned kManyThreads = 12;

// Buffers of one worker, as large as the label, row and feature spaces.
struct Scratch {
    std::vector<uint32_t> class_of_label;  // kNoClass between jobs
    std::vector<uint8_t> row_seen;         // 0 between jobs
    Slice::Scratch slice;
};

// The place of a label or node: its parent, and its position among the parent's children.
struct Place {
    uint32_t node;
    uint32_t child;
};

// Fills in the labels of all jobs of a tree. Labels are passed from their leaf up to the root in ascending
// order, so that every node gets them in ascending order.
void collect_labels(const TreeView& tree, size_t n_labels, std::span<Job> of_tree, const Control& control) {
    constexpr uint32_t none = ~uint32_t{0};
    std::vector<Place> of_label(n_labels, {none, 0}), of_node(tree.n_nodes());
    std::vector<size_t> n_below(tree.n_nodes(), 0);
    for (size_t v = tree.n_nodes(); v-- > 0;) {  // children come after their parents
        const auto children = tree.children_of(v);
        for (uint32_t c = 0; c < children.size(); ++c) {
            const auto child = static_cast<size_t>(children[c]);
            (tree.is_leaf[v] ? of_label : of_node)[child] = {static_cast<uint32_t>(v), c};
            n_below[v] += tree.is_leaf[v] ? 1 : n_below[child];
        }
        of_tree[v].labels.reserve(n_below[v]);
        of_tree[v].class_of.reserve(n_below[v]);
    }
    for (uint32_t label = 0; label < n_labels; ++label) {
        if (label % kLabelsBetweenPolls == 0) control.check();
        Place at = of_label[label];
        if (at.node == none) continue;
        while (true) {
            of_tree[at.node].labels.push_back(label);
            of_tree[at.node].class_of.push_back(at.child);
            if (at.node == 0) break;
            at = of_node[at.node];
        }
    }
}

std::vector<Job> list_jobs(const Dataset& data, std::span<const TreeView> trees, uint64_t seed, Pool& pool) {
    std::vector<std::vector<Job>> of_trees(trees.size());
    pool.run(trees.size(), [&](size_t t, unsigned) {
        const auto keys = node_keys(trees[t], root_key(seed, t));
        std::vector<Job>& of_tree = of_trees[t];
        of_tree.resize(trees[t].n_nodes());
        collect_labels(trees[t], data.n_labels(), of_tree, pool.control());
        for (size_t v = 0; v < of_tree.size(); ++v) {
            Job& job = of_tree[v];
            job.tree = t;
            job.node = v;
            job.key = keys[v];
            job.n_classes = trees[t].children_of(v).size();
        }
    });
    std::vector<Job> jobs;
    size_t n_jobs = 0;
    for (const std::vector<Job>& of_tree : of_trees) n_jobs += of_tree.size();
    jobs.reserve(n_jobs);
    for (std::vector<Job>& of_tree : of_trees)
        std::move(of_tree.begin(), of_tree.end(), std::back_inserter(jobs));
    constexpr size_t step = 256;
    pool.run((jobs.size() + step - 1) / step, [&](size_t task, unsigned) {
        for (size_t j = task * step; j < std::min(jobs.size(), (task + 1) * step); ++j)
            for (const uint32_t label : jobs[j].labels)
                jobs[j].cost += data.rows_of(label).size() * jobs[j].n_classes;
    });
    return jobs;
}

std::vector<uint32_t> rows_of_node(const Dataset& data, const Job& job, Scratch& scratch) {
    std::vector<uint32_t> rows;
    for (const uint32_t label : job.labels)
        for (const int32_t row : data.rows_of(label)) {
            if (scratch.row_seen[row]) continue;
            scratch.row_seen[row] = 1;
            rows.push_back(static_cast<uint32_t>(row));
        }
    std::sort(rows.begin(), rows.end());
    for (const uint32_t row : rows) scratch.row_seen[row] = 0;
    return rows;
}

Problem make_problem(const Dataset& data, const Job& job, std::span<const uint32_t> rows, const Slice& slice,
                     Scratch& scratch) {
    for (size_t i = 0; i < job.labels.size(); ++i) scratch.class_of_label[job.labels[i]] = job.class_of[i];
    Problem problem = build_problem(data, rows, slice, scratch.class_of_label, job.n_classes, job.key);
    for (const uint32_t label : job.labels) scratch.class_of_label[label] = kNoClass;
    return problem;
}

// The problems of the roots. They share the slice of all rows: every row reaches the root, even a row without
// labels. A problem is built for the first unit that needs it and freed after the last one; the slice is
// freed after the last problem.
class RootProblems {
  public:
    // `n_units`: for the root of each tree, the number of units that need it.
    RootProblems(const Dataset& data, bool separate_singletons, std::span<const size_t> n_units,
                 Scratch& scratch, Pool& pool)
        : data_(data), roots_(n_units.size()) {
        for (size_t t = 0; t < n_units.size(); ++t) n_left_ += roots_[t].n_left = n_units[t];
        if (n_left_ == 0) return;
        rows_.resize(data_.n_rows());
        std::iota(rows_.begin(), rows_.end(), 0u);
        slice_.emplace(data_.x(), rows_, data_.factors(), scratch.slice, pool, separate_singletons);
    }

    template <class Fn>
    void use(const Job& job, Scratch& scratch, Fn&& fn) {
        Root& root = roots_[job.tree];
        {
            const std::lock_guard lock(root.mutex);
            if (!root.problem) root.problem.emplace(make_problem(data_, job, rows_, *slice_, scratch));
        }
        fn(*root.problem, *slice_);
        {
            const std::lock_guard lock(root.mutex);
            if (--root.n_left == 0) root.problem.reset();
        }
        if (--n_left_ == 0) slice_.reset();
    }

  private:
    struct Root {
        std::mutex mutex;
        std::optional<Problem> problem;
        size_t n_left = 0;
    };

    const Dataset& data_;
    std::vector<uint32_t> rows_;
    std::optional<Slice> slice_;
    std::vector<Root> roots_;  // per tree
    std::atomic<size_t> n_left_ = 0;
};

class TreeClassifiers final : public ClassifierStage {
  public:
    TreeClassifiers(const Dataset& data, std::shared_ptr<const std::vector<Tree>> trees, uint64_t seed,
                    const LinearParams& params, const Kernels& kernels, Pool& pool)
        : data_(data), owned_(std::move(trees)), params_(params), kernels_(kernels) {
        for (const Tree& tree : *owned_) trees_.push_back(tree.view());
        jobs_ = list_jobs(data, trees_, seed, pool);
        std::vector<uint64_t> costs;
        for (size_t j = 0; j < jobs_.size(); ++j) {
            Job& job = jobs_[j];
            // Measured on leaves of thousands of labels: beyond so many, further ones cost less.
            if (is_large(job)) job.cost = job.cost / job.n_classes * std::min(job.n_classes, 2 * kLargeLeaf);
            job.first_unit = units_.size();
            const size_t step = job.node == 0 ? kClassesPerUnit : job.n_classes;
            for (size_t first = 0; first < job.n_classes; first += step)
                units_.push_back({j, first, std::min(step, job.n_classes - first)});
            job.n_units = units_.size() - job.first_unit;
            for (size_t u = job.first_unit; u < units_.size(); ++u)
                costs.push_back(share_of(job, units_[u].first, units_[u].n));
        }
        set_costs(std::move(costs));
        results_.resize(units_.size());
        sizes_.resize(units_.size());
    }

    bool leave_weights() override { return leaves_weights_ = true; }

    OwnedForest finish(Pool& pool, TrainReport& report, const Fetch& fetch) override {
        require_complete();
        if (leaves_weights_ && !fetch) throw std::invalid_argument("the weights are elsewhere; say where");
        OwnedForest forest;
        forest.tree_ptr = forest.child_ptr = forest.block_ptr = {0};
        for (const TreeView& tree : trees_) {
            const int64_t shift = forest.child_ptr.back() - tree.child_ptr[0];
            for (size_t v = 0; v < tree.n_nodes(); ++v)
                forest.child_ptr.push_back(shift + tree.child_ptr[v + 1]);
            forest.children.insert(forest.children.end(), tree.children.begin(), tree.children.end());
            forest.is_leaf.insert(forest.is_leaf.end(), tree.is_leaf.begin(), tree.is_leaf.end());
            forest.tree_ptr.push_back(static_cast<int64_t>(forest.is_leaf.size()));
        }
        std::vector<PartSizes> parts;  // in the order of the units
        for (const Job& job : jobs_) {
            int64_t n_blocks = forest.block_ptr.back();
            for (size_t u = job.first_unit; u < job.first_unit + job.n_units; ++u) {
                parts.push_back(sizes_[u]);
                add_numbers(results_[u], sizes_[u].classifiers, report);
                n_blocks += static_cast<int64_t>(parts.back().blocks);
            }
            forest.block_ptr.push_back(n_blocks);
        }
        const auto take = [&](size_t unit) {
            return fetch ? read_result(unit, fetch(unit)).part : std::exchange(results_[unit].part, {});
        };
        append(forest, parts, take, pool);
        return forest;
    }

  protected:
    void prepare(std::span<const uint32_t> units, Pool& pool) override {
        scratch_.resize(pool.threads());
        for (auto& s : scratch_) {
            s.class_of_label.assign(data_.n_labels(), kNoClass);
            s.row_seen.assign(data_.n_rows(), 0);
        }
        std::vector<size_t> n_units(trees_.size(), 0);  // per root
        for (const uint32_t unit : units) {
            const Job& job = jobs_[units_[unit].job];
            if (job.node == 0) ++n_units[job.tree];
        }
        roots_.emplace(data_, eliminates_singletons(params_), n_units, scratch_[0], pool);
    }
    void release() override {
        scratch_.clear();
        roots_.reset();
    }

    Bytes solve_unit(size_t number, Pool& pool, unsigned worker, Wanted wanted) override {
        const Unit& unit = units_[number];
        const Job& job = jobs_[unit.job];
        Scratch& scratch = scratch_[worker];
        PackedNode node;
        const auto solve_on = [&](const Problem& problem, const Slice& slice) {
            node = solve(job, unit, problem, slice, pool);
        };
        if (job.node == 0) {
            roots_->use(job, scratch, solve_on);
        } else {
            const auto rows = rows_of_node(data_, job, scratch);
            if (is_large(job)) {
                node = solve_large(job, rows, pool);
            } else {
                const Slice slice(data_.x(), rows, data_.factors(), scratch.slice, pool,
                                  eliminates_singletons(params_));
                solve_on(make_problem(data_, job, rows, slice, scratch), slice);
            }
        }
        ByteWriter out;
        if (wanted.as_bytes) write(node, out);
        if (wanted.keep) keep(number, std::move(node));
        return out.take();
    }

    void add_unit(size_t unit, std::span<const uint8_t> result) override {
        keep(unit, read_result(unit, result));
    }

  private:
    PackedNode read_result(size_t unit, std::span<const uint8_t> result) const {
        ByteReader in(result);
        PackedNode node = read_packed_node(in, units_[unit].n);
        in.end();
        return node;
    }
    void keep(size_t unit, PackedNode&& node) {
        sizes_[unit] = sizes_of(node.part);
        if (leaves_weights_) node.part = {};
        results_[unit] = std::move(node);
        Job& job = jobs_[units_[unit].job];
        if (job.n_units == 1 && job.node != 0) job.labels = job.class_of = {};
    }

    // The cost of a range of classes.
    static uint64_t share_of(const Job& job, size_t first, size_t n) {
        const auto up_to = [&](uint64_t c) {  // cost · c / n_classes, without overflow
            return job.cost / job.n_classes * c + job.cost % job.n_classes * c / job.n_classes;
        };
        return up_to(first + n) - up_to(first);
    }

    bool is_large(const Job& job) const {
        return job.node != 0 && trees_[job.tree].is_leaf[job.node] &&
               is_large_leaf(job.n_classes, data_.x().is_dense(), params_);
    }

    PackedNode solve_large(const Job& job, std::span<const uint32_t> rows, Pool& pool) const {
        const auto children = trees_[job.tree].children_of(job.node);
        const std::vector<uint32_t> labels(children.begin(), children.end());
        ProgressShare progress(pool.control(), job.cost);
        PackedNode node = solve_leaf(data_, labels, rows, job.key, params_, kernels_, pool, progress);
        progress.finish();
        return node;
    }

    PackedNode solve(const Job& job, const Unit& unit, const Problem& problem, const Slice& slice,
                     Pool& pool) const {
        const size_t lanes = job.node == 0 && pool.threads() >= kManyThreads ? kMaxLanes / 2 : kMaxLanes;
        std::vector<Solution> panels((unit.n + lanes - 1) / lanes);
        pool.run(panels.size(), [&](size_t p, unsigned) {
            const size_t first = unit.first + p * lanes, n = std::min(lanes, unit.n - p * lanes);
            ProgressShare progress(pool.control(), share_of(job, first, n));
            panels[p] = solve_panel(problem, first, n, params_, kernels_, pool.control(), &progress);
            for (Weight& w : panels[p].weights) w.cls -= static_cast<uint32_t>(unit.first);
            progress.finish();
        });
        return pack(panels, lanes, data_.features_of(slice.features()), unit.n);
    }

    const Dataset& data_;
    const std::shared_ptr<const std::vector<Tree>> owned_;
    std::vector<TreeView> trees_;
    const LinearParams params_;
    const Kernels& kernels_;
    std::vector<Job> jobs_;
    std::vector<Unit> units_;
    std::vector<PackedNode> results_;  // per unit; without their parts if these are left elsewhere
    std::vector<PartSizes> sizes_;     // per unit
    bool leaves_weights_ = false;
    std::vector<Scratch> scratch_;  // per worker
    std::optional<RootProblems> roots_;
};

}  // namespace

std::unique_ptr<ClassifierStage> classifiers_of_trees(const Dataset& data,
                                                      std::shared_ptr<const std::vector<Tree>> trees,
                                                      uint64_t seed, const LinearParams& params,
                                                      const Kernels& kernels, Pool& pool) {
    return std::make_unique<TreeClassifiers>(data, std::move(trees), seed, params, kernels, pool);
}

std::unique_ptr<ClassifierStage> classifiers_of_labels(const Dataset& data, std::span<const uint32_t> labels,
                                                       std::span<const float> costs, double frequent_share,
                                                       uint64_t seed, const LinearParams& params,
                                                       const Kernels& kernels, Pool& pool, OldForest old) {
    if (can_use_active_sets(data.x().is_dense(), params))
        return one_vs_rest_classifiers(data, labels, costs, frequent_share, seed, params, kernels,
                                       std::move(old));
    if (!costs.empty())
        throw std::invalid_argument(
            "costs of labels need sparse rows, the squared hinge, the dual solver and a bias fixed at -1 or "
            "below");
    auto one_leaf = std::make_shared<std::vector<Tree>>();
    one_leaf->push_back({.child_ptr = {0, static_cast<int64_t>(labels.size())},
                         .children = {labels.begin(), labels.end()},
                         .is_leaf = {1}});
    return classifiers_of_trees(data, std::move(one_leaf), seed, params, kernels, pool);
}

namespace {

// Solved classes of a unit of a root, before they are packed.
double unpacked_bytes(const ProblemSizes& sizes, double model_bytes) {
    const double share = std::min(1.0, kClassesPerUnit / std::max(1.0, sizes.n_present));
    return share * model_bytes / kPackedWeight * sizeof(Weight) * kGrowth;
}

}  // namespace

// Roots share a slice of all rows; each thread solves a panel of a root or of its own node.
double tree_classifier_bytes(const ProblemSizes& sizes, const TreeParams& tree, double n_trees,
                             const LinearParams& params, unsigned threads, double model_bytes, bool stored) {
    const ExpectedTree expected(sizes.n_present, tree);
    const auto n_levels = static_cast<double>(expected.n_nodes.size()), k = double(tree.kmeans.k);
    const bool one_level = n_levels == 1;
    const double jobs = 8 * kGrowth * sizes.n_present * n_trees * n_levels;
    const double scratch = threads * (4 * sizes.n_labels + sizes.n_rows + 4 * sizes.n_features);
    const double lanes = threads >= kManyThreads ? kMaxLanes / 2 : kMaxLanes;
    const double one = panel_bytes(sizes, std::min(lanes, one_level ? sizes.n_present : k), 1, params);
    double solving = root_problem_bytes(sizes, n_trees);
    if (one_level) {
        solving += threads * (one + unpacked_bytes(sizes, model_bytes / n_trees));
    } else {
        // The labels of a row are similar: of 5, 19 and 36 labels, 2.7, 8.9 and 7.3 nodes are found.
        const double nodes_of_row = std::pow(std::max(1.0, sizes.n_pairs / sizes.n_rows), 0.7);
        const double share = std::min(1.0, 2 * nodes_of_row / std::min(expected.n_nodes[1], sizes.n_present));
        const double classes = std::min(double{kMaxLanes}, n_levels > 2 ? k : expected.leaf_size);
        const double below = slice_bytes(sizes, share) + panel_bytes(sizes, classes, share, params);
        solving += one + (threads - 1) * std::max(one, below) + threads * std::min<double>(kMostKept, one);
    }
    // The heap keeps more memory than small nodes take; the nodes of a single level have their own pages.
    const double results = stored ? 0 : (one_level ? 1.1 : 1.3) * model_bytes;
    const double assembling = std::max(results, model_bytes) + std::min<double>(kAppendedBytes, model_bytes);
    return jobs + std::max({scratch + solving + results / 2, results + scratch, assembling});
}

double label_classifier_bytes(const ProblemSizes& sizes, const LinearParams& params, unsigned threads,
                              double model_bytes) {
    if (can_use_active_sets(sizes.dense, params))
        return one_vs_rest_bytes(sizes, params, threads, model_bytes);
    const double one = panel_bytes(sizes, std::min(double{kMaxLanes}, sizes.n_present), 1, params);
    const double solving =
        root_problem_bytes(sizes, 1) + threads * (one + unpacked_bytes(sizes, model_bytes));
    const double assembling = 1.2 * model_bytes + std::min<double>(kAppendedBytes, model_bytes);
    return std::max(solving + 0.65 * model_bytes, assembling);
}

}  // namespace bonsai

#include "tree/train_trees.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "data/slice.hpp"
#include "linear/solve.hpp"
#include "model/pack.hpp"

namespace bonsai {
namespace {

// One node of one tree.
struct Job {
    size_t tree = 0;
    size_t node = 0;
    uint64_t key = 0;
    std::vector<uint32_t> labels = {};    // all labels below the node, ascending
    std::vector<uint32_t> class_of = {};  // for each of them, the child that it is below
    size_t n_classes = 0;
    bool has_classifiers = true;
    uint64_t cost = 0;  // rows × classes, roughly; 0 without classifiers
};

// Buffers of one worker, of the size of the label, row and feature spaces.
struct Scratch {
    std::vector<uint32_t> class_of_label;  // kNoClass between jobs
    std::vector<uint8_t> row_seen;         // 0 between jobs
    Slice::Scratch slice;
};

// Fills in the labels of `job`; those of its node's children are known.
void collect_labels(const TreeView& tree, std::span<const Job> of_tree, Job& job) {
    const auto children = tree.children_of(job.node);
    std::vector<std::pair<uint32_t, uint32_t>> below;
    for (uint32_t c = 0; c < children.size(); ++c) {
        const auto child = static_cast<uint32_t>(children[c]);
        if (tree.is_leaf[job.node])
            below.emplace_back(child, c);
        else
            for (const uint32_t label : of_tree[child].labels) below.emplace_back(label, c);
    }
    std::sort(below.begin(), below.end());
    for (const auto& [label, c] : below) {
        job.labels.push_back(label);
        job.class_of.push_back(c);
    }
}

std::vector<Job> list_jobs(const Dataset& data, std::span<const TreeView> trees, uint64_t seed,
                           bool routing_only, const Control& control) {
    std::vector<Job> jobs;
    for (size_t t = 0; t < trees.size(); ++t) {
        const auto keys = node_keys(trees[t], root_key(seed, t));
        std::vector<Job> of_tree(trees[t].n_nodes());
        for (size_t v = of_tree.size(); v-- > 0;) {  // children come after their parents
            control.check();
            Job& job = of_tree[v];
            job.tree = t;
            job.node = v;
            job.key = keys[v];
            job.n_classes = trees[t].children_of(v).size();
            job.has_classifiers = !routing_only || !trees[t].is_leaf[v];
            collect_labels(trees[t], of_tree, job);
            for (const uint32_t label : job.labels)
                if (job.has_classifiers) job.cost += data.rows_of(label).size() * job.n_classes;
        }
        std::move(of_tree.begin(), of_tree.end(), std::back_inserter(jobs));
    }
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

PackedNode solve(const Dataset& data, const Job& job, std::span<const uint32_t> rows, const Slice& slice,
                 const LinearParams& params, const Kernels& kernels, Pool& pool, Scratch& scratch) {
    const Problem problem = make_problem(data, job, rows, slice, scratch);
    std::vector<Solution> panels((job.n_classes + kMaxLanes - 1) / kMaxLanes);
    pool.run(panels.size(), [&](size_t p, unsigned) {
        const size_t first = p * kMaxLanes, n = std::min(kMaxLanes, job.n_classes - first);
        ProgressShare progress(pool.control(),
                               job.cost * (first + n) / job.n_classes - job.cost * first / job.n_classes);
        panels[p] = solve_panel(problem, first, n, params, kernels, pool.control(), &progress);
        progress.finish();
    });
    return pack(panels, slice.features(), job.n_classes);
}

// The slice of all rows, which the roots of all trees share: every row reaches the root, even one without
// labels. Made for the first root, freed after the last.
class RootSlice {
  public:
    RootSlice(const Dataset& data, bool separate_singletons, size_t n_roots)
        : data_(data), separate_singletons_(separate_singletons), n_left_(n_roots) {}

    template <class Fn>
    void use(Slice::Scratch& scratch, const Control& control, Fn&& fn) {
        {
            const std::lock_guard lock(mutex_);
            if (!slice_) {
                rows_.resize(data_.n_rows());
                std::iota(rows_.begin(), rows_.end(), 0u);
                slice_.emplace(data_.x(), rows_, data_.factors(), scratch, control, separate_singletons_);
            }
        }
        fn(std::span<const uint32_t>(rows_), *slice_);
        const std::lock_guard lock(mutex_);
        if (--n_left_ == 0) slice_.reset();
    }

  private:
    const Dataset& data_;
    const bool separate_singletons_;
    std::mutex mutex_;
    size_t n_left_;
    std::vector<uint32_t> rows_;
    std::optional<Slice> slice_;
};

PackedNode without_classifiers(size_t n_classes) {
    PackedNode node;
    node.part.bias.assign(n_classes, 0.0f);
    node.part.scale.assign(n_classes, 0.0f);
    node.part.bucket_ptr = node.part.record_ptr = {0};
    return node;
}

std::vector<PackedNode> solve_all(const Dataset& data, std::vector<Job>& jobs, size_t n_trees,
                                  const LinearParams& params, const Kernels& kernels, Pool& pool) {
    // Large nodes first: small ones fill the gaps at the end.
    std::vector<size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return jobs[a].cost > jobs[b].cost; });
    std::vector<Scratch> scratch(pool.threads());
    for (auto& s : scratch) {
        s.class_of_label.assign(data.n_labels(), kNoClass);
        s.row_seen.assign(data.n_rows(), 0);
    }
    const bool separate_singletons = eliminates_singletons(params);
    RootSlice root_slice(data, separate_singletons, n_trees);
    std::vector<PackedNode> nodes(jobs.size());
    pool.run(jobs.size(), [&](size_t o, unsigned worker) {
        Job& job = jobs[order[o]];
        PackedNode& node = nodes[order[o]];
        Scratch& mine = scratch[worker];
        const auto solve_on = [&](std::span<const uint32_t> rows, const Slice& slice) {
            node = solve(data, job, rows, slice, params, kernels, pool, mine);
        };
        if (!job.has_classifiers) {
            node = without_classifiers(job.n_classes);
        } else if (job.node == 0) {
            root_slice.use(mine.slice, pool.control(), solve_on);
        } else {
            const auto rows = rows_of_node(data, job, mine);
            solve_on(rows,
                     Slice(data.x(), rows, data.factors(), mine.slice, pool.control(), separate_singletons));
        }
        job.labels = job.class_of = {};
    });
    return nodes;
}

OwnedForest assemble(std::span<const TreeView> trees, std::vector<PackedNode>& nodes, const Control& control,
                     TrainReport& report) {
    OwnedForest forest;
    forest.tree_ptr = forest.child_ptr = forest.block_ptr = forest.bucket_ptr = forest.record_ptr = {0};
    for (const TreeView& tree : trees) {
        const int64_t shift = forest.child_ptr.back() - tree.child_ptr[0];
        for (size_t v = 0; v < tree.n_nodes(); ++v) forest.child_ptr.push_back(shift + tree.child_ptr[v + 1]);
        forest.children.insert(forest.children.end(), tree.children.begin(), tree.children.end());
        forest.is_leaf.insert(forest.is_leaf.end(), tree.is_leaf.begin(), tree.is_leaf.end());
        forest.tree_ptr.push_back(static_cast<int64_t>(forest.is_leaf.size()));
    }
    // Nearly all of a model: a vector that grows step by step would hold it three times over.
    size_t n_bytes = 0;
    for (const PackedNode& node : nodes) n_bytes += node.part.records.size();
    forest.records.reserve(n_bytes);
    for (PackedNode& node : nodes) {
        control.check();
        if (!node.part.shift.empty()) report.n_classifiers += node.part.bias.size();
        report.n_unconverged += node.n_unconverged;
        report.max_iter = std::max(report.max_iter, node.max_iter);
        append(forest, node.part);
        forest.block_ptr.push_back(static_cast<int64_t>(forest.shift.size()));
        node = {};
    }
    return forest;
}

}  // namespace

OwnedForest train_trees(const Dataset& data, std::span<const TreeView> trees, uint64_t seed,
                        const LinearParams& params, bool routing_only, const Kernels& kernels, Pool& pool,
                        TrainReport& report) {
    std::vector<Job> jobs = list_jobs(data, trees, seed, routing_only, pool.control());
    uint64_t total = 0;
    for (const Job& job : jobs) total += job.cost;
    pool.control().done = 0;
    pool.control().total = total;
    std::vector<PackedNode> nodes = solve_all(data, jobs, trees.size(), params, kernels, pool);
    return assemble(trees, nodes, pool.control(), report);
}

}  // namespace bonsai

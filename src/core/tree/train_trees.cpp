#include "tree/train_trees.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "base/random.hpp"
#include "model/pack.hpp"
#include "tree/label_tree.hpp"

namespace bonsai {

Problem build_problem(const Dataset& data, std::span<const uint32_t> rows, const Slice& slice,
                      std::span<const uint32_t> class_of_label, size_t n_classes, uint64_t key) {
    Problem problem;
    problem.rows = slice.rows();
    if (!slice.lone().value.empty()) problem.lone = &slice.lone();
    problem.n_classes = n_classes;
    problem.key = key;
    problem.norm2.resize(rows.size());
    problem.class_ptr.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
        const double norm = row_norm(problem.rows, i);
        double norm2 = norm * norm;
        for (const float x : slice.lone()[i]) norm2 += double{x} * x;
        problem.norm2[i] = static_cast<float>(norm2);
        if (data.weighted()) problem.weight.push_back(data.weight(rows[i]));
        const size_t begin = problem.classes.size();
        for (const int32_t label : data.labels_of(rows[i]))
            if (class_of_label[label] != kNowhere) problem.classes.push_back(class_of_label[label]);
        const auto first = problem.classes.begin() + static_cast<int64_t>(begin);
        std::sort(first, problem.classes.end());
        problem.classes.erase(std::unique(first, problem.classes.end()), problem.classes.end());
        problem.class_ptr.push_back(static_cast<int64_t>(problem.classes.size()));
    }
    return problem;
}

namespace {

// One node of one tree, waiting to be solved.
struct Job {
    size_t tree;
    size_t node;
    uint64_t key;
    std::vector<uint32_t> labels;    // all labels below, ascending
    std::vector<uint32_t> class_of;  // for each of them, the child that it belongs to
    size_t n_classes;
    uint64_t cost;  // rows x classes, roughly
};

// Buffers of one worker, of the size of the label, row and feature spaces.
struct Scratch {
    std::vector<uint32_t> class_of_label;  // kNowhere between jobs
    std::vector<uint8_t> row_seen;         // 0 between jobs
    Slice::Scratch slice;
};

std::vector<Job> list_jobs(const Dataset& data, std::span<const TreeView> trees, uint64_t seed) {
    std::vector<Job> jobs;
    for (size_t t = 0; t < trees.size(); ++t) {
        const TreeView& tree = trees[t];
        const auto keys = node_keys(tree.child_ptr, tree.children, tree.is_leaf, root_key(seed, t));
        std::vector<Job> of_tree(tree.is_leaf.size());
        for (size_t v = of_tree.size(); v-- > 0;) {  // children come after their parents
            Job& job = of_tree[v];
            job = {.tree = t,
                   .node = v,
                   .key = keys[v],
                   .labels = {},
                   .class_of = {},
                   .n_classes = 0,
                   .cost = 0};
            job.n_classes = static_cast<size_t>(tree.child_ptr[v + 1] - tree.child_ptr[v]);
            std::vector<std::pair<uint32_t, uint32_t>> below;
            for (size_t c = 0; c < job.n_classes; ++c) {
                const auto child =
                    static_cast<uint32_t>(tree.children[tree.child_ptr[v] + static_cast<int64_t>(c)]);
                if (tree.is_leaf[v])
                    below.emplace_back(child, c);
                else
                    for (const uint32_t label : of_tree[child].labels) below.emplace_back(label, c);
            }
            std::sort(below.begin(), below.end());
            for (const auto& [label, c] : below) {
                job.labels.push_back(label);
                job.class_of.push_back(c);
                job.cost += data.rows_of(label).size() * job.n_classes;
            }
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
    for (const uint32_t label : job.labels) scratch.class_of_label[label] = kNowhere;
    return problem;
}

PackedNode solve(const Dataset& data, const Job& job, std::span<const uint32_t> rows, const Slice& slice,
                 const LinearParams& params, const Kernels& kernels, Pool& pool, Scratch& scratch) {
    const Problem problem = make_problem(data, job, rows, slice, scratch);
    std::vector<Solution> panels((job.n_classes + kMaxLanes - 1) / kMaxLanes);
    pool.run(panels.size(), [&](size_t p, unsigned) {
        const size_t first = p * kMaxLanes;
        panels[p] = solve_panel(problem, first, std::min(kMaxLanes, job.n_classes - first), params, kernels,
                                pool.control());
        pool.control().done += job.cost / panels.size();
    });
    return pack(panels, slice.features(), job.n_classes);
}

// All rows, for the roots of all trees: every row reaches the root, also one without labels. Made when the
// first root needs it, given back after the last.
class RootRows {
  public:
    RootRows(const Dataset& data, bool apart, size_t n_roots)
        : data_(data), apart_(apart), n_left_(n_roots) {}

    template <class Fn>
    void use(Slice::Scratch& scratch, Fn&& fn) {
        {
            const std::lock_guard lock(mutex_);
            if (!slice_) {
                rows_.resize(data_.n_rows());
                std::iota(rows_.begin(), rows_.end(), 0u);
                slice_.emplace(data_.x(), rows_, data_.factors(), scratch, apart_);
            }
        }
        fn(std::span<const uint32_t>(rows_), *slice_);
        const std::lock_guard lock(mutex_);
        if (--n_left_ == 0) slice_.reset();
    }

  private:
    const Dataset& data_;
    const bool apart_;
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

}  // namespace

void check_tree(const TreeView& tree, size_t n_labels) {
    const auto fail = [](const char* why) {
        throw std::invalid_argument(std::string("not a label tree: ") + why);
    };
    const size_t n = tree.is_leaf.size();
    if (n == 0 || tree.child_ptr.size() != n + 1 || tree.child_ptr[0] != 0 ||
        tree.child_ptr[n] != static_cast<int64_t>(tree.children.size()))
        fail("the child pointers do not span the children");
    std::vector<uint8_t> node_seen(n, 0), label_seen(n_labels, 0);
    node_seen[0] = 1;
    for (size_t v = 0; v < n; ++v) {
        if (tree.child_ptr[v] > tree.child_ptr[v + 1]) fail("the child pointers fall");
        for (int64_t c = tree.child_ptr[v]; c < tree.child_ptr[v + 1]; ++c) {
            const auto child = static_cast<size_t>(tree.children[c]);
            if (tree.children[c] < 0 || child >= (tree.is_leaf[v] ? n_labels : n))
                fail("a child out of range");
            if (!tree.is_leaf[v] && child <= v) fail("a child that does not come after its parent");
            auto& seen = (tree.is_leaf[v] ? label_seen : node_seen)[child];
            if (seen) fail("a node or label with two parents");
            seen = 1;
        }
    }
    if (std::count(node_seen.begin(), node_seen.end(), 0)) fail("a node that the root does not reach");
}

OwnedForest train_forest(const Dataset& data, std::span<const TreeView> trees, uint64_t seed,
                         const LinearParams& params, bool bare, const Kernels& kernels, Pool& pool,
                         TrainReport& report) {
    for (const TreeView& tree : trees) check_tree(tree, data.n_labels());
    std::vector<Job> jobs = list_jobs(data, trees, seed);
    pool.control().done = 0;
    pool.control().total = 0;
    std::vector<size_t> order(jobs.size());
    for (size_t j = 0; j < jobs.size(); ++j) {
        order[j] = j;
        if (bare && trees[jobs[j].tree].is_leaf[jobs[j].node]) jobs[j].cost = 0;
        pool.control().total += jobs[j].cost;
    }
    // Large nodes first: the small ones fill the gaps at the end.
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return jobs[a].cost > jobs[b].cost; });
    std::vector<Scratch> scratch(pool.threads());
    for (auto& s : scratch) {
        s.class_of_label.assign(data.n_labels(), kNowhere);
        s.row_seen.assign(data.n_rows(), 0);
    }
    std::vector<PackedNode> nodes(jobs.size());
    RootRows root_rows(data, holds_apart(params), trees.size());
    pool.run(jobs.size(), [&](size_t o, unsigned worker) {
        Job& job = jobs[order[o]];
        PackedNode& node = nodes[order[o]];
        Scratch& mine = scratch[worker];
        const auto solve_on = [&](std::span<const uint32_t> rows, const Slice& slice) {
            node = solve(data, job, rows, slice, params, kernels, pool, mine);
        };
        if (bare && trees[job.tree].is_leaf[job.node]) {
            node = without_classifiers(job.n_classes);
        } else if (job.node == 0) {
            root_rows.use(mine.slice, solve_on);
        } else {
            const auto rows = rows_of_node(data, job, mine);
            solve_on(rows, Slice(data.x(), rows, data.factors(), mine.slice, holds_apart(params)));
        }
        job.labels = job.class_of = {};
    });

    OwnedForest forest;
    forest.tree_ptr = forest.child_ptr = forest.block_ptr = forest.bucket_ptr = forest.record_ptr = {0};
    for (const TreeView& tree : trees) {
        const int64_t shift = forest.child_ptr.back();
        for (size_t v = 0; v < tree.is_leaf.size(); ++v)
            forest.child_ptr.push_back(shift + tree.child_ptr[v + 1]);
        forest.children.insert(forest.children.end(), tree.children.begin(), tree.children.end());
        forest.is_leaf.insert(forest.is_leaf.end(), tree.is_leaf.begin(), tree.is_leaf.end());
        forest.tree_ptr.push_back(static_cast<int64_t>(forest.is_leaf.size()));
    }
    // Nearly all of a model: growing step by step would hold it three times over.
    size_t n_bytes = 0;
    for (const PackedNode& node : nodes) n_bytes += node.part.records.size();
    forest.records.reserve(n_bytes);
    for (PackedNode& node : nodes) {
        if (!node.part.shift.empty()) report.n_classifiers += node.part.bias.size();
        report.n_unconverged += node.n_unconverged;
        report.max_iter = std::max(report.max_iter, node.max_iter);
        append(forest, node.part);
        forest.block_ptr.push_back(static_cast<int64_t>(forest.shift.size()));
        node = {};
    }
    return forest;
}

}  // namespace bonsai

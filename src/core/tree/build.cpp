#include "tree/build.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "data/slice.hpp"
#include "tree/bounded_clusters.hpp"

namespace bonsai {
namespace {

struct OpenNode {
    std::vector<uint32_t> labels;
    uint64_t key;
    Partition partition;  // without clusters: a leaf
};

bool must_split(const OpenNode& node, size_t depth, const TreeParams& params) {
    const size_t n = node.labels.size();
    if (n <= params.max_leaf_size) return false;
    if (params.max_depth == 0 || depth < params.max_depth) return true;
    return params.split_oversized && n / kOversizedFactor >= params.max_leaf_size;
}

// `vectors` are those of the node's labels.
void split(const SortedSlice& vectors, OpenNode& node, const TreeParams& params, const Kernels& kernels,
           Pool& pool) {
    const size_t n = node.labels.size(), mean = (n + params.kmeans.k - 1) / params.kmeans.k;
    const size_t largest = params.bounded ? kLargestCluster * std::max(params.max_leaf_size, mean) : n;
    node.partition = partition_bounded(vectors.rows(), params.kmeans, largest,
                                       derive(node.key, kForClustering), kernels, pool);
    // Where all vectors are equal, for example, there is one cluster: the node stays a leaf of this size.
    if (node.partition.n_clusters < 2) node.partition = {};
}

// All roots hold the same labels. One after the other: each is large enough for all threads, and needs memory
// for its centres.
void split_roots(const RowsView& vectors, std::span<const uint32_t> labels,
                 std::vector<std::vector<OpenNode>>& levels, const TreeParams& params, const Kernels& kernels,
                 Pool& pool) {
    const SortedSlice all(vectors, labels, pool);
    for (auto& level : levels) split(all, level[0], params, kernels, pool);
}

// The nodes of one level of all trees, large ones first: small ones fill the gaps at the end.
void split_level(const RowsView& vectors, size_t depth, std::vector<std::vector<OpenNode>>& levels,
                 const TreeParams& params, const Kernels& kernels, Pool& pool) {
    std::vector<OpenNode*> large;
    for (auto& level : levels)
        for (auto& node : level)
            if (must_split(node, depth, params)) large.push_back(&node);
    std::stable_sort(large.begin(), large.end(), [](const OpenNode* a, const OpenNode* b) {
        return a->labels.size() > b->labels.size();
    });
    pool.run(large.size(), [&](size_t task, unsigned) {
        split(SortedSlice(vectors, large[task]->labels, pool), *large[task], params, kernels, pool);
    });
}

// Appends the nodes of a level to their tree, and replaces them by their children.
void append_level(std::vector<OpenNode>& level, size_t& n_numbered, Tree& out, Control& control) {
    std::vector<OpenNode> next;
    for (auto& node : level) {
        control.check();
        out.is_leaf.push_back(node.partition.n_clusters == 0);
        if (out.is_leaf.back()) {
            out.children.insert(out.children.end(), node.labels.begin(), node.labels.end());
            control.done += node.labels.size();
        } else {
            const size_t first = next.size();
            for (size_t c = 0; c < node.partition.n_clusters; ++c) {
                out.children.push_back(static_cast<int32_t>(n_numbered++));
                next.push_back({{}, derive(node.key, c), {}});
            }
            for (size_t i = 0; i < node.labels.size(); ++i)
                next[first + node.partition.cluster[i]].labels.push_back(node.labels[i]);
            node = {};
        }
        out.child_ptr.push_back(static_cast<int64_t>(out.children.size()));
    }
    level = std::move(next);
}

}  // namespace

std::vector<Tree> build_trees(const RowsView& vectors, std::span<const uint32_t> labels, size_t n_trees,
                              const TreeParams& params, const Kernels& kernels, Pool& pool) {
    pool.control().total = n_trees * labels.size();
    std::vector<Tree> trees(n_trees);
    std::vector<std::vector<OpenNode>> levels(n_trees);
    std::vector<size_t> n_numbered(n_trees, 1);
    for (size_t t = 0; t < n_trees; ++t) {
        trees[t].child_ptr.push_back(0);
        levels[t].push_back({{labels.begin(), labels.end()}, root_key(params.seed, t), {}});
    }
    const auto open = [](const auto& level) { return !level.empty(); };
    for (size_t depth = 1; std::any_of(levels.begin(), levels.end(), open); ++depth) {
        if (depth == 1 && must_split(levels[0][0], depth, params))
            split_roots(vectors, labels, levels, params, kernels, pool);
        else
            split_level(vectors, depth, levels, params, kernels, pool);
        for (size_t t = 0; t < n_trees; ++t) append_level(levels[t], n_numbered[t], trees[t], pool.control());
    }
    return trees;
}

}  // namespace bonsai

#include "tree/label_tree.hpp"

#include <algorithm>

namespace bonsai {

uint64_t root_key(uint64_t seed, size_t tree) {
    return derive(derive(seed, 0), tree);
}

std::vector<uint64_t> node_keys(std::span<const int64_t> child_ptr, std::span<const int32_t> children,
                                std::span<const uint8_t> is_leaf, uint64_t root) {
    std::vector<uint64_t> keys(is_leaf.size(), root);
    for (size_t v = 0; v < is_leaf.size(); ++v) {
        if (is_leaf[v]) continue;
        for (int64_t c = child_ptr[v]; c < child_ptr[v + 1]; ++c)
            keys[children[c]] = derive(keys[v], static_cast<uint64_t>(c - child_ptr[v]));
    }
    return keys;
}

namespace {

// A leaf costs its labels times its rows. Clustering sometimes leaves one that holds a good part of all
// labels; from so many times `max_leaf` on it may be split whatever its depth.
constexpr size_t kOverfull = 100;

struct Growing {
    std::vector<uint32_t> labels;
    uint64_t key;
    Partition partition;  // no cluster: a leaf
};

// `vectors` are those of the node's labels.
void split(const SortedSlice& vectors, Growing& node, const TreeParams& params, const Kernels& kernels,
           Pool& pool) {
    node.partition =
        partition_rows(vectors.rows(), params.kmeans, Rng(derive(node.key, kForClustering)), kernels, pool);
    // No progress (all vectors alike, for instance): the node stays a leaf of this size.
    if (node.partition.n_clusters < 2) node.partition = {};
}

// Appends the nodes of a level to their tree, and replaces them by those of the next level.
void descend(std::vector<Growing>& level, size_t& n_numbered, Tree& out, Control& control) {
    std::vector<Growing> next;
    for (auto& node : level) {
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
    std::vector<std::vector<Growing>> levels(n_trees);
    std::vector<size_t> n_numbered(n_trees, 1);
    for (size_t t = 0; t < n_trees; ++t) {
        trees[t].child_ptr.push_back(0);
        levels[t].push_back({{labels.begin(), labels.end()}, root_key(params.seed, t), {}});
    }
    const auto is_large = [&](const Growing& node, size_t depth) {
        const bool last = params.max_depth > 0 && depth >= params.max_depth;
        const bool overfull = params.split_oversized && node.labels.size() / kOverfull >= params.max_leaf;
        return node.labels.size() > params.max_leaf && (!last || overfull);
    };
    for (size_t depth = 1; depth == 1 || std::any_of(levels.begin(), levels.end(),
                                                     [](const auto& level) { return !level.empty(); });
         ++depth) {
        if (depth == 1 && n_trees > 0 && is_large(levels[0][0], depth)) {
            // All roots hold the same labels. One after the other: each takes the memory of its centres, and
            // is large enough for all threads.
            const SortedSlice all(vectors, labels, pool);
            for (auto& level : levels) split(all, level[0], params, kernels, pool);
        } else {
            std::vector<Growing*> large;
            for (auto& level : levels)
                for (auto& node : level)
                    if (is_large(node, depth)) large.push_back(&node);
            std::stable_sort(large.begin(), large.end(), [](const Growing* a, const Growing* b) {
                return a->labels.size() > b->labels.size();
            });
            pool.run(large.size(), [&](size_t task, unsigned) {
                split(SortedSlice(vectors, large[task]->labels, pool), *large[task], params, kernels, pool);
            });
        }
        for (size_t t = 0; t < n_trees; ++t) descend(levels[t], n_numbered[t], trees[t], pool.control());
    }
    return trees;
}

}  // namespace bonsai

#include "tree.hpp"

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

struct Growing {
    std::vector<uint32_t> labels;
    uint64_t key;
    Partition partition;  // no cluster: a leaf
};

void split(const RowsView& vectors, Growing& node, const TreeParams& params, const Kernels& kernels,
           Pool& pool, Slice::Scratch& scratch) {
    Slice slice(vectors, node.labels, {}, scratch);
    slice.sort_rows();
    node.partition =
        partition_rows(slice.rows(), params.kmeans, Rng(derive(node.key, kForClustering)), kernels, pool);
    // No progress (all vectors alike, for instance): the node stays a leaf of this size.
    if (node.partition.n_clusters < 2) node.partition = {};
}

}  // namespace

Tree build_tree(const RowsView& vectors, std::span<const uint32_t> labels, size_t tree,
                const TreeParams& params, const Kernels& kernels, Pool& pool) {
    Tree out;
    out.child_ptr.push_back(0);
    std::vector<Growing> level(1);
    level[0] = {{labels.begin(), labels.end()}, root_key(params.seed, tree), {}};
    size_t n_numbered = 1;
    for (size_t depth = 1; !level.empty(); ++depth) {
        std::vector<size_t> large;
        for (size_t v = 0; v < level.size(); ++v)
            if (level[v].labels.size() > params.max_leaf && depth != params.max_depth) large.push_back(v);
        std::stable_sort(large.begin(), large.end(),
                         [&](size_t a, size_t b) { return level[a].labels.size() > level[b].labels.size(); });
        pool.run(large.size(), [&](size_t task, unsigned) {
            Slice::Scratch scratch;
            split(vectors, level[large[task]], params, kernels, pool, scratch);
        });
        std::vector<Growing> next;
        for (auto& node : level) {
            out.is_leaf.push_back(node.partition.n_clusters == 0);
            if (out.is_leaf.back()) {
                out.children.insert(out.children.end(), node.labels.begin(), node.labels.end());
                pool.control().done += node.labels.size();
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
    return out;
}

}  // namespace bonsai

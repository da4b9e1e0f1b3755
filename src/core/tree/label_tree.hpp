// Label trees as flat arrays, and their construction by recursive clustering.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/matrix.hpp"
#include "tree/kmeans.hpp"

namespace bonsai {

// Nodes are numbered breadth-first: the root is 0, the children of a node are consecutive and come after it.
struct Tree {
    std::vector<int64_t> child_ptr;  // n_nodes + 1
    std::vector<int32_t> children;   // inner node: node numbers; leaf: labels, ascending
    std::vector<uint8_t> is_leaf;

    size_t n_nodes() const { return is_leaf.size(); }
};

struct TreeParams {
    KMeansParams kmeans;
    size_t max_leaf;       /// labels in a leaf
    size_t max_depth;      /// levels of nodes, the root is level 1; 0: no limit
    bool split_oversized;  /// leaves of 100 x max_leaf labels or more are split, whatever max_depth is
    uint64_t seed;
};

uint64_t root_key(uint64_t seed, size_t tree);

// For each node of a tree, its key: the address (seed, tree, place in the tree).
std::vector<uint64_t> node_keys(std::span<const int64_t> child_ptr, std::span<const int32_t> children,
                                std::span<const uint8_t> is_leaf, uint64_t root);

// Trees over the given labels (ascending), whose vectors are the rows of `vectors`.
std::vector<Tree> build_trees(const RowsView& vectors, std::span<const uint32_t> labels, size_t n_trees,
                              const TreeParams& params, const Kernels& kernels, Pool& pool);

}  // namespace bonsai

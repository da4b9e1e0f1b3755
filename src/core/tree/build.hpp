// The construction of label trees by recursive clustering.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"
#include "tree/kmeans.hpp"
#include "tree/label_tree.hpp"

namespace bonsai {

// A leaf costs its labels times its rows, and clustering can leave a large part of all labels in one. From
// this many times max_leaf_size on, `split_oversized` splits it at any depth.
inline constexpr size_t kOversizedFactor = 100;

// A cluster of `bounded` trees has at most this many times the mean size, or this many times max_leaf_size.
inline constexpr size_t kLargestCluster = 4;

struct TreeParams {
    KMeansParams kmeans;
    size_t max_leaf_size;  /// nodes with at most this many labels are not split
    size_t max_depth;      /// levels of nodes, the root is level 1; 0: no limit
    bool split_oversized;  /// max_depth does not hold for oversized leaves
    bool bounded;          /// clusters that are too large are split again, at the same level
    uint64_t seed;
};

// Trees over the given labels (ascending), whose vectors are the rows of `vectors`.
std::vector<Tree> build_trees(const RowsView& vectors, std::span<const uint32_t> labels, size_t n_trees,
                              const TreeParams& params, const Kernels& kernels, Pool& pool);

}  // namespace bonsai

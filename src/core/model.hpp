// The trained forest: immutable flat arrays, exactly as the model file stores them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bonsai {

// Weights are stored for each node, feature by feature: the features that any of its classifiers uses, ascending, and
// for each the (child, weight) pairs. A weight is a signed byte times its classifier's scale; a child number is a byte,
// or four in nodes with more than 256 children.
using StoredWeight = int8_t;
inline constexpr int kWeightMax = 127;
inline constexpr size_t kNarrow = 256;

// All trees, one after the other; nodes numbered through. T trees, N nodes, C children, F (node, feature) pairs,
// E weights.
struct ForestArrays {
    std::span<const int64_t> tree_ptr;       // T + 1: first node of each tree
    std::span<const int64_t> child_ptr;      // N + 1: first child of each node
    std::span<const int32_t> children;       // C: node number within the tree, or label
    std::span<const uint8_t> is_leaf;        // N
    std::span<const float> bias;             // C
    std::span<const float> scale;            // C
    std::span<const int64_t> feature_ptr;    // N + 1: first feature of each node
    std::span<const uint32_t> features;      // F
    std::span<const uint32_t> weight_ptr;    // F + N: for node v, from feature_ptr[v] + v on, where each feature's
                                             // weights begin, counted from weight_base[v], and where the last end
    std::span<const int64_t> weight_base;    // N + 1: first weight of each node
    std::span<const StoredWeight> weights;   // E
    std::span<const int64_t> child_base;     // N: first of the node's child numbers, in `narrow` or `wide`
    std::span<const uint8_t> narrow;
    std::span<const uint32_t> wide;
};

class Forest {
  public:
    // Proves what prediction relies on: everything but the contents of features, weight_ptr and the child numbers,
    // which are read with bounds checked. Throws std::invalid_argument.
    Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels);

    const ForestArrays& arrays() const { return a_; }
    size_t n_trees() const { return a_.tree_ptr.size() - 1; }
    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return n_labels_; }
    size_t max_children() const { return max_children_; }

    // Checks the contents too: every feature, offset and child number in range. Linear in the size of the model.
    void verify() const;

  private:
    void check_structure() const;

    ForestArrays a_;
    size_t n_features_;
    size_t n_labels_;
    size_t max_children_ = 0;
};

// The arrays of a forest under construction.
struct OwnedForest {
    std::vector<int64_t> tree_ptr, child_ptr;
    std::vector<int32_t> children;
    std::vector<uint8_t> is_leaf;
    std::vector<float> bias, scale;
    std::vector<int64_t> feature_ptr;
    std::vector<uint32_t> features, weight_ptr;
    std::vector<int64_t> weight_base;
    std::vector<StoredWeight> weights;
    std::vector<int64_t> child_base;
    std::vector<uint8_t> narrow;
    std::vector<uint32_t> wide;
};

}  // namespace bonsai

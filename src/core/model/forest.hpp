// The trained forest: immutable flat arrays, exactly as the model file stores them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/memory.hpp"
#include "model/packed_block.hpp"

namespace bonsai {

inline constexpr uint32_t kAbsent = ~uint32_t{0};

// All trees, one after the other; nodes are numbered consecutively over all trees. T trees, N nodes, C
// children, B blocks.
struct ForestArrays {
    std::span<const int64_t> tree_ptr;    // T + 1: first node of each tree
    std::span<const int64_t> child_ptr;   // N + 1: first child of each node
    std::span<const int32_t> children;    // C: node number within the tree, or label
    std::span<const uint8_t> is_leaf;     // N
    std::span<const float> bias;          // C
    std::span<const float> scale;         // C
    std::span<const int64_t> block_ptr;   // N + 1: first block of each node
    std::span<const int64_t> bucket_ptr;  // B + 1: first bucket of each block; its last one marks the end
    std::span<const int64_t> record_ptr;  // B + 1: first byte of each block's records
    std::span<const uint8_t> shift;       // B: bucket = feature >> shift
    std::span<const uint32_t> buckets;    // start of each bucket's record within the block
    std::span<const uint8_t> records;
};

// The only list of the arrays. Calls fn(name, array of each forest …) for each array, in the order of the
// model file; a forest is a ForestArrays or an OwnedForest. The structure, everything but the weights, comes
// first.
template <class Fn, class... Forests>
void for_each_structure_array(Fn&& fn, Forests&&... forest) {
    fn("tree_ptr", forest.tree_ptr...);
    fn("child_ptr", forest.child_ptr...);
    fn("children", forest.children...);
    fn("is_leaf", forest.is_leaf...);
    fn("bias", forest.bias...);
    fn("scale", forest.scale...);
    fn("block_ptr", forest.block_ptr...);
    fn("bucket_ptr", forest.bucket_ptr...);
    fn("record_ptr", forest.record_ptr...);
    fn("shift", forest.shift...);
}
template <class Fn, class... Forests>
void for_each_array(Fn&& fn, Forests&&... forest) {
    for_each_structure_array(fn, forest...);
    fn("buckets", forest.buckets...);
    fn("records", forest.records...);
}

// The arrays of a forest under construction.
struct OwnedForest {
    std::vector<int64_t> tree_ptr, child_ptr;
    std::vector<int32_t> children;
    std::vector<uint8_t> is_leaf;
    std::vector<float> bias, scale;
    std::vector<int64_t> block_ptr, bucket_ptr, record_ptr;
    std::vector<uint8_t> shift;
    // Most of a model's memory: pages are touched first by the threads that fill them.
    UninitialisedVector<uint32_t> buckets;
    UninitialisedVector<uint8_t> records;

    ForestArrays arrays() const {
        ForestArrays views;
        for_each_array([](const char*, auto& view, const auto& owned) { view = owned; }, views, *this);
        return views;
    }

    // Appends a block. Features ascend; the i-th has the weights [ptr[i], ptr[i + 1]), at least one, each
    // with its child within the block.
    void add_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                   std::span<const uint8_t> child, std::span<const StoredWeight> weight);
};

// Immutable. Nodes are numbered consecutively over all trees, as in the arrays.
class Forest {
  public:
    // Takes the result of training unchecked.
    Forest(OwnedForest&& made, size_t n_features, size_t n_labels);
    // Takes arrays from a file or a caller. All structure is copied and validated, in time linear in nodes,
    // children and blocks. Only `buckets` and `records` stay where they are; they may be mapped memory that
    // changes, so every read is checked. `owner` keeps them alive. Throws std::invalid_argument. `residual`,
    // if any, is the same forest with weights that are added to these: the rounding errors of the 8-bit
    // weights, themselves rounded to 8 bits.
    Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels,
           std::shared_ptr<const void> owner = nullptr, std::shared_ptr<const Forest> residual = nullptr);
    // The same forest restricted to some of its labels: neither other labels nor nodes without allowed labels
    // are ever found. It shares the arrays. `allowed` has one byte per label, 0 for excluded ones; any other
    // length throws std::invalid_argument.
    Forest(std::shared_ptr<const Forest> whole, std::span<const uint8_t> allowed);
    Forest(const Forest&) = delete;
    Forest& operator=(const Forest&) = delete;

    const ForestArrays& arrays() const { return a_; }
    size_t n_trees() const { return a_.tree_ptr.size() - 1; }
    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return n_labels_; }
    // May be null. Its biases are ignored.
    const std::shared_ptr<const Forest>& residual() const { return residual_; }
    // Whether some labels are excluded; if so, a byte for each child, numbered over all nodes: 1 if allowed.
    bool is_restricted() const { return !allowed_.empty(); }
    const uint8_t* allowed() const { return allowed_.data(); }
    // The same for a single leaf as masks, -1 or 0, padded with zeros to a multiple of kBlockChildren.
    const int16_t* allowed_masks() const { return masks_.data(); }
    // Whether the block of a node's children from position `from` on has an allowed child.
    bool has_allowed(size_t node, size_t from) const {
        if (allowed_.empty()) return true;
        const auto begin = allowed_.begin() + a_.child_ptr[node] + static_cast<int64_t>(from);
        const size_t n = std::min(kBlockChildren, n_children(node) - from);
        return std::find(begin, begin + static_cast<int64_t>(n), 1) != begin + static_cast<int64_t>(n);
    }
    size_t n_children(size_t node) const {
        return static_cast<size_t>(a_.child_ptr[node + 1] - a_.child_ptr[node]);
    }
    std::span<const int32_t> children(size_t node) const {
        return a_.children.subspan(static_cast<size_t>(a_.child_ptr[node]), n_children(node));
    }
    size_t n_blocks(size_t node) const { return (n_children(node) + kBlockChildren - 1) / kBlockChildren; }
    // An upper bound on the number of children, padded to a multiple of 16 for each node, over up to
    // `beam_size` inner nodes of each tree.
    size_t max_choices(size_t beam_size) const;
    // Whether the forest is a single leaf, as for one-vs-rest classifiers; and then a label's position among
    // the children, or kAbsent.
    bool is_one_leaf() const { return a_.is_leaf.size() == 1 && a_.is_leaf[0]; }
    uint32_t position(uint32_t label) const { return position_[label]; }

    PackedBlock block(size_t b) const {
        const auto part = [b](auto all, std::span<const int64_t> ptr) {
            return all.subspan(static_cast<size_t>(ptr[b]), static_cast<size_t>(ptr[b + 1] - ptr[b]));
        };
        return {part(a_.buckets, a_.bucket_ptr), part(a_.records, a_.record_ptr), a_.shift[b]};
    }

    // The place of a child's classifier; children are numbered over all nodes. Throws std::invalid_argument
    // if there is no such child.
    struct Classifier {
        size_t block;
        size_t lane;  // child within the block
        float scale;
        float bias;
    };
    Classifier classifier(size_t child) const;
    // Calls fn(feature, weight) for each weight of a child's classifier; linear in the size of its block.
    template <class Fn>
    void for_each_weight_of(const Classifier& classifier, Fn&& fn) const {
        block(classifier.block).for_each_feature([&](size_t feature, const FeatureWeights& found) {
            if (feature >= n_features_) return;
            found.for_each([&](size_t c, StoredWeight weight) {
                if (c == classifier.lane) fn(feature, weight);
            });
        });
    }

    // Calls fn(child, feature, value) for each weight of a node; children are counted from the node's first.
    // With a residual, a weight may come in two parts. Out-of-range children and features of damaged files
    // are left out.
    template <class Fn>
    void for_each_weight(size_t node, Fn&& fn) const {
        if (node >= a_.is_leaf.size()) throw std::invalid_argument("the forest has no such node");
        const auto first = static_cast<size_t>(a_.child_ptr[node]);
        for (int64_t b = a_.block_ptr[node]; b < a_.block_ptr[node + 1]; ++b) {
            const size_t from = static_cast<size_t>(b - a_.block_ptr[node]) * kBlockChildren;
            block(static_cast<size_t>(b)).for_each_feature([&](size_t feature, const FeatureWeights& found) {
                if (feature >= n_features_) return;
                found.for_each([&](size_t c, StoredWeight weight) {
                    if (from + c < n_children(node))
                        fn(from + c, feature, a_.scale[first + from + c] * static_cast<float>(weight));
                });
            });
        }
        if (residual_) residual_->for_each_weight(node, fn);
    }

    // Checks the contents of all blocks: throws std::invalid_argument unless they conform to
    // docs/internals/format.md. Linear in the size of the model.
    void verify() const;

  private:
    void check_structure() const;
    void check_tree(size_t tree) const;
    void check_residual() const;
    void index();

    OwnedForest owned_;
    std::shared_ptr<const void> owner_;
    std::shared_ptr<const Forest> residual_;
    ForestArrays a_;
    size_t n_features_;
    size_t n_labels_;
    std::vector<uint32_t> position_;
    std::vector<uint8_t> allowed_;  // per child; empty: all
    std::vector<int16_t> masks_;
    struct InnerNodes {  // of a tree
        size_t children = 0;
        size_t widest = 0;
    };
    std::vector<InnerNodes> inner_;
};

}  // namespace bonsai

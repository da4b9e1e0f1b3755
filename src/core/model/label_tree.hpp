// Label trees as flat arrays: the type, the keys of its nodes, and its validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bonsai {

// A borrowed tree. Nodes are numbered from the root, 0, children after their parents. child_ptr is relative
// to its first value, so that a tree of a forest can be a view of the forest's arrays.
struct TreeView {
    std::span<const int64_t> child_ptr;  // n_nodes + 1
    std::span<const int32_t> children;   // inner node: node numbers; leaf: labels
    std::span<const uint8_t> is_leaf;    // n_nodes

    size_t n_nodes() const { return is_leaf.size(); }
    std::span<const int32_t> children_of(size_t node) const {
        return children.subspan(static_cast<size_t>(child_ptr[node] - child_ptr[0]),
                                static_cast<size_t>(child_ptr[node + 1] - child_ptr[node]));
    }
};

// An owned tree. `TreeBuilder` numbers nodes breadth-first, and sorts the labels of a leaf.
struct Tree {
    std::vector<int64_t> child_ptr;
    std::vector<int32_t> children;
    std::vector<uint8_t> is_leaf;

    size_t n_nodes() const { return is_leaf.size(); }
    TreeView view() const { return {child_ptr, children, is_leaf}; }
};

// Throws std::invalid_argument unless the arrays are a tree: child_ptr spans the children, every node but the
// root is the child of exactly one node before it, and every label below n_labels is in at most one leaf. The
// only such check in the core: every tree from outside passes through it once.
void validate_tree(const TreeView& tree, size_t n_labels);

// A node's key is its address: (seed, tree, path from the root). All its randomness follows from it.
uint64_t root_key(uint64_t seed, size_t tree);
std::vector<uint64_t> node_keys(const TreeView& tree, uint64_t root);

}  // namespace bonsai

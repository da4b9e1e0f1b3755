// The classifiers of a forest, given its trees.
#pragma once

#include <span>

#include "base/parallel.hpp"
#include "data/matrix.hpp"
#include "linear/linear.hpp"
#include "model/forest.hpp"

namespace bonsai {

struct TreeView {
    std::span<const int64_t> child_ptr;
    std::span<const int32_t> children;
    std::span<const uint8_t> is_leaf;
};

// The problem that all classifiers of a node share: `slice` holds `rows`, and class_of_label says which
// classifier a label belongs to (kNowhere: none).
Problem build_problem(const Dataset& data, std::span<const uint32_t> rows, const Slice& slice,
                      std::span<const uint32_t> class_of_label, size_t n_classes, uint64_t key);

struct TrainReport {
    size_t n_classifiers = 0;
    size_t n_unconverged = 0;
    int max_iter = 0;  // passes of the slowest classifier
};

// Throws std::invalid_argument unless the arrays are a tree as described in tree.hpp.
void check_tree(const TreeView& tree, size_t n_labels);

// Trains all classifiers of all nodes on the rows that have a label of the node (the root: on all rows).
// `bare`: none for the leaves.
OwnedForest train_forest(const Dataset& data, std::span<const TreeView> trees, uint64_t seed,
                         const LinearParams& params, bool bare, const Kernels& kernels, Pool& pool,
                         TrainReport& report);

}  // namespace bonsai

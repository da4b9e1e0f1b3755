// The classifiers of a forest, given its trees.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "model/classifier_stage.hpp"
#include "model/forest.hpp"
#include "model/label_tree.hpp"
#include "one_vs_rest/train_one_vs_rest.hpp"
#include "tree/build.hpp"

namespace bonsai {

// The classifiers of all nodes, each trained on the rows with a label below the node (the root: on all rows).
// A unit is a node, or a range of the children of a large root. The trees are valid (validate_tree). The data
// must outlive the stage.
std::unique_ptr<ClassifierStage> classifiers_of_trees(const Dataset& data,
                                                      std::shared_ptr<const std::vector<Tree>> trees,
                                                      uint64_t seed, const LinearParams& params,
                                                      const Kernels& kernels, Pool& pool);

// Bytes of this stage for trees of this shape, whose packed classifiers take model_bytes in total. `stored`:
// results leave their weights elsewhere.
double tree_classifier_bytes(const ProblemSizes& sizes, const TreeParams& tree, double n_trees,
                             const LinearParams& params, unsigned threads, double model_bytes, bool stored);

// The classifiers of labels against all rows: a forest of one tree with one leaf, whose children are `labels`
// in the order given. Trained by `one_vs_rest_classifiers` where active sets can be used; otherwise the tree
// is trained as by `classifiers_of_trees`, and std::invalid_argument is thrown unless `costs` is empty.
std::unique_ptr<ClassifierStage> classifiers_of_labels(const Dataset& data, std::span<const uint32_t> labels,
                                                       std::span<const float> costs, double frequent_share,
                                                       uint64_t seed, const LinearParams& params,
                                                       const Kernels& kernels, Pool& pool,
                                                       OldForest old = {});
// Bytes of this stage if the packed classifiers take model_bytes in total.
double label_classifier_bytes(const ProblemSizes& sizes, const LinearParams& params, unsigned threads,
                              double model_bytes);

}  // namespace bonsai

// One classifier for each label, trained against all rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "model/classifier_stage.hpp"
#include "model/forest.hpp"

namespace bonsai {

// From this many labels on, margin violations are searched by an index over the rows, if it can hold them. It
// takes less time than scans where there are many rows for the few positives of a label, as is usual with so
// many labels.
inline constexpr size_t kIndexedLabels = 50000;

// One-vs-rest classifiers that were trained before, on the first `n_rows` of all rows.
struct OldForest {
    std::shared_ptr<const Forest> forest = nullptr;  // of the same features and labels; null: there are none
    size_t n_rows = 0;
};

// The classifiers of a forest of one tree with one leaf, whose children are `labels` in the order given.
// `costs` multiplies C for each of them; empty: all 1. With the squared hinge, the dual solver, sparse rows
// and a bias fixed at -1 or below, labels are solved on active sets (active_set.hpp), except those of more
// than `frequent_share` of the rows, which learn their bias; a unit is a panel of these or a window of the
// others. Otherwise such a tree is trained as by `classifiers_of_trees`, and `costs` must be empty:
// std::invalid_argument. The data must outlive the stage; labels and costs are copied. On active sets, labels
// that have a classifier in `old` go on from it.
std::unique_ptr<ClassifierStage> one_vs_rest_classifiers(const Dataset& data,
                                                         std::span<const uint32_t> labels,
                                                         std::span<const float> costs, double frequent_share,
                                                         uint64_t seed, const LinearParams& params,
                                                         const Kernels& kernels, Pool& pool,
                                                         OldForest old = {});

// Bytes of that, where the packed classifiers take model_bytes in all.
double one_vs_rest_bytes(const ProblemSizes& sizes, const LinearParams& params, unsigned threads,
                         double model_bytes);

}  // namespace bonsai

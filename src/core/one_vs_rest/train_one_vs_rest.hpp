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

// From this many labels on, margin violations are found by an index over the rows, if it can hold them. It
// takes less time than scans if labels have few positives among many rows, as is usual with this many labels.
inline constexpr size_t kIndexedLabels = 50000;

// One-vs-rest classifiers that were trained earlier, on the first `n_rows` of all rows.
struct OldForest {
    std::shared_ptr<const Forest> forest = nullptr;  // with the same features and labels; null: none
    size_t n_rows = 0;
};

// The classifiers of a forest of one tree with one leaf, whose children are `labels` in the order given.
// `costs` has a factor of C for each label; empty: all 1. Labels are solved on active sets (active_set.hpp),
// which can_use_active_sets() must allow, except those of more than `frequent_share` of the rows, which learn
// their bias; a unit is a panel of these or a window of the others. The data must outlive the stage; labels
// and costs are copied. Labels with a classifier in `old` start from it.
std::unique_ptr<ClassifierStage> one_vs_rest_classifiers(const Dataset& data,
                                                         std::span<const uint32_t> labels,
                                                         std::span<const float> costs, double frequent_share,
                                                         uint64_t seed, const LinearParams& params,
                                                         const Kernels& kernels, OldForest old = {});

// Bytes of this stage if the packed classifiers take model_bytes in total.
double one_vs_rest_bytes(const ProblemSizes& sizes, const LinearParams& params, unsigned threads,
                         double model_bytes);

}  // namespace bonsai

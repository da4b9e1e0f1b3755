// One classifier for each label, trained against all rows.
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

// A forest of one tree with one leaf, whose children are `labels` in the order given. `costs` multiplies C
// for each of them; empty: all 1. With the squared hinge, the dual solver, sparse rows and a bias fixed at -1
// or below, labels are solved on active sets (active_set.hpp), except those of more than `frequent_share` of
// the rows, which learn their bias. Otherwise such a tree is trained by `train_trees`, and `costs` must be
// empty: std::invalid_argument.
OwnedForest train_one_vs_rest(const Dataset& data, std::span<const uint32_t> labels,
                              std::span<const float> costs, double frequent_share, uint64_t seed,
                              const LinearParams& params, const Kernels& kernels, Pool& pool,
                              TrainReport& report);

}  // namespace bonsai

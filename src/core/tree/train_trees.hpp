// The classifiers of a forest, given its trees.
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"
#include "tree/label_tree.hpp"

namespace bonsai {

// Trains the classifiers of all nodes, each on the rows that have a label below the node (the root: on all
// rows). `routing_only`: inner nodes only, leaves get no classifiers. The trees are valid (validate_tree).
OwnedForest train_trees(const Dataset& data, std::span<const TreeView> trees, uint64_t seed,
                        const LinearParams& params, bool routing_only, const Kernels& kernels, Pool& pool,
                        TrainReport& report);

}  // namespace bonsai

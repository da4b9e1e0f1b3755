// From solved classifiers to the arrays of a forest.
#pragma once

#include <span>
#include <vector>

#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

// What a node, or a block of one, contributes to a forest: bias, scale and blocks.
struct PackedNode {
    OwnedForest part;
    size_t n_unconverged = 0;
    int max_iter = 0;
};

// Quantises and packs the classifiers of `panels`, kMaxLanes in each but the last, and empties them.
// `features` translates their features into those of X.
PackedNode pack(std::vector<Solution>& panels, std::span<const uint32_t> features, size_t n_classes);

// Appends classifiers and blocks; the caller sets block_ptr, the node that each block belongs to.
void append(OwnedForest& forest, const OwnedForest& part);

}  // namespace bonsai

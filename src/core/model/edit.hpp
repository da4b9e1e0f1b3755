// Assembles a forest from the classifiers of other forests without quantising them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/parallel.hpp"
#include "model/forest.hpp"

namespace bonsai {

// The source of each child of a new forest: entry `child` of the children of one of the sources. Its bias,
// scale and stored weights are copied unchanged, so that its margins have the same bits.
struct Origins {
    std::span<const Forest* const> sources;
    std::span<const uint32_t> source;
    std::span<const int64_t> child;
    float prune = 0;  // weights up to this magnitude are left out
};

// Fills in the classifiers of a forest whose structure (tree_ptr, child_ptr, children, is_leaf) is set.
// Blocks equal to a block of a source are copied; the others are packed again. Throws std::invalid_argument
// if an origin does not exist.
void assemble(OwnedForest& forest, const Origins& origins, Pool& pool);

// The same forest without weights up to this magnitude. Throws std::invalid_argument if it has a residual.
std::shared_ptr<Forest> pruned(const Forest& forest, float prune, Pool& pool);

// The same trees with zero weights: a residual for a forest that has none.
std::shared_ptr<const Forest> without_weights(const Forest& forest);

}  // namespace bonsai

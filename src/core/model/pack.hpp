// From solved classifiers to the arrays of a forest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

// What a node, or a block of one, contributes to a forest: bias, scale and blocks.
struct PackedNode {
    OwnedForest part;
    size_t n_unconverged = 0;
    int max_iter = 0;
};

// A classifier as a block stores it.
struct QuantisedClassifier {
    std::vector<uint32_t> feature;     // in any order
    std::vector<StoredWeight> weight;  // not 0
    float scale = 0;
    float bias = 0;
    int32_t n_iter = 0;
    bool converged = false;
};

// The scale of a classifier whose largest weight has this absolute value, and a weight in units of the scale.
float scale_for(float largest);
StoredWeight quantise(float value, float scale);

// Quantises and packs the classifiers of `panels` and empties them. There are `lanes` in each but the last, a
// divisor of kBlockChildren; the result does not depend on it. `features` translates their features into
// those of X.
PackedNode pack(std::vector<Solution>& panels, size_t lanes, std::span<const uint32_t> features,
                size_t n_classes);

// Packs classifiers over the columns of some data, kBlockChildren at most, and empties them.
PackedNode pack_block(std::span<QuantisedClassifier> classifiers, const Dataset& data);

// A packed node as bytes, and from bytes: std::invalid_argument unless it has n_classes children and arrays
// that fit together. What is in the records is not looked at.
void write(const PackedNode& node, ByteWriter& out);
PackedNode read_packed_node(ByteReader& in, size_t n_classes);

// Adds the numbers of a node to the report.
void add_numbers(const PackedNode& node, TrainReport& report);

// Bytes of records that are copied before the memory of their parts goes back to the system.
inline constexpr size_t kAppendedBytes = size_t{64} << 20;

// Appends the classifiers and blocks of all parts, in their order, to a forest without blocks; each part is
// emptied as soon as it is copied, so that parts and forest together never take much more than either. The
// caller sets block_ptr, the node that each block belongs to.
void append(OwnedForest& forest, std::span<OwnedForest* const> parts, Pool& pool);

}  // namespace bonsai

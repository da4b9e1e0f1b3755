// Packs solved classifiers into the arrays of a forest.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

// The contribution of a node, or of one of its blocks, to a forest: bias, scale and blocks.
struct PackedNode {
    OwnedForest part;
    size_t n_unconverged = 0;
    int max_iter = 0;
};

// A classifier in the form that blocks store.
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

// Quantises and packs the classifiers of `panels` and empties them. Each panel but the last has `lanes`
// classifiers, a divisor of kBlockChildren; the result does not depend on it. `features` maps their features
// to those of X.
PackedNode pack(std::vector<Solution>& panels, size_t lanes, std::span<const uint32_t> features,
                size_t n_classes);

// Packs classifiers over the columns of some data, kBlockChildren at most, and empties them.
PackedNode pack_block(std::span<QuantisedClassifier> classifiers, const Dataset& data);

// Joins the blocks of a node, and empties them.
PackedNode join(std::span<PackedNode> blocks, Pool& pool);

// Serialises a packed node, and reads it: throws std::invalid_argument unless it has n_classes children and
// arrays of consistent lengths. The contents of records are not checked.
void write(const PackedNode& node, ByteWriter& out);
PackedNode read_packed_node(ByteReader& in, size_t n_classes);

// Adds the totals of a node with so many classifiers to the report.
void add_numbers(const PackedNode& node, size_t n_classifiers, TrainReport& report);

// The lengths of a part's arrays.
struct PartSizes {
    size_t classifiers = 0, blocks = 0, buckets = 0, bytes = 0;
    bool operator==(const PartSizes&) const = default;
};
PartSizes sizes_of(const OwnedForest& part);

// Bytes of records that are copied before the memory of their parts returns to the system.
inline constexpr size_t kAppendedBytes = size_t{64} << 20;

// Appends the classifiers and blocks of parts of these sizes, in their order, to a forest without blocks.
// take(part), called once for each by any thread of the pool, returns the part, which is freed as soon as it
// is copied: parts and forest together never take much more than either. Throws std::invalid_argument for a
// part of other sizes. The caller sets block_ptr, the node that each block belongs to.
void append(OwnedForest& forest, std::span<const PartSizes> parts,
            const std::function<OwnedForest(size_t)>& take, Pool& pool);
// The same for parts in memory, which are emptied.
void append(OwnedForest& forest, std::span<OwnedForest* const> parts, Pool& pool);

}  // namespace bonsai

// The trained forest: immutable flat arrays, exactly as the model file stores them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace bonsai {

// Weights are stored in blocks: the classifiers of up to 128 children of a node, feature by feature. A weight
// is a signed byte times its classifier's scale. Beside it, one byte holds the child within the block and, in
// its top bit, whether this is the feature's last weight; so a feature costs no count. A block's features,
// ascending, are cut into buckets by their upper bits; of each feature only the lower bits are kept, in one
// or two bytes. Looking a feature up reads one bucket of about 16, however large the block is.
using StoredWeight = int8_t;
inline constexpr int kWeightMax = 127;
inline constexpr size_t kBlockChildren = 128;
inline constexpr uint8_t kLastWeight = 0x80;
inline constexpr uint64_t kLastOfEight = 0x8080808080808080ULL;
inline constexpr unsigned kByteShift = 8;  // lower bits that fit into one byte
inline constexpr unsigned kMaxShift = 16;

// All trees, one after the other; nodes numbered through. T trees, N nodes, C children, B blocks, E weights.
struct ForestArrays {
    std::span<const int64_t> tree_ptr;    // T + 1: first node of each tree
    std::span<const int64_t> child_ptr;   // N + 1: first child of each node
    std::span<const int32_t> children;    // C: node number within the tree, or label
    std::span<const uint8_t> is_leaf;     // N
    std::span<const float> bias;          // C
    std::span<const float> scale;         // C
    std::span<const int64_t> block_ptr;   // N + 1: first block of each node
    std::span<const int64_t> weight_ptr;  // B + 1: first weight of each block
    std::span<const int64_t>
        bucket_ptr;                     // B + 1: first bucket of each block; the last one only marks the end
    std::span<const uint8_t> shift;     // B: bucket = feature >> shift
    std::span<const int64_t> low_base;  // B: first of the block's lower bits, in low8 (shift <= 8) or low16
    std::span<const uint32_t>
        buckets;  // two for each bucket: its first feature and first weight in the block
    std::span<const uint8_t> low8;
    std::span<const uint16_t> low16;
    std::span<const StoredWeight> weights;  // E
    std::span<const uint8_t> weight_child;  // E: child within the block, + kLastWeight
};

class Forest {
  public:
    // Proves what prediction relies on: everything but the contents of buckets and lower bits, which are read
    // with bounds checked, and of weight_child, which cannot point beyond a block. Throws
    // std::invalid_argument.
    Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels);

    const ForestArrays& arrays() const { return a_; }
    size_t n_trees() const { return a_.tree_ptr.size() - 1; }
    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return n_labels_; }
    // Children of the widest node, at least 1.
    size_t max_children() const { return max_children_; }

    // Checks the contents too: every feature, offset and child in range. Linear in the size of the model.
    void verify() const;

    size_t n_features_of(size_t block) const {
        return a_.buckets[2 * static_cast<size_t>(a_.bucket_ptr[block + 1] - 1)];
    }
    size_t n_weights_of(size_t block) const {
        return static_cast<size_t>(a_.weight_ptr[block + 1] - a_.weight_ptr[block]);
    }

    // starts[i] = first weight of the block's i-th feature, counted within the block; the last one is their
    // end.
    void weight_starts(size_t block, std::vector<uint32_t>& starts) const;

    // Calls fn(i, feature) for each feature of a block, ascending. Safe on any contents: what is out of range
    // is left out.
    template <class Fn>
    void for_each_feature(size_t block, Fn&& fn) const {
        const auto base = static_cast<size_t>(a_.low_base[block]);
        if (a_.shift[block] <= kByteShift)
            for_each_feature(block, a_.low8.data() + base, fn);
        else
            for_each_feature(block, a_.low16.data() + base, fn);
    }

    // The weights of one feature in a block: (first, end), counted within the block; equal if it has none.
    // Safe on any contents.
    std::pair<size_t, size_t> find(size_t block, uint32_t feature) const {
        const uint32_t* bucket = bucket_of(block, feature);
        if (!bucket) return {0, 0};
        const size_t begin = bucket[0], end = std::min<size_t>(bucket[2], n_features_of(block));
        const uint32_t wanted = feature & ((uint32_t{1} << a_.shift[block]) - 1);
        const auto base = static_cast<size_t>(a_.low_base[block]);
        const size_t at = a_.shift[block] <= kByteShift
                              ? position(a_.low8.subspan(base), begin, end, static_cast<uint8_t>(wanted))
                              : position(a_.low16.subspan(base), begin, end, static_cast<uint16_t>(wanted));
        if (at >= end) return {0, 0};
        const size_t first = skip_features(block, bucket[1], at - begin);
        return {first, skip_features(block, first, 1)};
    }

  private:
    void check_structure() const;
    void check_block(size_t block, size_t n_children) const;

    // Of a feature, or null if it lies beyond the last one.
    const uint32_t* bucket_of(size_t block, uint32_t feature) const {
        const size_t at = feature >> a_.shift[block];
        if (at + 1 >= static_cast<size_t>(a_.bucket_ptr[block + 1] - a_.bucket_ptr[block])) return nullptr;
        return a_.buckets.data() + 2 * (a_.bucket_ptr[block] + static_cast<int64_t>(at));
    }

    template <class T, class Fn>
    void for_each_feature(size_t block, const T* low, Fn& fn) const {
        const uint32_t* bucket = a_.buckets.data() + 2 * a_.bucket_ptr[block];
        const auto n_buckets = static_cast<size_t>(a_.bucket_ptr[block + 1] - a_.bucket_ptr[block]) - 1;
        const size_t n_features = n_features_of(block);
        const unsigned shift = a_.shift[block];
        for (size_t b = 0; b < n_buckets; ++b) {
            const size_t end = std::min<size_t>(bucket[2 * b + 2], n_features);
            for (size_t at = bucket[2 * b]; at < end; ++at) {
                const size_t feature = (b << shift) | low[at];
                if (feature < n_features_) fn(at, static_cast<uint32_t>(feature));
            }
        }
    }

    // Where `wanted` stands among values[begin..end), all different; `end` or beyond if it does not. A word
    // of eight bytes is compared at once: its lanes that are equal become zero, and of these the top bits are
    // set.
    template <class T>
    static size_t position(std::span<const T> values, size_t begin, size_t end, T wanted) {
        constexpr size_t lanes = sizeof(uint64_t) / sizeof(T), bits = 8 * sizeof(T);
        constexpr uint64_t ones = ~uint64_t{0} / ((uint64_t{1} << bits) - 1), tops = ones << (bits - 1);
        size_t at = begin;
        for (; at + lanes <= values.size() && at < end; at += lanes) {
            uint64_t word;
            std::memcpy(&word, values.data() + at, sizeof word);
            word ^= wanted * ones;
            if (const uint64_t equal = ~(((word & ~tops) + ~tops) | word) & tops)
                return at + static_cast<size_t>(std::countr_zero(equal)) / bits;
        }
        while (at < end && values[at] != wanted) ++at;
        return at;
    }

    // The weight where the n-th feature after the one that begins at `weight` begins, or the end of the
    // block. The top bits mark where features end.
    size_t skip_features(size_t block, size_t weight, size_t n) const {
        const uint8_t* child = a_.weight_child.data() + a_.weight_ptr[block];
        const size_t n_weights = n_weights_of(block);
        for (uint64_t word; n > 0 && weight + 8 <= n_weights; weight += 8) {
            std::memcpy(&word, child + weight, sizeof word);
            word &= kLastOfEight;
            const size_t ends = (word >> 7) * 0x0101010101010101ULL >> 56;
            if (ends >= n) {
                while (--n > 0) word &= word - 1;
                return weight + static_cast<size_t>(std::countr_zero(word)) / 8 + 1;
            }
            n -= ends;
        }
        for (; n > 0 && weight < n_weights; ++weight) n -= child[weight] >> 7;
        return weight;
    }

    uint32_t low(size_t block, size_t at) const {
        const size_t i = static_cast<size_t>(a_.low_base[block]) + at;
        return a_.shift[block] <= kByteShift ? a_.low8[i] : a_.low16[i];
    }

    ForestArrays a_;
    size_t n_features_;
    size_t n_labels_;
    size_t max_children_ = 1;
};

// The arrays of a forest under construction.
struct OwnedForest {
    std::vector<int64_t> tree_ptr, child_ptr;
    std::vector<int32_t> children;
    std::vector<uint8_t> is_leaf;
    std::vector<float> bias, scale;
    std::vector<int64_t> block_ptr, weight_ptr, bucket_ptr;
    std::vector<uint8_t> shift;
    std::vector<int64_t> low_base;
    std::vector<uint32_t> buckets;
    std::vector<uint8_t> low8;
    std::vector<uint16_t> low16;
    std::vector<StoredWeight> weights;
    std::vector<uint8_t> weight_child;

    // Appends an empty block.
    void open_block(size_t n_features_used, size_t n_features);
    // Appends a feature to the block that was opened last; features ascend, each has at least one weight.
    void add_feature(uint32_t feature, std::span<const StoredWeight> weight, std::span<const uint8_t> child);
    void close_block(size_t n_features);
};

}  // namespace bonsai

// The trained forest: immutable flat arrays, exactly as the model file stores them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace bonsai {

// Weights are stored in blocks: the classifiers of up to 128 children of a node, feature by feature. A weight
// is a signed byte times its classifier's scale. A block's features are cut into buckets by their upper bits,
// and all that a bucket holds stands in one record of bytes:
//     number of features | lower bits of each, in one byte or two | children | weights
// An empty bucket has no bytes at all. There is a child for each weight, feature by feature; its top bit
// tells the feature's last weight, so that a feature costs no count. Looking a feature up reads the bucket's
// offset and its record: two places in memory, however large the block is.
using StoredWeight = int8_t;
inline constexpr int kWeightMax = 127;
inline constexpr size_t kBlockChildren = 128;
inline constexpr uint8_t kLastWeight = 0x80;
inline constexpr size_t kRecordFeatures = 255;  // at most, so that a byte holds their number
inline constexpr unsigned kByteShift = 8;       // lower bits that fit into one byte
inline constexpr unsigned kMaxShift = 16;

inline constexpr uint32_t kNowhere = ~uint32_t{0};

// All trees, one after the other; nodes numbered through. T trees, N nodes, C children, B blocks.
struct ForestArrays {
    std::span<const int64_t> tree_ptr;    // T + 1: first node of each tree
    std::span<const int64_t> child_ptr;   // N + 1: first child of each node
    std::span<const int32_t> children;    // C: node number within the tree, or label
    std::span<const uint8_t> is_leaf;     // N
    std::span<const float> bias;          // C
    std::span<const float> scale;         // C
    std::span<const int64_t> block_ptr;   // N + 1: first block of each node
    std::span<const int64_t> bucket_ptr;  // B + 1: first bucket of each block; its last one marks the end
    std::span<const int64_t> record_ptr;  // B + 1: first byte of each block's records
    std::span<const uint8_t> shift;       // B: bucket = feature >> shift
    std::span<const uint32_t> buckets;    // where each bucket's record begins, counted within the block
    std::span<const uint8_t> records;
};

// The weights of one feature in a block; none if the block lacks it.
struct FeatureWeights {
    const uint8_t* child = nullptr;  // within the block, + kLastWeight on the last one
    const StoredWeight* weight = nullptr;
    size_t n = 0;
};

// What a bucket holds.
struct Record {
    const uint8_t* low = nullptr;  // of each feature, little-endian
    size_t n = 0;                  // features
    const uint8_t* child = nullptr;
    const StoredWeight* weight = nullptr;
    size_t n_weights = 0;
};

// One block, ready to be looked into. Whatever the bytes are, nothing is read beyond the block.
class PackedBlock {
  public:
    PackedBlock(std::span<const uint32_t> offsets, std::span<const uint8_t> records, unsigned shift)
        : offsets_(offsets.data()),
          n_buckets_(offsets.size() - 1),
          records_(records),
          shift_(shift),
          low_bytes_(shift <= kByteShift ? 1 : 2) {}

    size_t n_bytes() const { return records_.size(); }

    FeatureWeights find(uint32_t feature) const {
        const size_t bucket = feature >> shift_;
        if (bucket >= n_buckets_) return {};
        const Record r = record(offsets_[bucket], offsets_[bucket + 1]);
        const uint32_t wanted = feature & ((uint32_t{1} << shift_) - 1);
        const size_t at = low_bytes_ == 1 ? position<uint8_t>(r, wanted) : position<uint16_t>(r, wanted);
        if (at >= r.n) return {};
        const size_t first = skip_features(r, 0, at);
        return {r.child + first, r.weight + first, skip_features(r, first, 1) - first};
    }

    // Ask the memory for what `find` will read: some look-ups ahead first for the offset, then for the
    // record.
    void expect_offset(uint32_t feature) const {
        if (const size_t bucket = feature >> shift_; bucket < n_buckets_)
            __builtin_prefetch(offsets_ + bucket);
    }
    void expect_record(uint32_t feature) const {
        if (const size_t bucket = feature >> shift_; bucket < n_buckets_)
            __builtin_prefetch(records_.data() + std::min<size_t>(offsets_[bucket], records_.size()));
    }

    // Calls fn(number of the bucket, record) for each bucket that is not empty. The records do not overlap,
    // so that all of them together have no more features than the block has bytes.
    template <class Fn>
    void for_each_record(Fn&& fn) const {
        uint32_t begin = 0;
        for (size_t bucket = 0; bucket < n_buckets_; ++bucket) {
            begin = std::max(begin, offsets_[bucket]);
            const Record r = record(begin, offsets_[bucket + 1]);
            if (r.n > 0) fn(bucket, r);
            begin = std::max(begin, offsets_[bucket + 1]);
        }
    }

    // Calls fn(feature, its weights) for each feature, ascending.
    template <class Fn>
    void for_each_feature(Fn&& fn) const {
        for_each_record([&](size_t bucket, const Record& r) {
            for (size_t i = 0, first = 0, end; i < r.n; ++i, first = end) {
                end = skip_features(r, first, 1);
                fn(feature(bucket, r, i), FeatureWeights{r.child + first, r.weight + first, end - first});
            }
        });
    }

    // The i-th feature of a bucket.
    size_t feature(size_t bucket, const Record& r, size_t i) const {
        return (bucket << shift_) + (low_bytes_ == 1 ? r.low[i] : load<uint16_t>(r.low + 2 * i));
    }

    // Throws std::invalid_argument unless every offset, feature and child is as it must be.
    void verify(size_t n_features, size_t n_children) const;

  private:
    template <class T>
    static T load(const uint8_t* bytes) {
        T value;
        std::memcpy(&value, bytes, sizeof value);
        return value;
    }

    // The record in bytes begin … end of the block; without features where these cannot hold one.
    Record record(size_t begin, size_t end) const {
        end = std::min(end, records_.size());
        if (begin >= end) return {};
        const uint8_t* bytes = records_.data() + begin;
        const size_t n = bytes[0], length = end - begin, head = 1 + n * low_bytes_;
        if (head > length) return {};
        const size_t n_weights = (length - head) / 2;
        const uint8_t* child = bytes + head;
        return {bytes + 1, n, child, reinterpret_cast<const StoredWeight*>(child + n_weights), n_weights};
    }

    // Where `wanted` stands among a record's lower bits, all different; n or beyond if it does not. A word of
    // eight bytes is compared at once: its lanes that are equal become zero, and of these the top bits are
    // set. Words may reach into the children, which come after the lower bits.
    template <class T>
    static size_t position(const Record& r, uint32_t wanted) {
        constexpr size_t lanes = sizeof(uint64_t) / sizeof(T), bits = 8 * sizeof(T);
        constexpr uint64_t ones = ~uint64_t{0} / ((uint64_t{1} << bits) - 1), tops = ones << (bits - 1);
        const size_t within = r.n + 2 * r.n_weights / sizeof(T);
        size_t at = 0;
        for (; at < r.n && at + lanes <= within; at += lanes) {
            const uint64_t word = load<uint64_t>(r.low + at * sizeof(T)) ^ (wanted * ones);
            if (const uint64_t equal = ~(((word & ~tops) + ~tops) | word) & tops)
                return at + static_cast<size_t>(std::countr_zero(equal)) / bits;
        }
        while (at < r.n && load<T>(r.low + at * sizeof(T)) != wanted) ++at;
        return at;
    }

    // The weight where the n-th feature after the one that begins at `weight` begins, or the end of the
    // record. The top bits mark where features end. Words may reach into the weights, which come after the
    // children: as many features as there should be end before them.
    static size_t skip_features(const Record& r, size_t weight, size_t n) {
        for (; n > 0 && weight + 8 <= 2 * r.n_weights; weight += 8) {
            uint64_t word = load<uint64_t>(r.child + weight) & 0x8080808080808080ULL;
            const size_t ends = (word >> 7) * 0x0101010101010101ULL >> 56;
            if (ends >= n) {
                while (--n > 0) word &= word - 1;
                weight += static_cast<size_t>(std::countr_zero(word)) / 8 + 1;
                return std::min(weight, r.n_weights);
            }
            n -= ends;
        }
        for (; n > 0 && weight < r.n_weights; ++weight) n -= r.child[weight] >> 7;
        return std::min(weight, r.n_weights);
    }

    const uint32_t* offsets_;
    size_t n_buckets_;
    std::span<const uint8_t> records_;
    unsigned shift_;
    size_t low_bytes_;
};

class Forest {
  public:
    // Proves what prediction relies on: everything but the contents of buckets and records, which are read
    // with bounds checked. Takes time for each node, child and block. Throws std::invalid_argument.
    // `bare`: leaves have no classifiers, the trees only lead to them.
    Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels, bool bare = false);

    const ForestArrays& arrays() const { return a_; }
    size_t n_trees() const { return a_.tree_ptr.size() - 1; }
    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return n_labels_; }
    bool is_bare() const { return bare_; }
    size_t n_children(size_t node) const {
        return static_cast<size_t>(a_.child_ptr[node + 1] - a_.child_ptr[node]);
    }
    // Of a forest that is one leaf: where a label stands among its children, or kNowhere.
    bool is_one_leaf() const { return a_.is_leaf.size() == 1 && a_.is_leaf[0]; }
    uint32_t place(uint32_t label) const { return place_[label]; }

    PackedBlock block(size_t b) const {
        const auto part = [b](auto all, std::span<const int64_t> ptr) {
            return all.subspan(static_cast<size_t>(ptr[b]), static_cast<size_t>(ptr[b + 1] - ptr[b]));
        };
        return {part(a_.buckets, a_.bucket_ptr), part(a_.records, a_.record_ptr), a_.shift[b]};
    }

    // Checks the contents too: every feature, offset and child in range. Linear in the size of the model.
    void verify() const;

  private:
    void check_structure() const;

    ForestArrays a_;
    size_t n_features_;
    size_t n_labels_;
    bool bare_;
    std::vector<uint32_t> place_;
};

// The arrays of a forest under construction.
struct OwnedForest {
    std::vector<int64_t> tree_ptr, child_ptr;
    std::vector<int32_t> children;
    std::vector<uint8_t> is_leaf;
    std::vector<float> bias, scale;
    std::vector<int64_t> block_ptr, bucket_ptr, record_ptr;
    std::vector<uint8_t> shift;
    std::vector<uint32_t> buckets;
    std::vector<uint8_t> records;

    // Appends a block. Features ascend; weights ptr[i] … ptr[i + 1], at least one, are those of the i-th,
    // each with its child within the block.
    void add_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                   std::span<const uint8_t> child, std::span<const StoredWeight> weight);
};

}  // namespace bonsai

// The trained forest: immutable flat arrays, exactly as the model file stores them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bonsai {

// Weights are stored in blocks: the classifiers of up to 128 children of a node, feature by feature. A weight
// is a signed byte times its classifier's scale. A block's features are cut into buckets by their upper bits,
// and all that a bucket holds stands in one record of bytes:
//     number of features | how many of them have a size, the first ones | lower bits of each feature, in one
//     byte or two | sizes | what each feature holds
// An empty bucket has no bytes at all. A feature of few weights holds their children, then the weights; one
// of more than eight is spread: a map of 128 bits tells the children, so that a processor can put 16 weights
// into their places at once. The size is the number of these bytes, and tells which of the two it is; the
// features without a size have one weight. Looking a feature up reads the bucket's offset and its record: two
// places in memory, however large the block is, and without a branch that depends on what stands there.
using StoredWeight = int8_t;
inline constexpr int kWeightMax = 127;
inline constexpr size_t kBlockChildren = 128;
inline constexpr size_t kMapBytes = kBlockChildren / 8;
inline constexpr size_t kMostListed = 8;        // weights that are not spread
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

// The only list of the arrays. fn(name, array of each forest …) for each array, in the order of the model
// file; a forest is a ForestArrays or an OwnedForest. First the structure: all but the weights.
template <class Fn, class... Forests>
void for_each_structure_array(Fn&& fn, Forests&&... forest) {
    fn("tree_ptr", forest.tree_ptr...);
    fn("child_ptr", forest.child_ptr...);
    fn("children", forest.children...);
    fn("is_leaf", forest.is_leaf...);
    fn("bias", forest.bias...);
    fn("scale", forest.scale...);
    fn("block_ptr", forest.block_ptr...);
    fn("bucket_ptr", forest.bucket_ptr...);
    fn("record_ptr", forest.record_ptr...);
    fn("shift", forest.shift...);
}
template <class Fn, class... Forests>
void for_each_array(Fn&& fn, Forests&&... forest) {
    for_each_structure_array(fn, forest...);
    fn("buckets", forest.buckets...);
    fn("records", forest.records...);
}

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

    ForestArrays arrays() const {
        ForestArrays views;
        for_each_array([](const char*, auto& view, const auto& owned) { view = owned; }, views, *this);
        return views;
    }

    // Appends a block. Features ascend; weights ptr[i] … ptr[i + 1], at least one, are those of the i-th,
    // each with its child within the block.
    void add_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                   std::span<const uint8_t> child, std::span<const StoredWeight> weight);
};

// What a block holds of one feature; of size 0 if the block lacks it.
struct FeatureWeights {
    const uint8_t* bytes = nullptr;
    size_t size = 0;

    bool spread() const { return size > 2 * kMostListed; }
    size_t n() const { return spread() ? size - kMapBytes : size / 2; }
    StoredWeight weight(size_t w) const {
        return static_cast<StoredWeight>(bytes[(spread() ? kMapBytes : n()) + w]);
    }

    // fn(child, weight): children below 128, whatever the bytes are.
    template <class Fn>
    void for_each(Fn&& fn) const {
        if (!spread())
            for (size_t w = 0; w < n(); ++w) fn(bytes[w] % kBlockChildren, weight(w));
        else
            for (size_t c = 0, w = 0; c < kBlockChildren && w < n(); ++c)
                if (bytes[c / 8] >> (c % 8) & 1) fn(c, weight(w++));
    }
};

// What a bucket holds.
struct Record {
    const uint8_t* low = nullptr;  // of each feature, little-endian; first those with a size
    size_t n = 0;                  // features
    size_t n_sized = 0;
    const uint8_t* size = nullptr;
    const uint8_t* held = nullptr;  // what the features hold, one after the other
    const uint8_t* end = nullptr;
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

    const uint8_t* end() const { return records_.data() + records_.size(); }

    FeatureWeights find(uint32_t feature) const {
        const size_t bucket = feature >> shift_;
        if (bucket >= n_buckets_) return {};
        const size_t begin = offsets_[bucket];
        const Record r = record(begin, offsets_[bucket + 1]);
        const uint32_t wanted = feature & ((uint32_t{1} << shift_) - 1);
        if (r.n == 0) return {};
        if (r.n > kAtOnce || begin + kReadAtOnce > records_.size()) return search(r, wanted);
        const uint64_t equal = low_bytes_ == 1 ? equal_bytes(r.low, static_cast<uint8_t>(wanted))
                                               : equal_pairs(r.low, static_cast<uint16_t>(wanted));
        const uint64_t beyond = uint64_t{1} << r.n;
        const auto at = static_cast<size_t>(std::countr_zero((equal & (beyond - 1)) | beyond));
        const size_t sized = std::min(at, r.n_sized);
        const FeatureWeights found{r.held + sum_of_bytes(r.size, sized) + 2 * (at - sized),
                                   at < r.n_sized ? r.size[at] : size_t{2}};
        const bool there =
            at < r.n && found.size <= static_cast<size_t>(std::max<ptrdiff_t>(0, r.end - found.bytes));
        return {found.bytes, there ? found.size : 0};
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

    // Calls fn(feature, what the block holds of it) for each feature; within a bucket those with a size
    // first.
    template <class Fn>
    void for_each_feature(Fn&& fn) const {
        for_each_record([&](size_t bucket, const Record& r) {
            const uint8_t* held = r.held;
            for (size_t i = 0; i < r.n_sized; held += r.size[i++]) {
                if (r.size[i] > r.end - held) return;
                fn(feature(bucket, r, i), FeatureWeights{held, r.size[i]});
            }
            // A loop of their own: most features have one weight, and nothing to decide.
            const size_t most = std::min(r.n, r.n_sized + static_cast<size_t>(r.end - held) / 2);
            for (size_t i = r.n_sized; i < most; ++i, held += 2)
                fn(feature(bucket, r, i), FeatureWeights{held, 2});
        });
    }

    // The i-th feature of a bucket.
    size_t feature(size_t bucket, const Record& r, size_t i) const {
        return (bucket << shift_) + (low_bytes_ == 1 ? r.low[i] : pair(r.low + 2 * i));
    }

    // Throws std::invalid_argument unless every offset, feature and child is as it must be.
    void verify(size_t n_features, size_t n_children) const;

  private:
    static size_t pair(const uint8_t* bytes) { return bytes[0] + (size_t{bytes[1]} << 8); }

    // The record in bytes begin … end of the block; without features where these cannot hold one.
    Record record(size_t begin, size_t end) const {
        end = std::min(end, records_.size());
        if (begin + 2 > end) return {};
        const uint8_t* bytes = records_.data() + begin;
        const size_t n = bytes[0], n_sized = bytes[1], head = 2 + n * low_bytes_ + n_sized;
        if (n_sized > n || head > end - begin) return {};
        return {bytes + 2, n, n_sized, bytes + head - n_sized, bytes + head, records_.data() + end};
    }

    FeatureWeights search(const Record& r, uint32_t wanted) const {
        FeatureWeights next{r.held, 0};
        for (size_t i = 0; i < r.n; ++i) {
            next = {next.bytes + next.size, i < r.n_sized ? r.size[i] : size_t{2}};
            if (next.size > static_cast<size_t>(r.end - next.bytes)) return {};
            if (feature(0, r, i) == wanted) return next;
        }
        return {};
    }

    // Records of so many features are looked through at once. That reads lower bits and sizes of as many,
    // whether they are there or not.
    static constexpr size_t kAtOnce = 32;
    static constexpr size_t kReadAtOnce = 2 + kAtOnce * 2 + kAtOnce;

#if defined(__SSE2__)
    static __m128i load(const uint8_t* bytes) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    }
    static uint64_t bits(__m128i bytes) { return static_cast<uint32_t>(_mm_movemask_epi8(bytes)); }
    // Bit i: the i-th of 32 is `wanted`.
    static uint64_t equal_bytes(const uint8_t* bytes, uint8_t wanted) {
        const __m128i all = _mm_set1_epi8(static_cast<char>(wanted));
        return bits(_mm_cmpeq_epi8(load(bytes), all)) | bits(_mm_cmpeq_epi8(load(bytes + 16), all)) << 16;
    }
    static uint64_t equal_pairs(const uint8_t* bytes, uint16_t wanted) {
        const __m128i all = _mm_set1_epi16(static_cast<short>(wanted));
        const auto sixteen = [&](const uint8_t* part) {
            return bits(
                _mm_packs_epi16(_mm_cmpeq_epi16(load(part), all), _mm_cmpeq_epi16(load(part + 16), all)));
        };
        return sixteen(bytes) | sixteen(bytes + 32) << 16;
    }
    // Of the first n, up to 32.
    static size_t sum_of_bytes(const uint8_t* bytes, size_t n) {
        alignas(64) static constexpr struct Window {
            constexpr Window() : at{} {
                for (size_t i = 0; i < kAtOnce; ++i) at[i] = 0xff;
            }
            uint8_t at[2 * kAtOnce];
        } window;
        const uint8_t* mask = window.at + kAtOnce - n;
        const __m128i zero = _mm_setzero_si128();
        const __m128i sums =
            _mm_add_epi64(_mm_sad_epu8(_mm_and_si128(load(bytes), load(mask)), zero),
                          _mm_sad_epu8(_mm_and_si128(load(bytes + 16), load(mask + 16)), zero));
        return static_cast<size_t>(_mm_cvtsi128_si64(sums)) +
               static_cast<size_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums)));
    }
#else
    static uint64_t equal_bytes(const uint8_t* bytes, uint8_t wanted) {
        uint64_t equal = 0;
        for (size_t i = 0; i < kAtOnce; ++i) equal |= uint64_t{bytes[i] == wanted} << i;
        return equal;
    }
    static uint64_t equal_pairs(const uint8_t* bytes, uint16_t wanted) {
        uint64_t equal = 0;
        for (size_t i = 0; i < kAtOnce; ++i) equal |= uint64_t{pair(bytes + 2 * i) == wanted} << i;
        return equal;
    }
    static size_t sum_of_bytes(const uint8_t* bytes, size_t n) {
        size_t sum = 0;
        for (size_t i = 0; i < n; ++i) sum += bytes[i];
        return sum;
    }
#endif

    const uint32_t* offsets_;
    size_t n_buckets_;
    std::span<const uint8_t> records_;
    unsigned shift_;
    size_t low_bytes_;
};

// Immutable. Nodes of all trees are numbered through, as in the arrays.
class Forest {
  public:
    // What training made; nothing is checked. `routing_only`: leaves have no classifiers, the trees only lead
    // to them.
    Forest(OwnedForest&& made, size_t n_features, size_t n_labels, bool routing_only);
    // What a file or a caller holds. All structure is copied and validated, in time linear in nodes, children
    // and blocks. Only `buckets` and `records` stay where they are; they may be mapped memory that somebody
    // changes, so every read of them is checked. `owner` keeps them alive. Throws std::invalid_argument.
    Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels, bool routing_only = false,
           std::shared_ptr<const void> owner = nullptr);
    Forest(const Forest&) = delete;
    Forest& operator=(const Forest&) = delete;

    const ForestArrays& arrays() const { return a_; }
    size_t n_trees() const { return a_.tree_ptr.size() - 1; }
    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return n_labels_; }
    bool routing_only() const { return routing_only_; }
    size_t n_children(size_t node) const {
        return static_cast<size_t>(a_.child_ptr[node + 1] - a_.child_ptr[node]);
    }
    size_t n_blocks(size_t node) const { return (n_children(node) + kBlockChildren - 1) / kBlockChildren; }
    // How many children, each node's rounded up to a multiple of 16, a row may have to choose from at once
    // that is at up to `beam` inner nodes of each tree.
    size_t most_choices(size_t beam) const {
        size_t all = 0;
        for (const InnerNodes& inner : inner_)
            all += beam > inner.children / std::max<size_t>(1, inner.widest) ? inner.children
                                                                             : beam * inner.widest;
        return all;
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

    // fn(child, feature, value) for each weight of a node; children are counted from the node's first. What a
    // damaged file claims beyond the node's children and the features is left out.
    template <class Fn>
    void for_each_weight(size_t node, Fn&& fn) const {
        if (node >= a_.is_leaf.size()) throw std::invalid_argument("the forest has no such node");
        const auto first = static_cast<size_t>(a_.child_ptr[node]);
        for (int64_t b = a_.block_ptr[node]; b < a_.block_ptr[node + 1]; ++b) {
            const size_t from = static_cast<size_t>(b - a_.block_ptr[node]) * kBlockChildren;
            block(static_cast<size_t>(b)).for_each_feature([&](size_t feature, const FeatureWeights& found) {
                if (feature >= n_features_) return;
                found.for_each([&](size_t c, StoredWeight weight) {
                    if (from + c < n_children(node))
                        fn(from + c, feature, a_.scale[first + from + c] * static_cast<float>(weight));
                });
            });
        }
    }

    // Checks the contents too: every feature, offset and child in range. Linear in the size of the model.
    void verify() const;

  private:
    void check_structure() const;
    void index();

    OwnedForest owned_;
    std::shared_ptr<const void> owner_;
    ForestArrays a_;
    size_t n_features_;
    size_t n_labels_;
    bool routing_only_;
    std::vector<uint32_t> place_;
    struct InnerNodes {  // of a tree
        size_t children = 0;
        size_t widest = 0;
    };
    std::vector<InnerNodes> inner_;
};

}  // namespace bonsai

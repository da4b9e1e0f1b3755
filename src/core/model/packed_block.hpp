// Blocks of 8-bit weights as the model file stores them, and the only code that reads them.
//
// A block holds the classifiers of up to 128 children of a node, feature by feature. A weight is a signed
// byte times its classifier's scale. The features of a block are divided into buckets by their upper bits;
// each non-empty bucket has one record of bytes:
//
//     n | s | lower bits of the n features, one byte or two each | s sizes | weights of each feature
//
// The first s features have several weights, and a size: the number of bytes of their weights. The others
// have one weight. Up to eight weights are a list: the children, a byte each, then the weights. More weights
// are a bitmap of 128 bits that marks the children, then the weights by ascending child; vector instructions
// expand 16 of them at a time. A look-up reads the bucket's offset and its record: two places in memory for
// any block size, without branches that depend on the contents.
//
// Offsets and records may be in a mapped file that another process changes. So every number is read once
// (`read_once`) and checked before use; no read goes beyond the block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/memory.hpp"

namespace bonsai {

using StoredWeight = int8_t;
inline constexpr int kWeightMax = 127;  // weights are -127 ... 127
inline constexpr size_t kBlockChildren = 128;
inline constexpr size_t kBitmapBytes = kBlockChildren / 8;
inline constexpr size_t kMaxListed = 8;         // weights of a feature in a list; more are a bitmap
inline constexpr size_t kRecordFeatures = 255;  // maximum; one byte holds their number
inline constexpr unsigned kByteShift = 8;       // up to this shift, lower bits fit into one byte
inline constexpr unsigned kMaxShift = 16;

// Reads a number from memory that may change. The empty statement hides its origin, so that the compiler
// cannot read it again.
template <class T>
[[gnu::always_inline]] inline size_t read_once(const T* from) {
    size_t value = *from;
    asm("" : "+r"(value));
    return value;
}

// The weights of one feature in a block; of size 0 if it has none. Valid for any bytes.
struct FeatureWeights {
    const uint8_t* bytes = nullptr;
    size_t size = 0;

    bool is_bitmap() const { return size > 2 * kMaxListed; }
    size_t n() const { return is_bitmap() ? size - kBitmapBytes : size / 2; }
    StoredWeight weight(size_t w) const {
        return static_cast<StoredWeight>(bytes[(is_bitmap() ? kBitmapBytes : n()) + w]);
    }

    // Calls fn(child, weight); children are below 128 for any bytes.
    template <class Fn>
    void for_each(Fn&& fn) const {
        if (!is_bitmap())
            for (size_t w = 0; w < n(); ++w) fn(bytes[w] % kBlockChildren, weight(w));
        else
            for (size_t c = 0, w = 0; c < kBlockChildren && w < n(); ++c)
                if (bytes[c / 8] >> (c % 8) & 1) fn(c, weight(w++));
    }
};

// The record of a bucket, with its parts located and within bounds.
struct Record {
    const uint8_t* low = nullptr;  // lower bits of each feature, little-endian
    size_t n = 0;                  // features
    size_t n_sized = 0;            // the first ones have a size
    const uint8_t* size = nullptr;
    const uint8_t* weights = nullptr;
    const uint8_t* end = nullptr;
};

// A borrowed block.
class PackedBlock {
  public:
    // offsets: the start of each bucket's record within the block, and the end of the last one.
    PackedBlock(std::span<const uint32_t> offsets, std::span<const uint8_t> records, unsigned shift)
        : offsets_(offsets.data()),
          n_buckets_(offsets.size() - 1),
          records_(records),
          shift_(shift),
          low_bytes_(shift <= kByteShift ? 1 : 2) {}

    size_t n_bytes() const { return records_.size(); }
    const uint8_t* end() const { return records_.data() + records_.size(); }

    FeatureWeights find(uint32_t feature) const {
        FeatureWeights found;
        const bool done = is_wide() ? find_fast<true>(feature, found) : find_fast<false>(feature, found);
        return done ? found : find_slowly(feature);
    }
    // The common case of `find`: records of up to 32 features that do not end the block, compared with vector
    // instructions, without branches that depend on the place of the feature. Returns false if `find_slowly`
    // is needed.
    template <bool wide>
    [[gnu::always_inline]] bool find_fast(uint32_t feature, FeatureWeights& found) const {
        found = {records_.data(), 0};
        const size_t bucket = feature >> shift_;
        if (bucket >= n_buckets_) return true;
        const size_t begin = read_once(offsets_ + bucket);
        const size_t end = std::min(read_once(offsets_ + bucket + 1), records_.size());
        if (begin >= end) return true;
        if (begin + kComparedBytes > records_.size()) return false;
        const uint8_t* const bytes = records_.data() + begin;
        const size_t n = read_once(bytes), n_sized = read_once(bytes + 1);
        const size_t sizes = 2 + (wide ? 2 * n : n), weights = sizes + n_sized;
        if ((n > kCompared) | (n_sized > n) | (weights > end - begin)) return false;
        const uint32_t wanted = feature & ((uint32_t{1} << shift_) - 1);
        const uint64_t equal = wide ? equal_pairs(bytes + 2, static_cast<uint16_t>(wanted))
                                    : equal_bytes(bytes + 2, static_cast<uint8_t>(wanted));
        const uint64_t beyond = uint64_t{1} << n;
        const auto at = static_cast<size_t>(std::countr_zero((equal & (beyond - 1)) | beyond));
        const size_t sized = std::min(at, n_sized);
        const size_t first = weights + sum_of_bytes(bytes + sizes, sized) + 2 * (at - sized);
        const size_t own = read_once(bytes + sizes + at), size = at < n_sized ? own : 2;
        const bool there = (at < n) & (first + size <= end - begin);
        found = {bytes + first, there ? size : 0};
        return true;
    }
    // Not inlined: the common case needs the registers.
    [[gnu::noinline]] FeatureWeights find_slowly(uint32_t feature) const {
        const size_t bucket = feature >> shift_;
        if (bucket >= n_buckets_) return {records_.data(), 0};
        const Record r = record(read_once(offsets_ + bucket), read_once(offsets_ + bucket + 1));
        for (Features all(*this, bucket, r); all.next();)
            if (all.feature() == feature) return all.weights();
        return {records_.data(), 0};
    }
    // Whether the lower bits of a feature take two bytes.
    bool is_wide() const { return low_bytes_ == 2; }

    // Prefetches for a `find` some look-ups later: first the offset, then the record.
    void prefetch_offset(uint32_t feature) const {
        if (const size_t bucket = feature >> shift_; bucket < n_buckets_)
            __builtin_prefetch(offsets_ + bucket);
    }
    void prefetch_record(uint32_t feature) const {
        if (const size_t bucket = feature >> shift_; bucket < n_buckets_)
            __builtin_prefetch(records_.data() +
                               std::min<size_t>(read_once(offsets_ + bucket), records_.size()));
    }

    size_t n_buckets() const { return n_buckets_; }
    // Calls fn(bucket, record) for each non-empty bucket from first to last. Records do not overlap for any
    // offsets: in total they have at most as many features as the block has bytes.
    template <class Fn>
    void for_each_record(Fn&& fn) const {
        for_each_record(0, n_buckets_, fn);
    }
    template <class Fn>
    void for_each_record(size_t first, size_t last, Fn&& fn) const {
        size_t begin = 0;
        for (size_t bucket = first; bucket < last; ++bucket) {
            begin = std::max(begin, read_once(offsets_ + bucket));
            const size_t end = read_once(offsets_ + bucket + 1);
            const Record r = record(begin, end);
            if (r.n > 0) fn(bucket, r);
            begin = std::max(begin, end);
        }
    }

    // The features of a record one by one, in order.
    class Features {
      public:
        Features(const PackedBlock& block, size_t bucket, const Record& record)
            : block_(block), bucket_(bucket), record_(record), next_(record.weights) {}

        // Moves on to the next feature; false after the last one. A feature takes at least two bytes, so that
        // a record that is too short ends early.
        bool next() {
            if (at_ >= record_.n || record_.end - next_ < 2) return false;
            // Always read, even if it is not a size: it is before next_, and a branch would be unpredictable.
            const size_t own = read_once(record_.size + at_), size = at_ < record_.n_sized ? own : 2;
            if (size > static_cast<size_t>(record_.end - next_)) return false;
            weights_ = {next_, size};
            next_ += size;
            ++at_;
            return true;
        }
        size_t feature() const { return block_.feature(bucket_, record_, at_ - 1); }
        const FeatureWeights& weights() const { return weights_; }
        bool has_size() const { return at_ <= record_.n_sized; }
        // Whether all features have been visited, and their weights fill the record.
        bool complete() const { return at_ == record_.n && next_ == record_.end; }

      private:
        const PackedBlock& block_;
        const size_t bucket_;
        const Record record_;
        const uint8_t* next_;
        size_t at_ = 0;
        FeatureWeights weights_;
    };

    // Calls fn(feature, its weights) for each feature of the block.
    template <class Fn>
    void for_each_feature(Fn&& fn) const {
        for_each_record([&](size_t bucket, const Record& r) {
            for (Features all(*this, bucket, r); all.next();) fn(all.feature(), all.weights());
        });
    }

    // Throws std::invalid_argument unless the block conforms to docs/internals/format.md.
    void verify(size_t n_features, size_t n_children) const;

  private:
    static size_t pair(const uint8_t* bytes) { return read_once(bytes) + (read_once(bytes + 1) << 8); }
    size_t feature(size_t bucket, const Record& r, size_t i) const {
        return (bucket << shift_) + (low_bytes_ == 1 ? read_once(r.low + i) : pair(r.low + 2 * i));
    }

    // The record in the bytes [begin, end) of the block; without features if these cannot hold a record.
    Record record(size_t begin, size_t end) const {
        end = std::min(end, records_.size());
        if (begin + 2 > end) return {};
        const uint8_t* bytes = records_.data() + begin;
        const size_t n = read_once(bytes), n_sized = read_once(bytes + 1);
        const size_t head = 2 + n * low_bytes_ + n_sized;
        if (n_sized > n || head > end - begin) return {};
        return {bytes + 2, n, n_sized, bytes + head - n_sized, bytes + head, records_.data() + end};
    }

    // The number of features that vector instructions compare at once, and the bytes that they read, even
    // beyond the record.
    static constexpr size_t kCompared = 32;
    static constexpr size_t kComparedBytes = 2 + 2 * kCompared + kCompared + 1;

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
    // The same for the first n, up to 32.
    static size_t sum_of_bytes(const uint8_t* bytes, size_t n) {
        alignas(64) static constexpr struct Window {
            constexpr Window() : at{} {
                for (size_t i = 0; i < kCompared; ++i) at[i] = 0xff;
            }
            uint8_t at[2 * kCompared];
        } window;
        const uint8_t* mask = window.at + kCompared - n;
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
        for (size_t i = 0; i < kCompared; ++i) equal |= uint64_t{bytes[i] == wanted} << i;
        return equal;
    }
    static uint64_t equal_pairs(const uint8_t* bytes, uint16_t wanted) {
        uint64_t equal = 0;
        for (size_t i = 0; i < kCompared; ++i) equal |= uint64_t{pair(bytes + 2 * i) == wanted} << i;
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

// Appends a block to `offsets` and `records`, and returns its shift. Features ascend; the i-th has the
// weights [ptr[i], ptr[i + 1]), at least one, none of them 0, each with its child within the block.
unsigned encode_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                      std::span<const uint8_t> child, std::span<const StoredWeight> weight,
                      UninitialisedVector<uint32_t>& offsets, UninitialisedVector<uint8_t>& records);

}  // namespace bonsai

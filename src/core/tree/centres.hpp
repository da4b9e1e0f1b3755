// The centres of k-means: sums of rows in float, and their int8 form for comparisons with rows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {

// k sums of rows, each contiguous, since rows are added and removed one by one. A centre is its sum times 1 /
// norm.
struct Centres {
    // `sparse_`: whether the sums are mostly zero. Features that may be non-zero are then marked.
    Centres(size_t k_, size_t n_features_, bool sparse_, Pool& pool)
        : k(k_),
          n_features(n_features_),
          stride((padded_lanes(n_features) / kLaneStep | 1) * kLaneStep),
          sparse(sparse_),
          n_words((n_features + kWordFeatures - 1) / kWordFeatures),
          used(sparse ? k * n_words : 0, 0) {
        sums.ensure_size(k * stride);
        pool.run(k, [&](size_t c, unsigned) { std::fill_n(sum(c), stride, 0.0f); });
    }

    static constexpr size_t kWordFeatures = 64;

    size_t k;
    size_t n_features;
    size_t stride;  // an odd number of cache lines, so that a feature of all centres does not map to one
                    // cache set
    bool sparse;
    size_t n_words;
    std::vector<uint64_t>
        used;  // k x n_words: bits of features that occur, or occurred, in rows of the cluster
    Buffer<float> sums;
    std::vector<double> norm2 = std::vector<double>(k, 0.0);
    std::vector<float> inverse = std::vector<float>(k, 1.0f);  // 1 / norm; 0: the cluster is empty

    float* sum(size_t c) { return sums.data() + c * stride; }
    const float* sum(size_t c) const { return sums.data() + c * stride; }

    // Adds x to feature f of a sum. Threads must not add to the same word of features of a centre.
    void add(size_t c, size_t f, float x) {
        sum(c)[f] += x;
        if (sparse) used[c * n_words + f / kWordFeatures] |= uint64_t{1} << f % kWordFeatures;
    }

    // Calls fn(f, x) for the marked features in [begin, end), ascending; `begin` is a multiple of
    // kWordFeatures.
    template <class Fn>
    void for_each_used(size_t c, size_t begin, size_t end, Fn&& fn) const {
        const size_t last = std::min(n_words, (end + kWordFeatures - 1) / kWordFeatures);
        for (size_t word = begin / kWordFeatures; word < last; ++word)
            for (uint64_t bits = used[c * n_words + word]; bits; bits &= bits - 1) {
                const size_t f = word * kWordFeatures + static_cast<size_t>(std::countr_zero(bits));
                fn(f, sum(c)[f]);
            }
    }
};

// Calls fn(begin, end) for ranges of features, on all threads; `begin` is a multiple of kRangeFeatures.
inline constexpr size_t kRangeFeatures = 1024;
template <class Fn>
void for_each_feature_range(size_t n_features, Pool& pool, Fn&& fn) {
    pool.run((n_features + kRangeFeatures - 1) / kRangeFeatures, [&](size_t range, unsigned) {
        fn(range * kRangeFeatures, std::min(n_features, (range + 1) * kRangeFeatures));
    });
}

// The same for blocks of kLaneStep features within a range.
template <class Fn>
void for_each_feature_block(size_t begin, size_t end, Fn&& fn) {
    for (; begin < end; begin += kLaneStep) fn(begin, std::min(end, begin + kLaneStep));
}

// Copies some centres to a panel: out[(f - begin) * width + l] = feature f of the sum of centre lanes[l];
// padding repeats the last lane. Works on blocks of 4 x 4: `begin` and `width` are multiples of four, and
// `out` has room for `end` rounded up to such a multiple.
void transpose_centres(const Centres& centres, std::span<const uint32_t> lanes, size_t width, size_t begin,
                       size_t end, float* out);

// Unit centres as int8, feature-major with a scale for each feature: a quarter of the memory traffic, and
// accurate enough to find the nearest centre of most rows.
class QuantisedCentres {
  public:
    // Buffers of one task.
    struct Scratch {
        std::vector<int16_t> value;
        AlignedVector<int32_t> sum;
    };

    // `longest`: the largest number of entries of a row that will be compared.
    QuantisedCentres(size_t n_features, size_t longest);

    // Quantises the centres `which`, which replace earlier ones.
    void quantise(const Centres& centres, std::span<const uint32_t> which, const Kernels& kernels,
                  Pool& pool);

    // Writes similarity[c] for each quantised centre, -infinity for empty clusters. Returns the variance of
    // the errors.
    float compare(const RowsView& rows, uint32_t row, const Centres& centres, const Kernels& kernels,
                  Scratch& scratch, float* similarity) const;

  private:
    static constexpr size_t kMaxPartLanes = 128;

    void quantise_range(const Centres& centres, std::span<const float> inverse, size_t part, size_t begin,
                        size_t end, const Kernels& kernels);
    void quantise_used(const Centres& centres, std::span<const float> inverse, size_t part, size_t begin,
                       size_t end);

    size_t n_parts() const { return (stride_ + kMaxPartLanes - 1) / kMaxPartLanes; }
    size_t part_lanes(size_t part) const {
        return kMaxPartLanes < stride_ - part * kMaxPartLanes ? kMaxPartLanes
                                                              : stride_ - part * kMaxPartLanes;
    }
    size_t offset(size_t part, size_t f) const {
        return part * kMaxPartLanes * n_features_ + f * part_lanes(part);
    }

    size_t n_features_;
    float largest_value_;         // largest integer value of a row
    std::vector<uint32_t> lane_;  // quantised centres
    size_t stride_ = 0;           // their number, padded
    Buffer<int8_t> weights_;      // parts of up to 128 lanes, each n_features x lanes
    // The factor of a row's value before rounding, parts x n_features; and the factor of integer sums, per
    // part.
    std::vector<float> scale_, unit_;
};

}  // namespace bonsai

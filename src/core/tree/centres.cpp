#include "tree/centres.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace bonsai {
namespace {

// The nearest integer, for |x| up to 2^22.
int32_t round_to_integer(float x) {
    constexpr float shift = 0x1.8p23f;  // adding it leaves the integer in the low bits
    return std::bit_cast<int32_t>(x + shift) - std::bit_cast<int32_t>(shift);
}

typedef float FloatX4 __attribute__((vector_size(16)));

template <int A, int B, int C, int D>
FloatX4 shuffle(FloatX4 a, FloatX4 b) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, A, B, C, D);
#else
    typedef int32_t IntX4 __attribute__((vector_size(16)));
    return __builtin_shuffle(a, b, IntX4{A, B, C, D});
#endif
}

}  // namespace

void transpose_centres(const Centres& centres, std::span<const uint32_t> lanes, size_t width, size_t begin,
                       size_t end, float* out) {
    for (size_t l = 0; l < width; l += 4) {
        const float* sum[4];
        for (size_t j = 0; j < 4; ++j) {
            sum[j] = centres.sum(lanes[std::min(l + j, lanes.size() - 1)]);
            __builtin_prefetch(sum[j] + end);
        }
        for (size_t f = begin; f < end; f += 4) {
            FloatX4 a, b, c, d;
            std::memcpy(&a, sum[0] + f, sizeof a);
            std::memcpy(&b, sum[1] + f, sizeof b);
            std::memcpy(&c, sum[2] + f, sizeof c);
            std::memcpy(&d, sum[3] + f, sizeof d);
            const FloatX4 ab_low = shuffle<0, 4, 1, 5>(a, b), cd_low = shuffle<0, 4, 1, 5>(c, d),
                          ab_high = shuffle<2, 6, 3, 7>(a, b), cd_high = shuffle<2, 6, 3, 7>(c, d);
            const FloatX4 transposed[4] = {
                shuffle<0, 1, 4, 5>(ab_low, cd_low), shuffle<2, 3, 6, 7>(ab_low, cd_low),
                shuffle<0, 1, 4, 5>(ab_high, cd_high), shuffle<2, 3, 6, 7>(ab_high, cd_high)};
            for (size_t j = 0; j < 4; ++j)
                std::memcpy(out + (f - begin + j) * width + l, &transposed[j], sizeof transposed[j]);
        }
    }
}

// The absolute values of a unit row sum to at most the square root of their number; times 127, this fits into
// 32 bits.
QuantisedCentres::QuantisedCentres(size_t n_features, size_t longest)
    : n_features_(n_features),
      largest_value_(std::min(32767.0f, 0x1p23f / std::sqrt(static_cast<float>(longest)))) {}

void QuantisedCentres::quantise(const Centres& centres, std::span<const uint32_t> which,
                                const Kernels& kernels, Pool& pool) {
    lane_.assign(which.begin(), which.end());
    stride_ = padded_lanes(lane_.size());
    weights_.ensure_size(n_features_ * stride_);
    scale_.resize(n_features_ * n_parts());
    Panel inverse(stride_, 0.0f);
    for (size_t l = 0; l < lane_.size(); ++l) inverse[l] = centres.inverse[lane_[l]];
    for_each_feature_range(n_features_, pool, [&](size_t begin, size_t end) {
        for (size_t part = 0; part < n_parts(); ++part)
            if (centres.sparse)
                quantise_used(centres, inverse, part, begin, end);
            else
                quantise_range(centres, inverse, part, begin, end, kernels);
    });
    unit_.resize(n_parts());
    for (size_t part = 0; part < n_parts(); ++part) {
        const std::span<float> scale(scale_.data() + part * n_features_, n_features_);
        const float most = *std::max_element(scale.begin(), scale.end());
        unit_[part] = most / largest_value_;
        if (most > 0)
            for (float& s : scale) s *= largest_value_ / most;
    }
}

void QuantisedCentres::quantise_range(const Centres& centres, std::span<const float> inverse, size_t part,
                                      size_t begin, size_t end, const Kernels& kernels) {
    alignas(64) float sums[kLaneStep * kMaxPartLanes];  // a block of the centres, transposed within L1
    const size_t first = part * kMaxPartLanes, width = part_lanes(part);
    const auto lanes = std::span(lane_).subspan(first);
    for_each_feature_block(begin, end, [&](size_t block, size_t block_end) {
        transpose_centres(centres, lanes.first(std::min(width, lanes.size())), width, block, block_end, sums);
        for (size_t f = block; f < block_end; ++f)
            scale_[part * n_features_ + f] = kernels.quantise_int8(
                sums + (f - block) * width, inverse.data() + first, width, weights_.data() + offset(part, f));
    });
}

// The same for sparse sums.
void QuantisedCentres::quantise_used(const Centres& centres, std::span<const float> inverse, size_t part,
                                     size_t begin, size_t end) {
    const size_t first = part * kMaxPartLanes, last = std::min(first + kMaxPartLanes, lane_.size());
    float* const scale = scale_.data() + part * n_features_;
    std::fill(scale + begin, scale + end, 0.0f);
    std::fill(weights_.data() + offset(part, begin), weights_.data() + offset(part, end), int8_t{0});
    for (size_t l = first; l < last; ++l)
        centres.for_each_used(lane_[l], begin, end, [&](size_t f, float x) {
            scale[f] = std::max(scale[f], std::abs(x * inverse[l]));
        });
    float per_unit[kRangeFeatures];  // factor from weight to integer; 0: the scale is too small to divide by
    for (size_t f = begin; f < end; ++f) {
        scale[f] /= 127;
        per_unit[f - begin] = 1 / scale[f] < INFINITY ? 1 / scale[f] : 0.0f;
        if (per_unit[f - begin] == 0) scale[f] = 0;
    }
    for (size_t l = first; l < last; ++l)
        centres.for_each_used(lane_[l], begin, end, [&](size_t f, float x) {
            weights_[offset(part, f) + l - first] =
                static_cast<int8_t>(round_to_integer(x * inverse[l] * per_unit[f - begin]));
        });
}

float QuantisedCentres::compare(const RowsView& rows, uint32_t row, const Centres& centres,
                                const Kernels& kernels, Scratch& scratch, float* similarity) const {
    const auto begin = static_cast<size_t>(rows.ptr[row]), n = rows.row_size(row);
    const int32_t* index = rows.index + begin;
    scratch.value.resize(n);
    float variance = 0;
    for (size_t part = 0; part < n_parts(); ++part) {
        const float* scale = scale_.data() + part * n_features_;
        int64_t squares = 0;
        for (size_t e = 0; e < n; ++e) {
            const int32_t v = round_to_integer(rows.value[begin + e] * scale[index[e]]);
            scratch.value[e] = static_cast<int16_t>(v);
            squares += v * v;
        }
        scratch.sum.assign(part_lanes(part), 0);
        kernels.accumulate_int8(weights_.data() + offset(part, 0), part_lanes(part),
                                reinterpret_cast<const uint32_t*>(index), scratch.value.data(), n,
                                scratch.sum.data());
        const float unit = unit_[part];
        const size_t first = part * kMaxPartLanes, last = std::min(first + kMaxPartLanes, lane_.size());
        for (size_t l = first; l < last; ++l)
            similarity[lane_[l]] =
                centres.inverse[lane_[l]] > 0 ? unit * static_cast<float>(scratch.sum[l - first]) : -INFINITY;
        // Rounding to an integer has an error of variance 1/12, for the weights (up to 127) and for the row's
        // values.
        const float roundings = static_cast<float>(squares) + static_cast<float>(n) * 127 * 127;
        variance = std::max(variance, unit * unit * roundings / 12);
    }
    return variance;
}

}  // namespace bonsai

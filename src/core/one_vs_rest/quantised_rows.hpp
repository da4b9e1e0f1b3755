// All training rows in two quantised forms, for one-vs-rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {

// Sparse rows in two forms. For one classifier at a time, which is memory-bound: 32-bit words of a value and
// its feature. For 64 classifiers with int8 weights at once: int16 values.
class QuantisedRows {
  public:
    // Borrows the rows.
    QuantisedRows(const RowsView& rows, Pool& pool);

    size_t n_rows() const { return view_.n_rows; }
    size_t n_features() const { return view_.n_features; }
    size_t n_entries() const { return static_cast<size_t>(view_.ptr[view_.n_rows]); }
    size_t row_size(size_t i) const { return view_.row_size(i); }
    std::span<const int32_t> features(size_t i) const { return {view_.index + view_.ptr[i], row_size(i)}; }
    float norm2(size_t i) const { return norm2_[i]; }

    // Row i . w
    float dot(size_t i, const float* w) const {
        FloatX4 sums = {};
        int64_t e = view_.ptr[i];
        const int64_t end = view_.ptr[i + 1];
        if (words_.empty()) {  // more features than a word has room for
            for (; e < end; ++e) sums[e & 3] += view_.value[e] * w[view_.index[e]];
            return (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
        for (; e + 4 <= end; e += 4)
            sums +=
                values(e) * FloatX4{w[feature(e)], w[feature(e + 1)], w[feature(e + 2)], w[feature(e + 3)]};
        float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (; e < end; ++e) sum += static_cast<float>(words_[e] >> feature_bits_) * w[feature(e)];
        return sum * unit_[i];
    }

    // w += step x row i. Four entries at a time: the compiler cannot tell that the features of a row are
    // distinct.
    void add(size_t i, float step, float* w) const {
        int64_t e = view_.ptr[i];
        const int64_t end = view_.ptr[i + 1];
        if (words_.empty()) {
            for (; e < end; ++e) w[view_.index[e]] += step * view_.value[e];
            return;
        }
        step *= unit_[i];
        for (; e + 4 <= end; e += 4) {
            const uint32_t f[] = {feature(e), feature(e + 1), feature(e + 2), feature(e + 3)};
            const FloatX4 sum = FloatX4{w[f[0]], w[f[1]], w[f[2]], w[f[3]]} + step * values(e);
            for (int k = 0; k < 4; ++k) w[f[k]] = sum[k];
        }
        for (; e < end; ++e) w[feature(e)] += step * static_cast<float>(words_[e] >> feature_bits_);
    }

    // Prefetches the words of row i.
    void prefetch(size_t i) const {
        constexpr int64_t line = 64 / sizeof(int32_t);
        if (!words_.empty())
            for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; e += line) __builtin_prefetch(&words_[e]);
    }

    // A row's largest value adds this, times the weight, to the sum of a scan.
    static constexpr double kUnits = 4;

    // The factor by which weights with this norm and largest magnitude are scaled to int8, such that no
    // partial sum over a row overflows 16 bits, with room for the rounding of each weight and product.
    float weight_scale(double norm, double largest) const;

    // A scan of these rows. With `tolerance`, all rows above a threshold are found in spite of rounding
    // errors, and some others as well.
    QuantisedScan scan(const uint32_t* panel_row, const int16_t* panel, const float* threshold,
                       bool tolerance) const;

  private:
    typedef int32_t IntX4 __attribute__((vector_size(16)));
    typedef float FloatX4 __attribute__((vector_size(16)));

    double quantise(size_t i);

    uint32_t feature(int64_t e) const {
        return static_cast<uint32_t>(words_[e]) & ((uint32_t{1} << feature_bits_) - 1);
    }
    FloatX4 values(int64_t e) const {
        IntX4 words;
        std::memcpy(&words, &words_[e], sizeof words);
        return __builtin_convertvector(words >> feature_bits_, FloatX4);
    }

    RowsView view_;
    int feature_bits_;
    AlignedVector<int32_t> words_;  // value x 2^feature_bits + feature; empty if there are too many features
    std::vector<int16_t> int16_;    // values relative to the largest of their row
    std::vector<float> inverse_;    // 1 / largest value of the row; 0 for an empty row
    std::vector<int16_t> tolerance_;  // rounding error of a row's sum
    std::vector<float> unit_;         // factor of the values in a row's words
    std::vector<float> norm2_;
    double longest_ = 1;  // maximum over rows of norm / largest value
    size_t most_entries_ = 0;
};

}  // namespace bonsai

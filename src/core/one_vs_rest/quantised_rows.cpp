#include "one_vs_rest/quantised_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace bonsai {
namespace {

constexpr int kMaxFeatureBits = 21;                            // 10 bits remain for the value
constexpr double kLargestInt16 = QuantisedRows::kUnits * 128;  // bound of a row's values
constexpr double kMaxSum = 32767;
constexpr double kDeviations = 6;  // standard deviations of a sum's rounding error that the tolerance covers
constexpr double kMaxTolerance = 16384;

}  // namespace

QuantisedRows::QuantisedRows(const RowsView& rows, Pool& pool)
    : view_(rows),
      feature_bits_(std::bit_width(rows.n_features)),
      words_(feature_bits_ <= kMaxFeatureBits ? static_cast<size_t>(rows.ptr[rows.n_rows]) : 0),
      int16_(static_cast<size_t>(rows.ptr[rows.n_rows])),
      inverse_(rows.n_rows, 0.0f),
      tolerance_(rows.n_rows, 0),
      unit_(rows.n_rows, 0.0f),
      norm2_(rows.n_rows) {
    constexpr size_t per_task = 1024;
    std::vector<double> longest((rows.n_rows + per_task - 1) / per_task, 1.0);
    pool.run(longest.size(), [&](size_t task, unsigned) {
        const size_t end = std::min(rows.n_rows, (task + 1) * per_task);
        for (size_t i = task * per_task; i < end; ++i) longest[task] = std::max(longest[task], quantise(i));
    });
    for (const double of_task : longest) longest_ = std::max(longest_, of_task);
    for (size_t i = 0; i < rows.n_rows; ++i) most_entries_ = std::max(most_entries_, rows.row_size(i));
}

// Returns the row's norm, relative to its largest value.
double QuantisedRows::quantise(size_t i) {
    const double norm = row_norm(view_, i), largest_in_word = std::ldexp(1.0, 31 - feature_bits_) - 1;
    norm2_[i] = static_cast<float>(norm * norm);
    float largest = 0;
    for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; ++e)
        largest = std::max(largest, std::abs(view_.value[e]));
    if (largest == 0) return 0;
    inverse_[i] = 1 / largest;
    unit_[i] = static_cast<float>(largest / largest_in_word);
    // The variance of a sum from weights rounded to int8 and from products rounded to integers. In rows of up
    // to a dozen entries the error cannot exceed the tolerance; in longer rows the tolerance is six standard
    // deviations.
    const double of_weights = std::pow(kUnits * norm / largest, 2) / 12;
    const double of_products = static_cast<double>(view_.row_size(i)) / 12;
    tolerance_[i] = static_cast<int16_t>(
        std::ceil(std::min(kDeviations * std::sqrt(of_weights + of_products), kMaxTolerance)));
    for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; ++e) {
        const double relative = double{view_.value[e]} / largest;
        int16_[e] = static_cast<int16_t>(std::lrint(relative * kLargestInt16));
        if (!words_.empty())
            words_[e] = static_cast<int32_t>(std::lrint(relative * largest_in_word)) * (1 << feature_bits_) +
                        view_.index[e];
    }
    return norm / largest;
}

float QuantisedRows::weight_scale(double norm, double largest) const {
    if (norm == 0) return 0.0f;
    const double room = std::max(kMaxSum - static_cast<double>(most_entries_) * kUnits, kMaxSum / 2);
    return static_cast<float>(std::min(126 / largest, room / (kUnits * norm * longest_)));
}

QuantisedScan QuantisedRows::scan(const uint32_t* panel_row, const int16_t* panel, const float* threshold,
                                  bool tolerance) const {
    return {.ptr = view_.ptr,
            .index = view_.index,
            .value = int16_.data(),
            .panel_row = panel_row,
            .panel = panel,
            .threshold = threshold,
            .factor = inverse_.data(),
            .tolerance = tolerance ? tolerance_.data() : nullptr};
}

}  // namespace bonsai

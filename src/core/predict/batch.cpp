#include "predict/batch.hpp"

#include <cmath>

#include "model/packed_block.hpp"

namespace bonsai {

void Batch::read(const RowsView& x, size_t begin, size_t end, bool normalize, Pool& pool) {
    rows_.clear();
    size_t n_entries = 0;
    for (size_t i = begin; i < end; ++i) {
        rows_.push_back({.first = n_entries});
        n_entries += x.row_size(i);
    }
    feature_.resize(n_entries);
    value_.resize(n_entries);
    constexpr size_t rows_per_task = 256;
    pool.run((size() + rows_per_task - 1) / rows_per_task, [&](size_t task, unsigned) {
        for (size_t r = task * rows_per_task; r < std::min(size(), (task + 1) * rows_per_task); ++r)
            read_row(x, begin + r, normalize, rows_[r]);
    });
    if (size() > kFewRows) assign_ids(x.n_features);
}

void Batch::read_row(const RowsView& x, size_t i, bool normalize, Row& row) {
    double largest = 0, sum = 0, n = 0;
    for_each_entry(x, i, [&](uint32_t, float v) {
        largest = std::max(largest, std::abs(double{v}));
        sum += std::abs(double{v});
        ++n;
    });
    // No sum of products may leave 32 bits, with room for the rounding of each value. A power of two: values
    // of few bits stay exact.
    constexpr double max_value = 32767, max_sum = (1u << 31) / kWeightMax - 1.0;
    int exponent = 0;
    std::frexp(std::max(largest / max_value, sum / std::max(max_sum - n, max_sum / 2)), &exponent);
    const double step = largest > 0 ? std::ldexp(1.0, exponent) : 0.0;
    const double norm = normalize ? row_norm(x, i) : 1.0;
    row.unit = static_cast<float>(norm > kSmallestNorm ? step / norm : step);
    const double per_step = step > 0 ? 1 / step : 0.0;
    for_each_entry(x, i, [&](uint32_t f, float v) {
        const auto quantised = static_cast<int16_t>(std::lrint(v * per_step));
        if (quantised == 0) return;
        feature_[row.first + row.n] = f;
        value_[row.first + row.n] = quantised;
        ++row.n;
    });
}

void Batch::assign_ids(size_t n_features) {
    if (!id_of_feature_) id_of_feature_.emplace(n_features);
    for (const uint32_t f : with_id_) (*id_of_feature_)[f] = 0;
    with_id_.clear();
    id_.resize(feature_.size());
    for (const Row& row : rows_)
        for (size_t e = row.first; e < row.first + row.n; ++e) {
            uint32_t& id = (*id_of_feature_)[feature_[e]];
            if (id == 0) {
                with_id_.push_back(feature_[e]);
                id = static_cast<uint32_t>(with_id_.size());
            }
            id_[e] = id;
        }
}

}  // namespace bonsai

#include "predict/batch.hpp"

#include <bit>
#include <cmath>

#include "model/packed_block.hpp"

namespace bonsai {

void Batch::read(const RowsView& x, size_t begin, size_t end, bool normalize, Pool& pool) {
    source_ = x;
    begin_ = begin;
    rows_.clear();
    size_t n_entries = 0;
    for (size_t i = begin; i < end; ++i) {
        rows_.push_back({.first = n_entries});
        n_entries += x.row_size(i);
    }
    feature_.resize(n_entries);
    value_.resize(n_entries);
    const Slices slices(size(), pool, 16 * n_entries);
    slices.for_each(pool, [&](size_t, size_t first, size_t last) {
        for (size_t r = first; r < last; ++r) read_row(x, begin + r, normalize, rows_[r]);
    });
    constexpr size_t most_in_table = size_t{1} << 24;
    if (size() <= kFewRows) return;
    if (x.n_features <= most_in_table)
        assign_ids(x.n_features, slices, pool);
    else
        assign_ids_in_order(slices, pool);
}

void Batch::read_row(const RowsView& x, size_t i, bool normalize, Row& row) {
    double largest = 0, sum = 0, n = 0;
    for_each_entry(x, i, [&](uint32_t, float v) {
        largest = std::max(largest, std::abs(double{v}));
        sum += std::abs(double{v});
        ++n;
    });
    // No sum of products may overflow 32 bits, with room for the rounding of each value. A power of two keeps
    // values of few bits exact.
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

// The features are divided into parts: each thread numbers the features of its part. No two threads write to
// the same cache lines.
void Batch::assign_ids(size_t n_features, const Slices& slices, Pool& pool) {
    if (!id_of_feature_) id_of_feature_.emplace(n_features);
    pool.run(parts_.size(), [&](size_t p, unsigned) {
        for (const uint32_t f : parts_[p]) (*id_of_feature_)[f] = 0;
    });
    const size_t n_parts = std::bit_floor(slices.size());
    parts_.resize(n_parts);
    occurring_.resize(slices.size() * n_parts);
    slices.for_each(pool, [&](size_t s, size_t begin, size_t end) {
        divide({rows_.data() + begin, end - begin}, {&occurring_[s * n_parts], n_parts});
    });
    pool.run(n_parts, [&](size_t p, unsigned) {
        parts_[p].clear();
        for (size_t s = 0; s < slices.size(); ++s) number(occurring_[s * n_parts + p], parts_[p]);
    });
    size_t n = 0;
    for (const std::vector<uint32_t>& part : parts_) n += part.size();
    with_id_.resize(n);
    pool.run(n_parts, [&](size_t p, unsigned) {
        size_t id = 0;
        for (size_t before = 0; before < p; ++before) id += parts_[before].size();
        for (const uint32_t f : parts_[p]) {
            with_id_[id++] = f;
            (*id_of_feature_)[f] = static_cast<uint32_t>(id);
        }
    });
    id_.resize(feature_.size());
    slices.for_each(pool, [&](size_t, size_t begin, size_t end) {
        for (size_t r = begin; r < end; ++r)
            for (size_t e = rows_[r].first; e < rows_[r].first + rows_[r].n; ++e)
                id_[e] = (*id_of_feature_)[feature_[e]];
    });
}

// Numbers features without a table of all features.
void Batch::assign_ids_in_order(const Slices& slices, Pool& pool) {
    with_id_.clear();
    for (const Row& row : rows_) with_id_.insert(with_id_.end(), features(row), features(row) + row.n);
    std::sort(with_id_.begin(), with_id_.end());
    with_id_.erase(std::unique(with_id_.begin(), with_id_.end()), with_id_.end());
    id_.resize(feature_.size());
    slices.for_each(pool, [&](size_t, size_t begin, size_t end) {
        for (size_t r = begin; r < end; ++r)
            for (size_t e = rows_[r].first; e < rows_[r].first + rows_[r].n; ++e)
                id_[e] = static_cast<uint32_t>(
                    std::lower_bound(with_id_.begin(), with_id_.end(), feature_[e]) - with_id_.begin() + 1);
    });
}

// Lists the features that occur in some rows, by part. A part consists of whole cache lines of
// id_of_feature_.
void Batch::divide(std::span<const Row> rows, std::span<std::vector<uint32_t>> parts) const {
    constexpr size_t per_line = 64 / sizeof(uint32_t);
    for (std::vector<uint32_t>& part : parts) part.clear();
    for (const Row& row : rows)
        for (const uint32_t f : std::span(features(row), row.n))
            parts[f / per_line & (parts.size() - 1)].push_back(f);
}

// Numbers the features without a number and adds them to `numbered`.
void Batch::number(std::span<const uint32_t> features, std::vector<uint32_t>& numbered) {
    for (const uint32_t f : features) {
        uint32_t& id = (*id_of_feature_)[f];
        if (id != 0) continue;
        numbered.push_back(f);
        id = static_cast<uint32_t>(numbered.size());
    }
}

}  // namespace bonsai

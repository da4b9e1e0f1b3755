// A batch of rows, quantised to 16 bits for prediction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/slices.hpp"
#include "data/rows.hpp"

namespace bonsai {

// Rows that are predicted together. A value is a 16-bit integer times the unit of its row. Products with
// 8-bit weights are added as integers, so the sums are equal in any order, on every machine, and for any
// other rows in the batch.
class Batch {
  public:
    struct Row {
        size_t first;  // first entry
        size_t n = 0;  // entries, none of them 0
        float unit = 0;
    };

    void read(const RowsView& x, size_t begin, size_t end, bool normalize, Pool& pool);

    size_t size() const { return rows_.size(); }
    // The rows before quantisation: those from `begin` on.
    const RowsView& source() const { return source_; }
    size_t begin() const { return begin_; }
    const Row& row(size_t i) const { return rows_[i]; }
    // The division rounds up.
    size_t mean_row_size() const { return feature_.size() / std::max<size_t>(1, size()) + 1; }

    // The features and values of a row's entries.
    const uint32_t* features(const Row& row) const { return feature_.data() + row.first; }
    const int16_t* values(const Row& row) const { return value_.data() + row.first; }

    // Features that occur have ids from 1 on, roughly in order of first occurrence: frequent features come
    // early, so that the hot part of tables by id shares cache lines. A batch of one or two rows has no ids.
    static constexpr size_t kFewRows = 2;
    const uint32_t* feature_ids(const Row& row) const { return id_.data() + row.first; }
    // 0 for features that do not occur. Null if the table would be too large.
    const uint32_t* id_of_feature() const { return id_of_feature_ ? id_of_feature_->data() : nullptr; }
    size_t n_ids() const { return with_id_.size(); }
    // The features in the order of their ids, from id 1 on.
    std::span<const uint32_t> features_with_id() const { return with_id_; }

  private:
    void read_row(const RowsView& x, size_t i, bool normalize, Row& row);
    void assign_ids(size_t n_features, const Slices& slices, Pool& pool);
    void assign_ids_in_order(const Slices& slices, Pool& pool);
    void divide(std::span<const Row> rows, std::span<std::vector<uint32_t>> parts) const;
    void number(std::span<const uint32_t> features, std::vector<uint32_t>& numbered);

    RowsView source_;
    size_t begin_ = 0;
    std::vector<Row> rows_;
    UninitialisedVector<uint32_t> feature_;  // per entry
    UninitialisedVector<int16_t> value_;
    UninitialisedVector<uint32_t> id_;
    std::optional<ZeroedArray<uint32_t>> id_of_feature_;  // only pages with features that occur take memory
    std::vector<uint32_t> with_id_;                       // the features with an id
    std::vector<std::vector<uint32_t>> parts_;  // the same per part; the number of parts is a power of two
    std::vector<std::vector<uint32_t>> occurring_;  // features per slice of rows and part
};

// Calls fn(row, worker) for the rows [begin, end), on all threads.
template <class Fn>
void for_each_row(Pool& pool, size_t begin, size_t end, Fn&& fn) {
    constexpr size_t rows_per_task = 32;
    pool.run((end - begin + rows_per_task - 1) / rows_per_task, [&](size_t task, unsigned worker) {
        const size_t first = begin + task * rows_per_task;
        for (size_t row = first; row < std::min(end, first + rows_per_task); ++row) fn(row, worker);
    });
}

}  // namespace bonsai

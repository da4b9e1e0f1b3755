// An inverted index over the training rows, which finds the rows that may violate the margin of a one-vs-rest
// classifier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "data/rows.hpp"

namespace bonsai {

// A weight of a classifier.
struct Entry {
    uint32_t feature;
    float value;
};

// For each feature, its rows in descending order of the value, which is rounded to one of 64 levels. A
// posting is
//
//     bits 24 … 31: level, 0 for the largest value | bits 0 … 23: row
//
// and the postings of a list ascend. Levels are a quarter of an octave apart; values of less than 2^-16 of
// the largest one have the last level.
class RowIndex {
  public:
    static constexpr unsigned kRowBits = 24;
    static constexpr size_t kMaxRows = (size_t{1} << kRowBits) - 1;
    static constexpr size_t kLevels = 64;

    // Whether an index can hold the rows: sparse, without negative values, at most kMaxRows. With such rows
    // only positive weights can make margins large.
    static bool can_index(const RowsView& rows);
    // Indexes such rows; nothing is borrowed.
    RowIndex(const RowsView& rows, Pool& pool);

    size_t n_rows() const { return n_rows_; }
    // Upper bound of the index's bytes.
    double norm() const { return norm_; }
    std::span<const uint32_t> list(size_t feature) const {
        return {postings_.data() + ptr_[feature], postings_.data() + ptr_[feature + 1]};
    }
    // The value of each level, descending.
    const float* values() const { return values_; }
    // The largest value of a feature.
    float largest(size_t feature) const { return largest_[feature]; }

  private:
    void fill(const RowsView& rows);

    size_t n_rows_;
    double norm_ = 0;
    float values_[kLevels];
    std::vector<float> largest_;
    std::vector<size_t> ptr_;
    UninitialisedVector<uint32_t> postings_;
};

// A search for rows that have a large product with a classifier; one object per worker.
class RowSearch {
  public:
    explicit RowSearch(const RowIndex& index)
        : index_(index), sums_(index.n_rows(), 0), found_(index.n_rows() + 1) {}

    // Finds the rows whose products of values with positive weights add up to more than `least_sum`, which is
    // positive; products below `least_product` do not count, and values are rounded to levels. In no order,
    // each row once.
    std::span<const uint32_t> find(std::span<const Entry> weights, float least_product, float least_sum);
    // The number of postings that were added up for the last classifier.
    size_t n_postings() const { return n_postings_; }

  private:
    // The first postings of a list, those with products of at least least_product.
    struct Part {
        const uint32_t* begin;
        const uint32_t* end;
        float weight;
    };

    void choose_parts(std::span<const Entry> weights, float least_product);
    size_t add_up(float scale, float least_product, int16_t threshold);

    const RowIndex& index_;
    std::vector<Part> parts_;
    std::vector<int16_t> sums_;  // per row; 0 between searches
    std::vector<uint32_t> found_;
    size_t n_postings_ = 0;
};

}  // namespace bonsai

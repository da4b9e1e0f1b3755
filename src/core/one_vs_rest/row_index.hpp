// An inverted index over the training rows, for one-vs-rest: which rows may violate the margin of a
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

// For each feature the rows that have it, in descending order of their value, which is rounded to one of 64
// levels. A posting is
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

    // Sparse rows without negative values, up to kMaxRows: only positive weights can make their margins
    // large.
    static bool can_index(const RowsView& rows);
    // Such rows; nothing is borrowed.
    RowIndex(const RowsView& rows, Pool& pool);

    size_t n_rows() const { return n_rows_; }
    // Of the rows, at most.
    double norm() const { return norm_; }
    std::span<const uint32_t> list(size_t feature) const {
        return {postings_.data() + ptr_[feature], postings_.data() + ptr_[feature + 1]};
    }
    // Of each level, descending.
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

// A search for rows with a large product with a classifier; one object for each worker.
class RowSearch {
  public:
    explicit RowSearch(const RowIndex& index)
        : index_(index), sums_(index.n_rows(), 0), found_(index.n_rows() + 1) {}

    // Rows whose products of values with positive weights, those of at least `least_product` alone, add up to
    // more than `least_sum`, which is positive; values are rounded to levels. In no order, each once.
    std::span<const uint32_t> find(std::span<const Entry> weights, float least_product, float least_sum);
    // The number of postings that were added up for the last classifier.
    size_t n_postings() const { return n_postings_; }

  private:
    // The first postings of a list, which have products of at least the least one.
    struct Part {
        const uint32_t* begin;
        const uint32_t* end;
        float weight;
    };

    void choose_parts(std::span<const Entry> weights, float least_product);
    size_t add_up(float scale, float least_product, int16_t threshold);

    const RowIndex& index_;
    std::vector<Part> parts_;
    std::vector<int16_t> sums_;  // of each row; 0 between searches
    std::vector<uint32_t> found_;
    size_t n_postings_ = 0;
};

}  // namespace bonsai

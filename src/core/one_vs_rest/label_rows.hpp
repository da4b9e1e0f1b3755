// The rows of a one-vs-rest problem: all rows of the data, or those of a leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.hpp"

namespace bonsai {

// Rows are numbered within the problem, labels by position. Borrows the data and the labels.
class LabelRows {
  public:
    // Problem on all rows.
    LabelRows(const Dataset& data, std::span<const uint32_t> labels);
    // Problem on the rows `ids`, ascending, among which are all rows of the labels.
    LabelRows(const Dataset& data, std::span<const uint32_t> labels, std::span<const uint32_t> ids);

    const Dataset& data() const { return data_; }
    size_t n_rows() const { return ids_.size(); }
    // The rows of the data, in the order of their numbers.
    std::span<const uint32_t> ids() const { return ids_; }
    std::span<const uint32_t> labels() const { return labels_; }
    // The rows of a label, ascending.
    std::span<const int32_t> of(size_t position) const {
        return in_part_.ptr.empty() ? data_.rows_of(labels_[position]) : in_part_[position];
    }
    float weight(size_t row) const { return data_.weight(ids_[row]); }
    bool weighted() const { return data_.weighted(); }

  private:
    const Dataset& data_;
    std::span<const uint32_t> labels_;
    std::vector<uint32_t> ids_;
    IdLists in_part_;  // of each label; empty: the problem has all rows
};

}  // namespace bonsai

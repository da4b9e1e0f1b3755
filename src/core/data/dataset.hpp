// Training rows with their labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/rows.hpp"

namespace bonsai {

// X, the label lists and the weights are borrowed. Norms and the rows of each label are computed once.
//
// Training works on the columns of x(). They are the features, unless there are fewer entries than features,
// as with hashed features: then columns are the features that occur, in ascending order, so that no array of
// training is larger than the data.
class Dataset {
  public:
    // weights: one for each row, above 0, or empty. Throws std::invalid_argument if an index is out of range.
    Dataset(const RowsView& x, std::span<const int64_t> label_ptr, std::span<const int32_t> labels,
            size_t n_labels, std::span<const float> weights, bool normalize);

    size_t n_rows() const { return x_.n_rows; }
    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return rows_of_label_.size(); }
    const RowsView& x() const { return x_; }
    // The feature of a column of x(), and the features of several columns.
    uint32_t feature_of(uint32_t column) const { return occurring_.empty() ? column : occurring_[column]; }
    std::vector<uint32_t> features_of(std::span<const uint32_t> columns) const;
    // The column of a feature, or kNoColumn.
    uint32_t column_of(uint32_t feature) const;
    static constexpr uint32_t kNoColumn = ~uint32_t{0};
    // The factor of row i: 1 / norm if rows are normalised (1 for a zero row).
    std::span<const float> factors() const { return factors_; }
    float weight(size_t i) const { return weights_.empty() ? 1.0f : weights_[i]; }
    bool weighted() const { return !weights_.empty(); }
    std::span<const int32_t> labels_of(size_t row) const {
        return {labels_ + label_ptr_[row], static_cast<size_t>(label_ptr_[row + 1] - label_ptr_[row])};
    }
    std::span<const int32_t> rows_of(size_t label) const { return rows_of_label_[label]; }

  private:
    void number_features();

    RowsView x_;
    size_t n_features_;
    std::vector<uint32_t> occurring_;      // the features that are columns, ascending; empty: all
    UninitialisedVector<int32_t> column_;  // per entry, unless all features are columns
    const int64_t* label_ptr_;
    const int32_t* labels_;
    std::span<const float> weights_;
    std::vector<float> factors_;
    IdLists rows_of_label_;
};

}  // namespace bonsai

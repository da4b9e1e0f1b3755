// Data sets and label vectors as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "data/dataset.hpp"
#include "data/label_vectors.hpp"
#include "python/arrays.hpp"

namespace bonsai {

// A data set and the arrays that it borrows.
class PyDataset {
  public:
    PyDataset(nanobind::handle x, In<int64_t> label_ptr, In<int32_t> labels, size_t n_labels,
              In<float> weights, bool normalize)
        : rows_(x, "X"),
          label_ptr_(std::move(label_ptr)),
          labels_(std::move(labels)),
          weights_(std::move(weights)) {
        const nanobind::gil_scoped_release unlock;
        rows_.check();
        data_.emplace(rows_.view(), span(label_ptr_), span(labels_), n_labels, span(weights_), normalize);
    }
    const Dataset& data() const { return *data_; }

  private:
    RowsIn rows_;
    In<int64_t> label_ptr_;
    In<int32_t> labels_;
    In<float> weights_;
    std::optional<Dataset> data_;
};

// Label vectors, one row per label: computed by the core, or borrowed from the caller.
class LabelVectors {
  public:
    explicit LabelVectors(Rows&& made) : made_(std::move(made)), view_(made_.view()) {}
    explicit LabelVectors(nanobind::handle rows)
        : borrowed_(std::in_place, rows, "label vectors"), view_(borrowed_->view()) {
        const nanobind::gil_scoped_release unlock;
        borrowed_->check();
    }
    LabelVectors(const LabelVectors&) = delete;
    LabelVectors& operator=(const LabelVectors&) = delete;
    const RowsView& view() const { return view_; }

  private:
    Rows made_;
    std::optional<RowsIn> borrowed_;
    RowsView view_;
};

}  // namespace bonsai

// Dataset and LabelVectors.
#include "python/bind_dataset.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "python/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

// (indptr, indices, values, n_columns), or a 2-D array: read-only views.
nb::object arrays_of(nb::handle self) {
    const RowsView& rows = nb::cast<const LabelVectors&>(self).view();
    if (rows.dense)
        return view_numpy<float>({rows.dense, rows.n_rows * rows.n_features}, self,
                                 {rows.n_rows, rows.n_features});
    const auto n = static_cast<size_t>(rows.ptr[rows.n_rows]);
    return nb::make_tuple(view_numpy<int64_t>({rows.ptr, rows.n_rows + 1}, self),
                          view_numpy<int32_t>({rows.index, n}, self),
                          view_numpy<float>({rows.value, n}, self), rows.n_features);
}

}  // namespace

void bind_dataset(nb::module_& m) {
    nb::class_<PyDataset>(m, "Dataset")
        .def(nb::init<nb::handle, In<int64_t>, In<int32_t>, size_t, In<float>, bool>(), "x"_a,
             "label_ptr"_a.noconvert(), "labels"_a.noconvert(), "n_labels"_a, "weights"_a.noconvert(),
             "normalize"_a,
             "Rows and their labels, checked. x is (indptr, indices, values, n_columns) or a 2-D float32 "
             "array; "
             "weights is empty or has one entry for each row.");
    nb::class_<LabelVectors>(m, "LabelVectors", "One row for each label: what labels are clustered by.")
        .def_static(
            "from_rows", [](nb::handle x) { return std::make_unique<LabelVectors>(x); }, "x"_a,
            "Vectors of the caller's, of unit norm or zero, checked.")
        .def("arrays", &arrays_of, "(indptr, indices, values, n_columns) or a 2-D array; read-only views.");
    m.def(
        "is_row",
        [](nb::handle indices, nb::handle values, size_t n_columns) {
            In<int32_t> index;
            In<float> value;
            return nb::try_cast(indices, index, false) && nb::try_cast(values, value, false) &&
                   is_row(span(index), span(value), n_columns);
        },
        "indices"_a, "values"_a, "n_columns"_a,
        "Whether these are a row's contiguous int32 indices, ascending and below n_columns, each with a "
        "finite float32 value.");
}

}  // namespace bonsai

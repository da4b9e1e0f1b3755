// Dataset and LabelVectors.
#include "python/bind_dataset.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "data/sizes.hpp"
#include "python/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

// In ascending order of features, wherever their numbers put them.
nb::object in_order_of_features(const RowsView& rows) {
    const auto n = static_cast<size_t>(rows.ptr[rows.n_rows]);
    std::vector<int32_t> index(n);
    std::vector<float> value(n);
    std::vector<std::pair<int32_t, float>> row;
    for (size_t i = 0; i < rows.n_rows; ++i) {
        row.clear();
        for_each_entry(rows, i, [&](uint32_t number, float v) {
            row.emplace_back(static_cast<int32_t>(rows.features[number]), v);
        });
        std::ranges::sort(row);
        for (size_t e = 0; e < row.size(); ++e)
            std::tie(index[static_cast<size_t>(rows.ptr[i]) + e],
                     value[static_cast<size_t>(rows.ptr[i]) + e]) = row[e];
    }
    return nb::make_tuple(to_numpy(std::vector<int64_t>(rows.ptr, rows.ptr + rows.n_rows + 1)),
                          to_numpy(std::move(index)), to_numpy(std::move(value)), rows.n_features);
}

// (indptr, indices, values, n_columns), or a 2-D array: read-only views, or a copy.
nb::object arrays_of(nb::handle self) {
    const RowsView& rows = nb::cast<const LabelVectors&>(self).view();
    if (rows.dense)
        return view_numpy<float>({rows.dense, rows.n_rows * rows.n_features}, self,
                                 {rows.n_rows, rows.n_features});
    if (!rows.features.empty()) return in_order_of_features(rows);
    const auto n = static_cast<size_t>(rows.ptr[rows.n_rows]);
    return nb::make_tuple(view_numpy<int64_t>({rows.ptr, rows.n_rows + 1}, self),
                          view_numpy<int32_t>({rows.index, n}, self),
                          view_numpy<float>({rows.value, n}, self), rows.n_features);
}

uint32_t checked_label(const PyDataset& dataset, size_t label) {
    if (label >= dataset.data().n_labels()) throw nb::index_error("no such label");
    return static_cast<uint32_t>(label);
}

}  // namespace

void bind_dataset(nb::module_& m) {
    nb::class_<ProblemSizes>(m, "Sizes",
                             "Sizes of a problem, from which the memory of training is estimated.")
        .def(nb::init<const ProblemSizes&>(), "other"_a)
        .def_rw("n_rows", &ProblemSizes::n_rows)
        .def_rw("n_features", &ProblemSizes::n_features)
        .def_rw("n_entries", &ProblemSizes::n_entries)
        .def_rw("n_used_features", &ProblemSizes::n_used_features)
        .def_rw("n_singletons", &ProblemSizes::n_singletons)
        .def_rw("dense", &ProblemSizes::dense)
        .def_rw("n_labels", &ProblemSizes::n_labels)
        .def_rw("n_pairs", &ProblemSizes::n_pairs)
        .def_rw("n_present", &ProblemSizes::n_present)
        .def_rw("input_entries", &ProblemSizes::input_entries)
        .def_rw("output_entries", &ProblemSizes::output_entries)
        .def_rw("kept_input", &ProblemSizes::kept_input)
        .def_rw("kept_output", &ProblemSizes::kept_output)
        .def_rw("n_products", &ProblemSizes::n_products)
        .def_prop_ro("dataset_bytes", &ProblemSizes::dataset)
        .def_prop_ro("sparse_bytes", &ProblemSizes::sparse_rows);
    nb::class_<PyDataset>(m, "Dataset")
        .def(nb::init<nb::handle, In<int64_t>, In<int32_t>, size_t, In<float>, bool>(), "x"_a,
             "label_ptr"_a.noconvert(), "labels"_a.noconvert(), "n_labels"_a, "weights"_a.noconvert(),
             "normalize"_a,
             "Rows and their labels, checked. x is (indptr, indices, values, n_columns) or a 2-D float32 "
             "array; "
             "weights is empty or has one entry for each row.")
        .def(
            "sizes",
            [](const PyDataset& d) {
                const nb::gil_scoped_release unlock;
                return sizes_of(d.data());
            },
            "The sizes of the data set; the entries of label vectors are counted on a sample of the labels.")
        .def(
            "vector_entries",
            [](const PyDataset& d, size_t label) {
                return vector_entries(d.data(), checked_label(d, label));
            },
            "label"_a, "The number of entries in the input vector of a label.")
        .def(
            "rows_of",
            [](const PyDataset& d, size_t label) {
                const auto rows = d.data().rows_of(checked_label(d, label));
                return to_numpy(std::vector<int64_t>(rows.begin(), rows.end()));
            },
            "label"_a, nb::sig("def rows_of(self, label: int) -> NDArray[numpy.int64]"))
        .def(
            "similar_rows",
            [](const PyDataset& d, size_t label, size_t n) {
                return to_numpy(similar_rows(d.data(), checked_label(d, label), n));
            },
            "label"_a, "n"_a, nb::sig("def similar_rows(self, label: int, n: int) -> NDArray[numpy.uint32]"),
            "The n rows most similar to the rows of a label, best first.");
    nb::class_<LabelVectors>(m, "LabelVectors",
                             "The vectors by which labels are clustered, one row for each label.")
        .def_static(
            "from_rows", [](nb::handle x) { return std::make_unique<LabelVectors>(x); }, "x"_a,
            "Checked vectors given by the caller, of unit norm or zero.")
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
        "Whether these are contiguous int32 indices of a row, ascending and below n_columns, each with a "
        "finite float32 value.");
}

}  // namespace bonsai

// Bindings of data/xc_format.hpp: byte buffers to CSR arrays, and back. Nothing is copied at the boundary.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "data/xc_format.hpp"
#include "python/arrays.hpp"
#include "python/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using bonsai::In;
using bonsai::span;
using bonsai::to_numpy;

namespace {

std::string_view text_of(const In<uint8_t>& buffer) {
    return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

/// (x_indptr, x_indices, x_values, n_features, y_indptr, y_indices, n_labels)
nb::tuple to_tuple(bonsai::TextData&& data) {
    return nb::make_tuple(to_numpy(std::move(data.features.indptr)),
                          to_numpy(std::move(data.features.indices)),
                          to_numpy(std::move(data.features.values)), data.features.columns,
                          to_numpy(std::move(data.labels.indptr)), to_numpy(std::move(data.labels.indices)),
                          data.labels.columns);
}

using Parser = bonsai::TextData (*)(std::string_view, const bonsai::TextOptions&);

nb::tuple parse(Parser parser, const In<uint8_t>& buffer, const bonsai::TextOptions& options) {
    bonsai::TextData data;
    {
        nb::gil_scoped_release unlock;
        data = parser(text_of(buffer), options);
    }
    return to_tuple(std::move(data));
}

}  // namespace

void bonsai::bind_xc_format(nb::module_& m) {
    const auto def_parser = [&m](const char* name, Parser parser, const char* doc) {
        m.def(
            name,
            [parser](In<uint8_t> buffer, int base, int label_base, int64_t n_features, int64_t n_labels) {
                return parse(parser, buffer, {base, label_base, n_features, n_labels});
            },
            "buffer"_a.noconvert(), "base"_a, "label_base"_a, "n_features"_a, "n_labels"_a, doc);
    };
    def_parser("parse_xc", bonsai::parse_xc,
               "Text with the header 'rows features labels'; -1 = as the text says.");
    def_parser("parse_svmlight", bonsai::parse_svmlight,
               "svmlight text with label lists; -1 = as the text says.");
    m.def(
        "parse_sparse",
        [](In<uint8_t> buffer, int base, int64_t columns, bool indicator, const std::string& what) {
            bonsai::TextMatrix matrix;
            {
                nb::gil_scoped_release unlock;
                const auto entries = indicator ? bonsai::Entries::indicator : bonsai::Entries::any;
                matrix = bonsai::parse_sparse(text_of(buffer), base, columns, entries, what.c_str());
            }
            return nb::make_tuple(to_numpy(std::move(matrix.indptr)), to_numpy(std::move(matrix.indices)),
                                  to_numpy(std::move(matrix.values)), matrix.columns);
        },
        "buffer"_a.noconvert(), "base"_a, "columns"_a, "indicator"_a, "what"_a,
        "Text with the header 'rows columns'; no values come back for an indicator.");
    m.def(
        "format_rows",
        [](In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> label_indptr,
           std::optional<In<int32_t>> label_indices, int base, int label_base) {
            if (label_indptr.has_value() != label_indices.has_value()) {
                throw std::invalid_argument("label_indptr and label_indices must be given together");
            }
            const bonsai::TextRows features{span(indptr), span(indices), span(values)};
            bonsai::TextRows labels;
            if (label_indptr) labels = {span(*label_indptr), span(*label_indices), {}};
            std::string text;
            {
                nb::gil_scoped_release unlock;
                text = bonsai::format_rows(features, label_indptr ? &labels : nullptr, base, label_base);
            }
            return nb::bytes(text.data(), text.size());
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
        "label_indptr"_a.noconvert().none(), "label_indices"_a.noconvert().none(), "base"_a, "label_base"_a,
        "One line of text for each row, without a header.");
}

// Text in the formats of the XC repository and svmlight gives an error with its place, or rows that read back
// the same.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "data/xc_format.hpp"
#include "input.hpp"

using namespace bonsai;
using fuzz::Input;

namespace {

void check(const TextMatrix& matrix, size_t n_rows, bool with_values) {
    REQUIRE(matrix.indptr.size() == n_rows + 1 && matrix.indptr.front() == 0);
    REQUIRE(std::is_sorted(matrix.indptr.begin(), matrix.indptr.end()));
    REQUIRE(matrix.indptr.back() == static_cast<int64_t>(matrix.indices.size()));
    REQUIRE(matrix.values.size() == (with_values ? matrix.indices.size() : 0));
    for (size_t i = 0; i < n_rows; ++i)
        for (int64_t e = matrix.indptr[i]; e < matrix.indptr[i + 1]; ++e) {
            const int32_t id = matrix.indices[e];
            REQUIRE(id >= 0 && id < matrix.columns);
            REQUIRE(e == matrix.indptr[i] || id > matrix.indices[e - 1]);
        }
    for (const float value : matrix.values) REQUIRE(std::isfinite(value));
}

TextRows rows_of(const TextMatrix& matrix) {
    return {matrix.indptr, matrix.indices, matrix.values};
}

bool same(const TextMatrix& a, const TextMatrix& b) {
    return a.columns == b.columns && a.indptr == b.indptr && a.indices == b.indices && a.values == b.values;
}

void read_xc(std::string_view text, const TextOptions& options) {
    const TextData data = parse_xc(text, options);
    const size_t n = data.features.indptr.size() - 1;
    check(data.features, n, true);
    check(data.labels, n, false);
    const TextRows labels = rows_of(data.labels);
    const std::string again = std::to_string(n) + " " + std::to_string(data.features.columns) + " " +
                              std::to_string(data.labels.columns) + "\n" +
                              format_rows(rows_of(data.features), &labels, options.base, options.label_base);
    const TextData reread = parse_xc(again, options);
    REQUIRE(same(reread.features, data.features) && same(reread.labels, data.labels));
}

void read_sparse(std::string_view text, const TextOptions& options) {
    const TextMatrix matrix = parse_sparse(text, options.base, options.n_features, Entries::any, "feature");
    const size_t n = matrix.indptr.size() - 1;
    check(matrix, n, true);
    const std::string again = std::to_string(n) + " " + std::to_string(matrix.columns) + "\n" +
                              format_rows(rows_of(matrix), nullptr, options.base, 0);
    REQUIRE(same(parse_sparse(again, options.base, options.n_features, Entries::any, "feature"), matrix));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    const uint8_t how = input.value<uint8_t>();
    const TextOptions options{.base = how & 1,
                              .label_base = how >> 1 & 1,
                              .n_features = how & 4 ? 5 : kColumnsFromText,
                              .n_labels = how & 8 ? 5 : kColumnsFromText};
    const std::string text(input.rest());  // of exactly this length
    try {
        switch (how >> 4 & 3) {
            case 0:
                read_xc(text, options);
                break;
            case 1: {
                const TextData read = parse_svmlight(text, options);
                check(read.features, read.features.indptr.size() - 1, true);
                check(read.labels, read.features.indptr.size() - 1, false);
                break;
            }
            case 2:
                read_sparse(text, options);
                break;
            default: {
                const auto labels =
                    parse_sparse(text, options.base, options.n_labels, Entries::indicator, "label");
                check(labels, labels.indptr.size() - 1, false);
            }
        }
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

// Text of the Extreme Classification Repository, and svmlight, on memory buffers: parsing and formatting.
//
// All functions throw std::invalid_argument with "line 17, column 5: what is wrong" for text that they cannot
// read; no input has any other effect. Memory is bounded by the length of the text, whatever a header
// announces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bonsai {

/// Rows in CSR form; ids start at 0, and are ascending and unique within a row.
struct TextMatrix {
    int64_t columns = 0;
    std::vector<int64_t> indptr;   // rows + 1
    std::vector<int32_t> indices;  // indptr.back()
    std::vector<float> values;     // parallel to indices; empty where the text has bare ids (label lists)
};

struct TextData {
    TextMatrix features;
    TextMatrix labels;
};

constexpr int64_t kColumnsFromText = -1;

/// How ids are written, and how many columns the result gets.
struct TextOptions {
    int base;            /// id of the first feature: 0 or 1
    int label_base;      /// id of the first label: 0 or 1
    int64_t n_features;  /// columns of the result, or kColumnsFromText: the header's, else the largest id + 1
    int64_t n_labels;    /// the same for labels
};

/// What the values of a sparse matrix text mean.
enum class Entries {
    any,       /// every finite float32, zeros included
    indicator  /// 1 marks a label, 0 is left out, anything else is an error; `values` stays empty
};

/// Header `rows features labels`, then one line `l1,l2 f:v f:v` a row; a row without labels has nothing
/// before the first blank.
TextData parse_xc(std::string_view text, const TextOptions& options);

/// No header, lines `l1,l2 f:v f:v # comment`; empty lines and comment lines are skipped.
TextData parse_svmlight(std::string_view text, const TextOptions& options);

/// Header `rows columns`, then one line `id:value id:value` a row. `what` names an id in messages
/// ("feature").
TextMatrix parse_sparse(std::string_view text, int base, int64_t columns, Entries entries, const char* what);

/// Borrowed CSR rows; indptr may be a slice of a longer one, values may be empty (bare ids).
struct TextRows {
    std::span<const int64_t> indptr;
    std::span<const int32_t> indices;
    std::span<const float> values;
};

/// One line for each row, without a header: `f:v f:v`, or `l1,l2 f:v f:v` if there are labels. Values are the
/// shortest decimals that read back as the same float32.
std::string format_rows(const TextRows& features, const TextRows* labels, int base, int label_base);

}  // namespace bonsai

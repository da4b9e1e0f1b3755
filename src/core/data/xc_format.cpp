#include "data/xc_format.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/decimal.hpp"

namespace bonsai {
namespace {

constexpr int64_t kMaxColumns = std::numeric_limits<int32_t>::max();

bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/// At most 40 bytes of the token in quotes; what is not printable ASCII is escaped, so that any message is
/// valid UTF-8.
std::string quote(const char* first, const char* last) {
    constexpr ptrdiff_t kLongest = 40;
    constexpr char hex[] = "0123456789abcdef";
    std::string out = "'";
    for (const char* p = first; p != first + std::min(last - first, kLongest); ++p) {
        const auto byte = static_cast<unsigned char>(*p);
        if (byte >= 0x20 && byte < 0x7f) {
            out += *p;
        } else {
            out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
        }
    }
    return out + (last - first > kLongest ? "…'" : "'");
}

/// One line, and its place for error messages.
struct Line {
    int64_t number = 0;  // from 1
    const char* begin = nullptr;
    const char* end = nullptr;

    [[noreturn]] void fail(const std::string& message) const {
        throw std::invalid_argument("line " + std::to_string(number) + ": " + message);
    }
    [[noreturn]] void fail(const char* at, const std::string& message) const {
        throw std::invalid_argument("line " + std::to_string(number) + ", column " +
                                    std::to_string(at - begin + 1) + ": " + message);
    }
    std::string token(const char* at) const { return quote(at, std::find_if(at, end, is_blank)); }
    bool blank() const { return std::all_of(begin, end, is_blank); }
};

/// Cuts the text into lines: LF or CRLF, the last one may lack it; a UTF-8 byte order mark is skipped.
class Lines {
  public:
    explicit Lines(std::string_view text) : next_(text.data()), end_(text.data() + text.size()) {
        if (text.starts_with("\xef\xbb\xbf")) next_ += 3;
    }
    bool next(Line& line) {
        if (next_ == end_) return false;
        const auto* newline = static_cast<const char*>(std::memchr(next_, '\n', end_ - next_));
        line.number++;
        line.begin = next_;
        line.end = newline ? newline : end_;
        next_ = newline ? newline + 1 : end_;
        if (line.end != line.begin && line.end[-1] == '\r') line.end--;
        return true;
    }

  private:
    const char* next_;
    const char* end_;
};

/// Upper bounds of all array sizes, so that each array is allocated once.
struct Census {
    int64_t lines = 1, colons = 0, commas = 0;
};

Census take_census(std::string_view text) {
    Census census;
    // blocks, so that the counters of the inner loop are narrow and the compiler vectorises it
    for (size_t start = 0; start < text.size(); start += 1 << 12) {
        uint32_t newlines = 0, colons = 0, commas = 0, nuls = 0;
        for (const char c : text.substr(start, 1 << 12)) {
            newlines += c == '\n';
            colons += c == ':';
            commas += c == ',';
            nuls += c == '\0';
        }
        if (nuls) {
            const size_t at = text.find('\0', start);
            const auto line = census.lines + std::count(text.begin() + start, text.begin() + at, '\n');
            throw std::invalid_argument("line " + std::to_string(line) +
                                        ": NUL byte; this is not a plain text file");
        }
        census.lines += newlines;
        census.colons += colons;
        census.commas += commas;
    }
    return census;
}

/// How the text writes ids of one kind.
struct Ids {
    const char* what;  // "feature" or "label"
    int64_t base;
    int64_t columns;  // ids end at base + columns - 1

    std::string name(int64_t id) const { return std::string(what) + " " + std::to_string(id + base); }
};

/// Throws an error that explains why read_id rejected the id at `first`.
[[noreturn]] void fail_id(const Line& line, const char* first, const Ids& ids) {
    const std::string what = ids.what;
    const char* const last = std::find_if_not(first, line.end, is_digit);
    if (last == first) {
        if (*first == '-') line.fail(first, "negative " + what + " id " + line.token(first));
        if (std::string_view(first, line.end - first).starts_with("qid:")) {
            line.fail(first, "'qid:' marks ranking data, which has no labels to learn");
        }
        line.fail(first, line.token(first) + " is not a " + what + " id");
    }
    if (last - first <= 10 && std::stoll(std::string(first, last)) < ids.base) {
        line.fail(first, what + " id " + std::string(first, last) + ", but ids start at " +
                             std::to_string(ids.base));
    }
    const std::string range =
        " (ids " + std::to_string(ids.base) + " to " + std::to_string(ids.base + ids.columns - 1) + ")";
    line.fail(first, what + " id " + quote(first, last) + " is too large: there are " +
                         std::to_string(ids.columns) + " " + what + "s" + (ids.columns > 0 ? range : ""));
}

/// Reads an id at `p` (not the end of the line), moves `p` behind it; 0-based result.
inline int64_t read_id(const Line& line, const char*& p, const Ids& ids) {
    const char* const first = p;
    const char* const stop = first + std::min<ptrdiff_t>(line.end - first, 10);  // no id has more digits
    int64_t id = 0;
    for (; p != stop && is_digit(*p); ++p) id = id * 10 + (*p - '0');
    id -= ids.base;
    const bool longer = p - first == 10 && p != line.end && is_digit(*p);
    if (p == first || id < 0 || id >= ids.columns || longer) fail_id(line, first, ids);
    return id;
}

/// Reads `id:value` pairs from `p` to the end of the line and adds them as they come; true if they ascend
/// strictly.
bool read_pairs(const Line& line, const char* p, const Ids& ids, TextMatrix& out) {
    int64_t previous = -1;
    bool ascending = true;
    while (true) {
        while (p != line.end && is_blank(*p)) ++p;
        if (p == line.end) return ascending;
        const char* const token = p;
        const int64_t id = read_id(line, p, ids);
        if (p == line.end || *p != ':') {
            line.fail(token, line.token(token) + " is not '" + ids.what + ":value'");
        }
        const char* const start = ++p;
        float value = 0;
        Number status = read_float(p, line.end, value);
        if (status == Number::fine && p != line.end && !is_blank(*p)) status = Number::malformed;
        if (status != Number::fine) {
            const char* why = status == Number::not_finite  ? " is not finite"
                              : status == Number::too_large ? " does not fit in float32"
                                                            : " is not a number";
            line.fail(start, "the value " + line.token(start) + " of " + ids.name(id) + why);
        }
        ascending &= id > previous;
        previous = id;
        out.indices.push_back(static_cast<int32_t>(id));
        out.values.push_back(value);
    }
}

/// Sorts the pairs of the last row, which begins at `start`; a repeated id is an error.
void sort_pairs(const Line& line, size_t start, const Ids& ids, TextMatrix& out) {
    std::vector<std::pair<int32_t, float>> row;
    for (size_t i = start; i < out.indices.size(); ++i) row.emplace_back(out.indices[i], out.values[i]);
    std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < row.size(); ++i) {
        if (i > 0 && row[i].first == row[i - 1].first) line.fail(ids.name(row[i].first) + " appears twice");
        out.indices[start + i] = row[i].first;
        out.values[start + i] = row[i].second;
    }
}

void read_row(const Line& line, const char* p, const Ids& ids, TextMatrix& out) {
    const size_t start = out.indices.size();
    if (!read_pairs(line, p, ids, out)) sort_pairs(line, start, ids, out);
    out.indptr.push_back(static_cast<int64_t>(out.indices.size()));
}

/// Sorts the ids from `start` on and removes repeated ones: a label list is a set.
void finish_label_row(size_t start, TextMatrix& out) {
    const auto first = out.indices.begin() + static_cast<ptrdiff_t>(start);
    if (std::adjacent_find(first, out.indices.end(), std::greater_equal<>()) != out.indices.end()) {
        std::sort(first, out.indices.end());
        out.indices.erase(std::unique(first, out.indices.end()), out.indices.end());
    }
    out.indptr.push_back(static_cast<int64_t>(out.indices.size()));
}

/// Turns the pairs of the last row, which begins at `start`, into a list of the ids whose value is 1.
void keep_ones(const Line& line, size_t start, const Ids& ids, TextMatrix& out) {
    size_t kept = start;
    for (size_t i = 0; i < out.values.size(); ++i) {
        const int32_t id = out.indices[start + i];
        if (out.values[i] == 1) {
            out.indices[kept++] = id;
        } else if (out.values[i] != 0) {
            line.fail("the value of " + ids.name(id) + " is neither 1 nor 0");
        }
    }
    out.indices.resize(kept);
    out.values.clear();
}

/// Reads `l1,l2` at the start of the line; returns where the features begin. A first token with a colon is a
/// feature.
const char* read_label_list(const Line& line, const Ids& ids, TextMatrix& out) {
    const size_t start = out.indices.size();
    const char* p = line.begin;
    const char* const after = std::find_if_not(p, line.end, is_digit);
    bool more = p != line.end && !is_blank(*p) && (after == p || after == line.end || *after != ':');
    while (more) {
        if (p == line.end || is_blank(*p) || *p == ',') line.fail(p, "a comma without a label id beside it");
        out.indices.push_back(static_cast<int32_t>(read_id(line, p, ids)));
        more = p != line.end && !is_blank(*p);
        if (more && *p++ != ',')
            line.fail(line.begin, line.token(line.begin) + " is not a list of label ids");
    }
    finish_label_row(start, out);
    return p;
}

/// The numbers of a header such as `rows features labels`, one for each word of `form`.
template <size_t n>
std::array<int64_t, n> read_header(const Line& line, const char* form) {
    const auto fail = [&] {
        line.fail("the header must be '" + std::string(form) + "' as integers, not " +
                  quote(line.begin, line.end));
    };
    std::array<int64_t, n> numbers{};
    const char* p = line.begin;
    for (int64_t& number : numbers) {
        while (p != line.end && is_blank(*p)) ++p;
        if (p == line.end || !is_digit(*p)) fail();  // no sign: from_chars would accept -0
        const auto result = std::from_chars(p, line.end, number);
        if (result.ec != std::errc() || (result.ptr != line.end && !is_blank(*result.ptr))) fail();
        p = result.ptr;
    }
    if (!std::all_of(p, line.end, is_blank)) fail();
    return numbers;
}

void check_columns(const Line& line, int64_t columns, const char* what) {
    if (columns > kMaxColumns) {
        line.fail("the header announces " + std::to_string(columns) + " " + what + "s; at most " +
                  std::to_string(kMaxColumns) + " are possible");
    }
}

/// Calls read(line) for each of the `rows` lines that a header announced.
template <class Read>
void read_announced_rows(Lines& lines, Line& line, int64_t rows, Read read) {
    for (int64_t row = 0; row < rows; ++row) {
        if (!lines.next(line)) {
            line.fail("the file ends here after " + std::to_string(row) + " of the " + std::to_string(rows) +
                      " rows that the header announces");
        }
        read(line);
    }
    while (lines.next(line)) {
        if (!line.blank())
            line.fail("more rows than the " + std::to_string(rows) + " that the header announces");
    }
}

void start_rows(TextMatrix& matrix, int64_t rows) {
    matrix.indptr.reserve(static_cast<size_t>(rows) + 1);
    matrix.indptr.push_back(0);
}

void reserve_pairs(TextMatrix& matrix, int64_t pairs) {
    matrix.indices.reserve(static_cast<size_t>(pairs));
    matrix.values.reserve(static_cast<size_t>(pairs));
}

/// The first line, which must exist.
Line first_line(Lines& lines, const char* form) {
    Line line;
    if (!lines.next(line))
        throw std::invalid_argument("line 1: the file is empty; expected the header '" + std::string(form) +
                                    "'");
    return line;
}

int64_t largest(const std::vector<int32_t>& ids) {
    return ids.empty() ? -1 : *std::max_element(ids.begin(), ids.end());
}

TextData parse_svmlight_from(std::string_view text, const Census& census, const Ids& feature_ids,
                             const Ids& label_ids) {
    TextData data;
    start_rows(data.features, census.lines);
    start_rows(data.labels, census.lines);
    reserve_pairs(data.features, census.colons);
    data.labels.indices.reserve(static_cast<size_t>(census.commas + census.lines));
    Lines lines(text);
    for (Line line; lines.next(line);) {
        const void* const comment = std::memchr(line.begin, '#', static_cast<size_t>(line.end - line.begin));
        if (comment) line.end = static_cast<const char*>(comment);
        // a line of blanks is a row without labels and features, unless a comment follows them
        if (line.begin == line.end || (comment && line.blank())) continue;
        const char* p = read_label_list(line, label_ids, data.labels);
        read_row(line, p, feature_ids, data.features);
    }
    return data;
}

void check_rows(const TextRows& rows) {
    bool fine = !rows.indptr.empty() && rows.indptr.front() >= 0 &&
                rows.indptr.back() <= static_cast<int64_t>(rows.indices.size()) &&
                std::is_sorted(rows.indptr.begin(), rows.indptr.end());
    fine &= rows.values.empty() || rows.values.size() == rows.indices.size();
    if (!fine) throw std::invalid_argument("indptr, indices and values do not form CSR rows");
}

template <class T>
void append(std::string& out, T number) {
    char buffer[32];
    out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
}

}  // namespace

TextData parse_xc(std::string_view text, const TextOptions& options) {
    constexpr char form[] = "rows features labels";
    const Census census = take_census(text);
    Lines lines(text);
    Line line = first_line(lines, form);
    const auto [rows, n_features, n_labels] = read_header<3>(line, form);
    check_columns(line, n_features, "feature");
    check_columns(line, n_labels, "label");

    TextData data;
    data.features.columns = options.n_features == kColumnsFromText ? n_features : options.n_features;
    data.labels.columns = options.n_labels == kColumnsFromText ? n_labels : options.n_labels;
    const Ids feature_ids{"feature", options.base, std::min(n_features, data.features.columns)};
    const Ids label_ids{"label", options.label_base, std::min(n_labels, data.labels.columns)};
    start_rows(data.features, std::min(rows, census.lines));
    start_rows(data.labels, std::min(rows, census.lines));
    reserve_pairs(data.features, census.colons);
    data.labels.indices.reserve(static_cast<size_t>(census.commas + census.lines));
    read_announced_rows(lines, line, rows, [&](const Line& row) {
        const char* p = read_label_list(row, label_ids, data.labels);
        read_row(row, p, feature_ids, data.features);
    });
    return data;
}

TextData parse_svmlight(std::string_view text, const TextOptions& options) {
    const Census census = take_census(text);
    const Ids feature_ids{"feature", options.base,
                          options.n_features == kColumnsFromText ? kMaxColumns : options.n_features};
    const Ids label_ids{"label", options.label_base,
                        options.n_labels == kColumnsFromText ? kMaxColumns : options.n_labels};
    TextData data = parse_svmlight_from(text, census, feature_ids, label_ids);
    const auto columns = [](int64_t given, const TextMatrix& matrix) {
        return given == kColumnsFromText ? largest(matrix.indices) + 1 : given;
    };
    data.features.columns = columns(options.n_features, data.features);
    data.labels.columns = columns(options.n_labels, data.labels);
    return data;
}

TextMatrix parse_sparse(std::string_view text, int base, int64_t columns, Entries entries, const char* what) {
    constexpr char form[] = "rows columns";
    const Census census = take_census(text);
    Lines lines(text);
    Line line = first_line(lines, form);
    const auto [rows, announced] = read_header<2>(line, form);
    check_columns(line, announced, what);

    TextMatrix matrix;
    matrix.columns = columns == kColumnsFromText ? announced : columns;
    const Ids ids{what, base, std::min(announced, matrix.columns)};
    start_rows(matrix, std::min(rows, census.lines));
    matrix.indices.reserve(static_cast<size_t>(census.colons));
    if (entries == Entries::any) {
        matrix.values.reserve(static_cast<size_t>(census.colons));
        read_announced_rows(lines, line, rows,
                            [&](const Line& row) { read_row(row, row.begin, ids, matrix); });
    } else {
        read_announced_rows(lines, line, rows, [&](const Line& row) {
            const size_t start = matrix.indices.size();
            read_pairs(row, row.begin, ids, matrix);
            keep_ones(row, start, ids, matrix);
            finish_label_row(start, matrix);
        });
    }
    return matrix;
}

std::string format_rows(const TextRows& features, const TextRows* labels, int base, int label_base) {
    check_rows(features);
    if (labels) check_rows(*labels);
    if (labels && labels->indptr.size() != features.indptr.size()) {
        throw std::invalid_argument("features and labels have different numbers of rows");
    }
    std::string out;
    for (size_t row = 0; row + 1 < features.indptr.size(); ++row) {
        for (int64_t i = labels ? labels->indptr[row] : 0, end = labels ? labels->indptr[row + 1] : 0;
             i < end; ++i) {
            if (i > labels->indptr[row]) out += ',';
            append(out, int64_t{labels->indices[i]} + label_base);
        }
        for (int64_t i = features.indptr[row]; i < features.indptr[row + 1]; ++i) {
            if (labels || i > features.indptr[row]) out += ' ';
            append(out, int64_t{features.indices[i]} + base);
            out += ':';
            append(out, features.values.empty() ? 1.0f : features.values[i]);
        }
        if (labels && features.indptr[row] == features.indptr[row + 1]) out += ' ';
        out += '\n';
    }
    return out;
}

}  // namespace bonsai

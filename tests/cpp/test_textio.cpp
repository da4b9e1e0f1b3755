#include "data/xc_format.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>

#include "base/decimal.hpp"
#include "base/random.hpp"
#include "check.hpp"

using namespace bonsai;

namespace {

constexpr TextOptions kPlain{0, 0, kColumnsFromText, kColumnsFromText};
constexpr TextOptions kFromOne{1, 0, kColumnsFromText, kColumnsFromText};

template <class T>
using List = std::vector<T>;

void test_xc() {
    const TextData data = parse_xc("3 4 5\n0,4 1:0.5 3:-2\n 0:1e-3\n2\n", kPlain);
    CHECK(data.features.columns == 4 && data.labels.columns == 5);
    CHECK(data.features.indptr == List<int64_t>{0, 2, 3, 3});
    CHECK(data.features.indices == List<int32_t>{1, 3, 0});
    CHECK(data.features.values == List<float>{0.5f, -2.0f, 1e-3f});
    CHECK(data.labels.indptr == List<int64_t>{0, 2, 2, 3});
    CHECK(data.labels.indices == List<int32_t>{0, 4, 2});

    const TextData wide = parse_xc("1 4 5\n0 1:1\n", {0, 0, 10, 20});
    CHECK(wide.features.columns == 10 && wide.labels.columns == 20);
    CHECK_THROWS(parse_xc("1 4 5\n0 3:1\n", {0, 0, 3, 20}), "line 2, column 3: feature id '3' is too large");
}

void test_forms_of_lines() {
    const TextData plain = parse_xc("2 3 2\n1,0 2:1 0:2\n\n", kPlain);
    CHECK(plain.features.indices == List<int32_t>{0, 2});
    CHECK(plain.features.values == List<float>{2, 1});
    CHECK(plain.labels.indices == List<int32_t>{0, 1});
    for (const char* text : {"2 3 2\r\n1,0 2:1 0:2\r\n\r\n",
                             "\xef\xbb\xbf"
                             "2 3 2\n0,1 0:2 2:1\n ",
                             "2 3 2\n0,1\t0:2\t2:1 \n \n\n  \n", " 2\t3  2 \n1,1,0,1 2:+1.0 0:2.\n\n"}) {
        const TextData other = parse_xc(text, kPlain);
        CHECK(other.features.indices == plain.features.indices &&
              other.features.values == plain.features.values);
        CHECK(other.labels.indices == plain.labels.indices && other.labels.indptr == plain.labels.indptr);
        CHECK(other.features.indptr == plain.features.indptr);
    }
    // a row that begins with a feature has no labels, even without the blank
    CHECK(parse_xc("1 3 2\n2:1\n", kPlain).labels.indices.empty());
}

void test_svmlight() {
    const TextData one = parse_svmlight("# head\n3,1 1:2 4:1 # tail 9:9\n\n  # indented\n \n5:1\n", kFromOne);
    CHECK(one.features.indptr == List<int64_t>{0, 2, 2, 3});
    CHECK(one.features.indices == List<int32_t>{0, 3, 4});
    CHECK(one.features.columns == 5 && one.labels.columns == 4);
    CHECK(one.labels.indices == List<int32_t>{1, 3});
    CHECK(parse_svmlight("1 0:1 4:1", kPlain).features.columns == 5);
    CHECK(parse_svmlight("1 1:1 4:1", kPlain).features.columns == 5);
    CHECK(parse_svmlight("1 4:1", {1, 1, 4, 9}).features.indices == List<int32_t>{3});
    CHECK(parse_svmlight("1 4:1", {1, 1, 4, 9}).labels.indices == List<int32_t>{0});
    CHECK(parse_svmlight("", kPlain).features.columns == 0);
    CHECK_THROWS(parse_svmlight("1 0:1\n1 4:1", {0, 0, 4, 9}),
                 "line 2, column 3: feature id '4' is too large");
    CHECK_THROWS(parse_svmlight("1 5:1", {1, 0, 4, 9}), "line 1, column 3: feature id '5' is too large");
    CHECK_THROWS(parse_svmlight("1 0:1", {1, 0, 4, 9}), "line 1, column 3: feature id 0, but ids start at 1");
    CHECK_THROWS(parse_svmlight("2 qid:3 1:1", kPlain), "line 1, column 3: 'qid:' marks ranking data");
    CHECK_THROWS(parse_svmlight("2147483647 1:1", kPlain), "label id '2147483647' is too large");
}

void test_sparse() {
    const TextMatrix any = parse_sparse("2 5\n4:0 0:0.25\n\n", 0, kColumnsFromText, Entries::any, "feature");
    CHECK(any.indptr == List<int64_t>{0, 2, 2} && any.indices == List<int32_t>{0, 4});
    CHECK(any.values == List<float>{0.25f, 0.0f} && any.columns == 5);
    const TextMatrix ones = parse_sparse("2 5\n4:1.0 0:1 2:0 4:1\n\n", 0, 7, Entries::indicator, "label");
    CHECK(ones.indptr == List<int64_t>{0, 2, 2} && ones.indices == List<int32_t>{0, 4});
    CHECK(ones.values.empty() && ones.columns == 7);
    CHECK_THROWS(parse_sparse("1 5\n4:0.5\n", 0, kColumnsFromText, Entries::indicator, "label"),
                 "line 2: the value of label 4 is neither 1 nor 0");
    CHECK_THROWS(parse_sparse("1 5 3\n4:1\n", 0, kColumnsFromText, Entries::any, "feature"),
                 "line 1: the header must be 'rows columns'");
}

void test_errors() {
    const auto row = [](const char* text) { return parse_xc(std::string("1 4 3\n") + text + "\n", kPlain); };
    CHECK_THROWS(parse_xc("", kPlain), "line 1: the file is empty");
    for (const char* header : {"1 4", "1 4 3 2", "1 4 x", "1 -4 3", "1 -0 3", "-00 4 3", "1 4 +3", "1 4.0 3",
                               "99999999999999999999 4 3", ",", ""}) {
        CHECK_THROWS(parse_xc(std::string(header) + "\n0 1:1\n", kPlain), "line 1: the header must be");
    }
    CHECK_THROWS(parse_xc("1 4000000000 3\n0 1:1\n", kPlain),
                 "line 1: the header announces 4000000000 features");
    CHECK_THROWS(parse_xc("2 4 3\n0 1:1\n", kPlain),
                 "line 2: the file ends here after 1 of the 2 rows that the header announces");
    CHECK_THROWS(parse_xc("1 4 3\n0 1:1\n\n1 1:1\n", kPlain), "line 4: more rows than the 1");
    CHECK_THROWS(row("0 4:1"),
                 "line 2, column 3: feature id '4' is too large: there are 4 features (ids 0 to 3)");
    CHECK_THROWS(row("0 99999999999999999999:1"), "feature id '99999999999999999999' is too large");
    CHECK_THROWS(row("3 1:1"),
                 "line 2, column 1: label id '3' is too large: there are 3 labels (ids 0 to 2)");
    CHECK_THROWS(row("0 -1:1"), "line 2, column 3: negative feature id '-1:1'");
    CHECK_THROWS(row("-1 1:1"), "line 2, column 1: negative label id '-1'");
    CHECK_THROWS(row("0 1:1 2"), "line 2, column 7: '2' is not 'feature:value'");
    CHECK_THROWS(row("0 1:1 x:2"), "line 2, column 7: 'x:2' is not a feature id");
    CHECK_THROWS(row("0 1:"), "line 2, column 5: the value '' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:2:3"), "the value '2:3' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:1e"), "the value '1e' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:."), "the value '.' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:--1"), "the value '--1' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:0x1"), "the value '0x1' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:nan"), "the value 'nan' of feature 1 is not finite");
    CHECK_THROWS(row("0 1:-inf"), "the value '-inf' of feature 1 is not finite");
    CHECK_THROWS(row("0 1:3.5e38"), "the value '3.5e38' of feature 1 does not fit in float32");
    CHECK_THROWS(row("0 1:1e99999999999"), "does not fit in float32");
    CHECK_THROWS(row("0 2:1 1:1 2:1"), "line 2: feature 2 appears twice");
    CHECK_THROWS(row("0, 1:1"), "line 2, column 3: a comma without a label id beside it");
    CHECK_THROWS(row(",0 1:1"), "line 2, column 1: a comma without a label id beside it");
    CHECK_THROWS(row("0,1:1"), "line 2, column 1: '0,1:1' is not a list of label ids");
    CHECK_THROWS(row("a 1:1"), "line 2, column 1: 'a' is not a label id");
    CHECK_THROWS(row("0 1:1\r2:1"), "the value '1\\x0d2:1' of feature 1 is not a number");
    CHECK_THROWS(row("0 1:\xff\xfe"), "the value '\\xff\\xfe' of feature 1 is not a number");
    CHECK_THROWS(parse_xc(std::string_view("2 4 3\n0 1:1\n1 2\0:1\n", 19), kPlain), "line 3: NUL byte");
    CHECK_THROWS(parse_xc("1 0 3\n0 0:1\n", kPlain), "feature id '0' is too large: there are 0 features");
    // sizes that the file cannot hold allocate nothing
    CHECK_THROWS(parse_xc("9000000000000000000 4 3\n0 1:1\n", kPlain),
                 "the file ends here after 1 of the 9000000000000000000 rows");
}

/// The value of a decimal, by the parser.
float value_of(const std::string& text) {
    return parse_sparse("1 1\n0:" + text + "\n", 0, kColumnsFromText, Entries::any, "feature").values.at(0);
}

void test_decimals() {
    // half way between two floats, and next to it; below and above the range; leading zeros
    const char* hard[] = {"0",
                          "-0",
                          "1",
                          "16777217",
                          "16777217.0000000001",
                          "16777219",
                          "0.1",
                          ".5",
                          "5.",
                          "1e-45",
                          "7.0e-46",
                          "7.1e-46",
                          "1.1754943e-38",
                          "1.17549429e-38",
                          "3.4028235e38",
                          "3.40282351e38",
                          "1e-9999",
                          "0e99",
                          "00000000000000000000000000001",
                          "0.000000000000000000000000000001",
                          "123456789012345678901234567890e-20",
                          "1.00000017881393421514957253748434595763683319091796875",
                          "1.00000017881393432617187499999",
                          "1.00000017881393432617187500001",
                          "9007199254740993e-3"};
    for (const char* text : hard) {
        const float expected = std::strtof(text, nullptr);
        const float actual = value_of(text);
        if (!CHECK(actual == expected && std::signbit(actual) == std::signbit(expected)))
            std::fprintf(stderr, "  %s\n", text);
    }
    Rng rng(7);
    int wrong = 0;
    for (int i = 0; i < 200'000; ++i) {
        std::string text = rng.below(2) ? "-" : "";
        const auto digits = 1 + rng.below(20);
        const auto point = rng.below(digits + 1);
        for (uint64_t d = 0; d < digits; ++d) {
            if (d == point) text += '.';
            text += static_cast<char>('0' + rng.below(10));
        }
        if (rng.below(3) == 0) text += "e" + std::to_string(static_cast<int>(rng.below(90)) - 60);
        const char* p = text.data();
        float actual = 0;
        const Number status = read_float(p, text.data() + text.size(), actual);
        const float expected = std::strtof(text.c_str(), nullptr);
        wrong +=
            std::isinf(expected) ? status != Number::too_large : status != Number::fine || actual != expected;
    }
    CHECK(wrong == 0);
}

void test_format() {
    const List<int64_t> indptr{0, 2, 2, 3}, label_indptr{0, 0, 2, 3};
    const List<int32_t> indices{0, 7, 3}, labels{1, 5, 0};
    const List<float> values{0.1f, -3, 1e-30f};
    const TextRows x{indptr, indices, values}, y{label_indptr, labels, {}};
    CHECK(format_rows(x, &y, 0, 0) == " 0:0.1 7:-3\n1,5 \n0 3:1e-30\n");
    CHECK(format_rows(x, nullptr, 1, 0) == "1:0.1 8:-3\n\n4:1e-30\n");
    CHECK(format_rows(y, nullptr, 0, 0) == "\n1:1 5:1\n0:1\n");
    CHECK(format_rows({std::span(indptr).subspan(1), indices, values}, nullptr, 0, 0) == "\n3:1e-30\n");

    const List<int64_t> beyond{0, 4}, falling{2, 1}, negative{-1, 1};
    for (const auto* bad : {&beyond, &falling, &negative}) {
        CHECK_THROWS(format_rows({*bad, indices, values}, nullptr, 0, 0), "do not form CSR rows");
    }
    CHECK_THROWS(format_rows({{}, indices, values}, nullptr, 0, 0), "do not form CSR rows");
    CHECK_THROWS(format_rows({indptr, indices, std::span(values).first(1)}, nullptr, 0, 0),
                 "do not form CSR rows");
    const TextRows shorter{std::span(label_indptr).first(2), labels, {}};
    CHECK_THROWS(format_rows(x, &shorter, 0, 0), "different numbers of rows");
}

/// Whether the matrix satisfies all invariants.
bool canonical(const TextMatrix& m) {
    bool fine = !m.indptr.empty() && m.indptr.front() == 0 &&
                m.indptr.back() == static_cast<int64_t>(m.indices.size());
    fine &= m.values.empty() || m.values.size() == m.indices.size();
    for (size_t row = 0; fine && row + 1 < m.indptr.size(); ++row) {
        for (int64_t i = m.indptr[row]; i < m.indptr[row + 1]; ++i) {
            fine &= m.indices[i] >= 0 && m.indices[i] < m.columns;
            fine &= i == m.indptr[row] || m.indices[i - 1] < m.indices[i];
            fine &= m.values.empty() || std::isfinite(m.values[i]);
        }
    }
    return fine;
}

/// Every parser on the text: a canonical result or std::invalid_argument, nothing else.
bool survives(const std::string& text) {
    // on the heap with the exact length, so that AddressSanitizer detects reads beyond the end
    const auto copy = std::make_unique<char[]>(text.size());
    text.copy(copy.get(), text.size());
    const std::string_view view(copy.get(), text.size());
    bool fine = true;
    for (int parser = 0; parser < 4; ++parser) {
        try {
            if (parser < 2) {
                const TextData data = parser == 0 ? parse_xc(view, kPlain) : parse_svmlight(view, kPlain);
                fine &= canonical(data.features) && canonical(data.labels);
                fine &= data.features.indptr.size() == data.labels.indptr.size();
            } else {
                const auto entries = parser == 2 ? Entries::any : Entries::indicator;
                fine &= canonical(parse_sparse(view, 0, kColumnsFromText, entries, "feature"));
            }
        } catch (const std::invalid_argument& error) {
            fine &= std::string_view(error.what()).starts_with("line ");
        }
    }
    return fine;
}

void test_any_bytes() {
    const std::string seeds[] = {"3 4 5\n0,4 1:0.5 3:-2\n 0:1e-3\n2\n", "2 5\n4:1 0:1\n\n",
                                 "3,1 1:2 4:1 # tail\n5:1\n"};
    const std::string alphabet = "0123456789:,. \t\r\n#-+eE\xff" + std::string(1, '\0') + "nai";
    Rng rng(11);
    int failures = 0;
    for (int i = 0; i < 60'000; ++i) {
        std::string text = seeds[i % 3];
        if (i % 5 == 0) {
            text.resize(rng.below(40));
            for (char& c : text) c = static_cast<char>(rng.next());
        }
        for (uint64_t edits = rng.below(4); edits > 0 && !text.empty(); --edits) {
            const size_t at = rng.below(text.size());
            const char c = alphabet[rng.below(alphabet.size())];
            switch (rng.below(4)) {
                case 0:
                    text[at] = c;
                    break;
                case 1:
                    text.insert(at, 1, c);
                    break;
                case 2:
                    text.erase(at, 1 + rng.below(3));
                    break;
                default:
                    text.resize(at);
            }
        }
        failures += !survives(text);
    }
    CHECK(failures == 0);
}

}  // namespace

int main() {
    test_xc();
    test_forms_of_lines();
    test_svmlight();
    test_sparse();
    test_errors();
    test_decimals();
    test_format();
    test_any_bytes();
    return check::report("textio");
}

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "check.hpp"
#include "text/distinct.hpp"
#include "text/fit.hpp"
#include "text/pair_table.hpp"
#include "text/tokenizer.hpp"
#include "text/vectorizer.hpp"

using namespace bonsai;
using namespace bonsai::text;
using Strings = std::vector<std::string>;

namespace {

std::string lower(std::string_view text) {
    Normalized normalized;
    normalized.assign(text, true);
    return std::string(normalized.view());
}

std::string as_is(std::string_view text) {
    Normalized normalized;
    normalized.assign(text, false);
    return std::string(normalized.view());
}

Strings words(std::string_view text, size_t min_length = 2) {
    Normalized normalized;
    normalized.assign(text, true);
    Strings found;
    for_each_word(normalized.view(), min_length, [&](std::string_view word) { found.emplace_back(word); });
    return found;
}

Strings spans(std::string_view text) {
    Normalized normalized;
    normalized.assign(text, true);
    Strings found;
    for_each_span(normalized.view(), [&](std::string_view span) { found.emplace_back(span); });
    return found;
}

void test_lower_case() {
    CHECK(lower("ABC xyz [\\]^_`{|}@AZ") == "abc xyz [\\]^_`{|}@az");
    CHECK(lower(std::string(100, 'Q') + "Ä" + std::string(70, 'R')) ==
          std::string(100, 'q') + "ä" + std::string(70, 'r'));
    CHECK(lower("ÄÖÜ ẞ ß ǅ Ⱥ K") == "äöü ß ß ǆ ⱥ k");  // the last is the Kelvin sign
    CHECK(lower("İI") == "i̇i");                        // one code point becomes two
    CHECK(as_is("İÄA") == "İÄA");
    // Final_Sigma: after a cased letter and not before one; case-ignorable characters (here ' and a combining
    // accent) are skipped.
    CHECK(lower("ΣΑΣ") == "σας");
    CHECK(lower("ΑΣ Σ ΑΣΑ") == "ας σ ασα");
    CHECK(lower("ΑΣ'Α ΑΣ' Α'Σ 1Σ 'Σ") == "ασ'α ας' α'ς 1σ 'σ");
    CHECK(lower("Α\u0301Σ") == "α\u0301ς");
    CHECK(lower("Σ") == "σ");
}

void test_not_utf8() {
    const std::string bad = "\uFFFD";
    CHECK(as_is("a\xFFz") == "a" + bad + "z");
    CHECK(as_is("a\xC3") == "a" + bad);                         // breaks off at the end
    CHECK(as_is("\xE2\x82z") == bad + "z");                     // breaks off before another character
    CHECK(as_is("\xC0\x80") == bad + bad);                      // overlong
    CHECK(as_is("\xED\xA0\x80") == bad);                        // a surrogate
    CHECK(as_is("\xF4\x90\x80\x80") == bad + bad + bad + bad);  // beyond U+10FFFF
    CHECK(as_is("\xF0\x9F\x91\x8D") == "\xF0\x9F\x91\x8D");     // thumbs up
    CHECK(as_is(std::string(40, '\xFF')).size() == 3 * 40);
    CHECK(as_is("").empty());
}

void test_words() {
    CHECK(words("The quick-brown fox_1, a b2!") == Strings{"the", "quick", "brown", "fox_1", "b2"});
    CHECK(words("a bc", 1) == Strings{"a", "bc"});
    CHECK(words("İstanbul") == Strings{"stanbul"});  // i, then a combining dot, which is no word character
    CHECK(words("e\u0301tude étude") == Strings{"tude", "étude"});
    CHECK(words("日本語のテキスト、中文。") == Strings{"日本語のテキスト", "中文"});
    CHECK(words("½² Ⅷ٣ 👍👍 x") == Strings{"½²", "ⅷ٣"});
    CHECK(words("").empty() && words("é").empty() && words(" ,;").empty());
    CHECK(words("éa") == Strings{"éa"} && words("aé") == Strings{"aé"});
}

void test_spans() {
    CHECK(spans(" a,b\tc\u00A0d\x1C"
                "e\u3000\n\n") == Strings{"a,b", "c", "d", "e"});
    CHECK(spans("").empty() && spans(" \n").empty());
    Normalized text;
    text.assign("a  b\tc \u00A0d\n", false);
    text.collapse_spaces();
    CHECK(text.view() == "a b\tc d\n");
    text.assign("\u2003\u2003", false);
    text.collapse_spaces();
    CHECK(text.view() == " ");
}

void test_character_ngrams() {
    const auto in_span = [](std::string_view span, size_t min_n, size_t max_n) {
        PaddedSpan padded;
        Offsets offsets;
        Strings found;
        for_each_ngram_in_span(padded(span), offsets, min_n, max_n,
                               [&](std::string_view gram) { found.emplace_back(gram); });
        return found;
    };
    CHECK(in_span("äb", 3, 3) == Strings{" äb", "äb "});
    CHECK(in_span("äb", 3, 4) == Strings{" äb", "äb ", " äb "});
    CHECK(in_span("a", 3, 5) == Strings{" a "});  // short ones once
    CHECK(in_span("a", 5, 7) == Strings{" a "});
    Offsets offsets;
    Strings found;
    for_each_char_ngram("aä b", offsets, 1, 2, [&](std::string_view gram) { found.emplace_back(gram); });
    CHECK(found == Strings{"a", "ä", " ", "b", "aä", "ä ", " b"});
    found.clear();
    for_each_char_ngram("ab", offsets, 3, 4, [&](std::string_view gram) { found.emplace_back(gram); });
    CHECK(found.empty());
}

void test_tables() {
    // Strings that differ only by length, by a zero byte, or behind the eighth byte.
    Strings strings{"",          "a",         std::string("a\0", 2), "abcdefgh",
                    "abcdefghi", "abcdefghj", "abcdefgh12345678x"};
    for (int i = 0; i < 5000; ++i)
        strings.push_back("word" + std::to_string(i * 7919) + (i % 2 ? "-long-tail" : ""));
    StringTable table;
    Normalized padded;
    const auto with_padding = [&](const std::string& s) {
        padded.assign(s, false);
        return padded.view();
    };
    bool same = true;
    for (int round = 0; round < 2; ++round)
        for (uint32_t i = 0; i < strings.size(); ++i) same &= table.intern(with_padding(strings[i])) == i;
    for (uint32_t i = 0; i < strings.size(); ++i)
        same &= table.find(with_padding(strings[i])) == i && table[i] == strings[i];
    CHECK(same && table.size() == strings.size());
    CHECK(table.find(with_padding("missing")) == kNone);

    PairTable pairs;
    Distinct<uint64_t> distinct;
    bool right = true;
    for (uint32_t round = 0; round < 3; ++round)
        for (uint32_t i = 0; i < 3000; ++i) {
            const uint64_t key = pair_key(i % 50, i);
            right &= pairs.count(key, PairTable::hash(key)) == i;
        }
    pairs.for_each([&](const PairTable::Slot& slot) { right &= slot.count == 3; });
    CHECK(right && pairs.size() == 3000);
    CHECK(pairs.find(pair_key(1, 2), PairTable::hash(pair_key(1, 2))) == kNone);

    for (int document = 0; document < 3; ++document) {
        distinct.begin(1000);
        for (uint64_t i = 0; i < 1000; ++i) distinct.add(i % 300 << 40);
        CHECK(distinct.items().size() == 300 && distinct.items()[99].n == 4 && distinct.items()[101].n == 3);
    }
}

BlockSpec block(Analyzer analyzer, uint32_t min_n, uint32_t max_n, double min_df = 1) {
    return {.field = 0,
            .analyzer = analyzer,
            .min_n = min_n,
            .max_n = max_n,
            .min_df = {min_df, false},
            .max_df = {1, true},
            .max_features = 0,
            .sublinear_tf = false,
            .smooth_idf = true,
            .power = 1,
            .weight = 1};
}

TextSpec spec_of(std::vector<BlockSpec> blocks, uint32_t n_fields = 1) {
    return {.n_fields = n_fields, .lowercase = true, .min_word_length = 2, .blocks = std::move(blocks)};
}

Documents documents_of(const std::vector<Strings>& fields) {
    Documents documents;
    for (const auto& field : fields) documents.emplace_back(field.begin(), field.end());
    return documents;
}

Fit::Result fit(const TextSpec& spec, const std::vector<Strings>& fields, unsigned threads = 1,
                size_t step = 1 << 20) {
    Control control;
    Pool pool(threads, control);
    Fit fit(spec);
    for (size_t begin = 0; begin < fields[0].size(); begin += step) {
        std::vector<Strings> part;
        for (const auto& field : fields)
            part.emplace_back(field.begin() + static_cast<ptrdiff_t>(begin),
                              field.begin() + static_cast<ptrdiff_t>(std::min(field.size(), begin + step)));
        fit.add(documents_of(part), pool);
    }
    return fit.finish(true, pool);
}

SparseRows transform(const Vectorizer& vectorizer, const std::vector<Strings>& fields, unsigned threads = 1) {
    Control control;
    Pool pool(threads, control);
    return vectorizer.transform(documents_of(fields), pool);
}

Strings names(const Vocabulary& vocabulary, size_t block) {
    const Names names = feature_names(vocabulary, block);
    Strings out;
    for (size_t i = 0; i < names.ends.size(); ++i) {
        const auto begin = static_cast<size_t>(i > 0 ? names.ends[i - 1] : 0);
        out.push_back(names.bytes.substr(begin, static_cast<size_t>(names.ends[i]) - begin));
    }
    return out;
}

bool equal(const SparseRows& a, const SparseRows& b) {
    return a.ptr == b.ptr && a.index == b.index && a.value == b.value;
}

bool close(float a, double b) {
    return std::abs(static_cast<double>(a) - b) < 1e-6;
}

void test_weights() {
    // idf = log((1 + 2) / (1 + df)) + 1: "aa" in both documents, "bb" in one
    const auto [vocabulary, rows] = fit(spec_of({block(Analyzer::word, 1, 1)}), {{"aa bb bb", "aa"}});
    CHECK(names(vocabulary, 0) == Strings{"aa", "bb"});
    const double a = 1, b = 2 * (std::log(3.0 / 2) + 1), norm = std::sqrt(a * a + b * b);
    CHECK(rows.ptr == std::vector<int64_t>{0, 2, 3} && rows.index == std::vector<int32_t>{0, 1, 0});
    CHECK(close(rows.value[0], a / norm) && close(rows.value[1], b / norm) && rows.value[2] == 1);

    auto other = block(Analyzer::word, 1, 1);
    other.sublinear_tf = true;
    other.smooth_idf = false;
    const auto result = fit(spec_of({other}), {{"aa bb bb", "aa"}});
    const double c = (1 + std::log(2.0)) * (std::log(2.0) + 1);
    CHECK(close(result.rows.value[1], c / std::sqrt(1 + c * c)));
}

void test_blocks() {
    // Two fields: words of the first, bigrams of the second with half the weight.
    auto bigrams = block(Analyzer::word, 2, 2);
    bigrams.field = 1;
    bigrams.weight = 0.5;
    const std::vector<Strings> fields{{"xx", "", "xx yy", ""}, {"aa bb cc", "aa bb", "", ""}};
    const auto [vocabulary, rows] = fit(spec_of({block(Analyzer::word, 1, 1), bigrams}, 2), fields);
    CHECK(names(vocabulary, 0) == Strings{"xx", "yy"} && names(vocabulary, 1) == Strings{"aa bb", "bb cc"});
    CHECK(rows.ptr == std::vector<int64_t>{0, 3, 4, 6, 6});
    CHECK(rows.index == std::vector<int32_t>{0, 2, 3, 2, 0, 1});
    CHECK(close(rows.value[0], 1 / std::sqrt(1.25)));
    CHECK(close(rows.value[1] * rows.value[1] + rows.value[2] * rows.value[2], 0.2));
    CHECK(rows.value[3] == 1);  // one block alone: a unit row all the same
    CHECK(equal(transform(Vectorizer(vocabulary), fields), rows));
}

void test_order_and_limits() {
    const std::vector<Strings> texts{{"aa bb aa", "aa bb cc", "aab", "aa aab"}};
    // As strings joined by spaces: "aa" < "aa aab" < "aa bb" < "aab"
    const auto all = fit(spec_of({block(Analyzer::word, 1, 2)}), texts);
    CHECK(names(all.vocabulary, 0) == Strings{"aa", "aa aab", "aa bb", "aab", "bb", "bb aa", "bb cc", "cc"});
    const auto some = fit(spec_of({block(Analyzer::word, 1, 3, 2)}), texts);
    CHECK(names(some.vocabulary, 0) == Strings{"aa", "aa bb", "aab", "bb"});

    auto frequent = block(Analyzer::word, 1, 2);
    frequent.max_features = 3;  // aa 4, then aa bb, aab, bb with 2 each: of equal ones the first
    CHECK(names(fit(spec_of({frequent}), texts).vocabulary, 0) == Strings{"aa", "aa bb", "aab"});
    auto rare = block(Analyzer::word, 1, 2);
    rare.max_df = {0.25, true};
    const auto bigrams = fit(spec_of({rare}), texts);
    CHECK(names(bigrams.vocabulary, 0) == Strings{"aa aab", "bb aa", "bb cc", "cc"});
    // Words that are not features are kept only as parts of n-grams.
    CHECK(bigrams.vocabulary.fields[0].words.size() == 4);
    CHECK(equal(transform(Vectorizer(bigrams.vocabulary), texts), bigrams.rows));

    auto empty = block(Analyzer::word, 1, 1);
    empty.min_df = {3, false};
    empty.max_df = {2, false};
    CHECK_THROWS(fit(spec_of({empty}), texts), "max_df stands for fewer documents than min_df");
}

std::vector<Strings> random_texts(size_t n) {
    Rng rng(5);
    std::vector<Strings> fields(2);
    for (auto& field : fields)
        for (size_t d = 0; d < n; ++d) {
            std::string text;
            for (uint64_t i = rng.below(120); i-- > 0;) {
                const uint64_t word = rng.below(40) * rng.below(40) * rng.below(40);
                text += "w" + std::to_string(word) + (rng.below(9) == 0 ? "Ä, " : " ");
            }
            field.push_back(text);
        }
    return fields;
}

// The vocabulary and rows are equal for any number of threads and any division into parts; fitting returns
// the rows of transforming.
void test_any_threads_and_parts() {
    auto second = block(Analyzer::word, 1, 3, 2);
    second.field = 1;
    second.weight = 0.3;
    auto limited = block(Analyzer::character_in_span, 2, 4, 2);
    limited.field = 1;
    limited.max_features = 300;
    const auto spec = spec_of(
        {block(Analyzer::word, 1, 1, 2), block(Analyzer::word, 2, 2, 3),
         block(Analyzer::character_in_span, 3, 3, 2), block(Analyzer::character, 2, 3, 2), second, limited},
        2);
    const auto texts = random_texts(3000);  // several segments, and several rounds of n-grams
    const auto expected = fit(spec, texts);
    CHECK(expected.vocabulary.fields[0].ngrams[0].size() > 1000 && expected.rows.index.size() > 100000);
    Vectorizer vectorizer(expected.vocabulary);
    for (const unsigned threads : {1u, 2u, 7u}) {
        const auto result = fit(spec, texts, threads, threads == 2 ? 271 : 1 << 20);
        CHECK(equal(result.rows, expected.rows));
        for (size_t b = 0; b < spec.blocks.size(); ++b)
            CHECK(names(result.vocabulary, b) == names(expected.vocabulary, b) &&
                  result.vocabulary.blocks[b].df == expected.vocabulary.blocks[b].df);
        CHECK(equal(transform(vectorizer, texts, threads), expected.rows));
    }
}

// Places of features, by hand: code points of the original text, even if its lower case has another length.
void test_places() {
    const auto spec = spec_of({block(Analyzer::word, 1, 2), block(Analyzer::character_in_span, 3, 3)});
    const auto vocabulary = fit(spec, {{"İxx bb", "bb"}}).vocabulary;
    const Vectorizer vectorizer(vocabulary);
    Strings all = names(vocabulary, 0), grams = names(vocabulary, 1);
    CHECK(all == Strings{"bb", "xx", "xx bb"});  // i and the combining dot are no word of two letters
    all.insert(all.end(), grams.begin(), grams.end());
    std::set<std::string> found;
    for (const Place& place : vectorizer.places(documents_of({{"- İXX,  BB"}}), 0))
        found.insert(all[place.column] + ":" + std::to_string(place.begin) + "-" + std::to_string(place.end));
    const std::set<std::string> expected{"bb:8-10",      "xx:3-5",       "xx bb:3-10", " i\u0307:2-3",
                                         "i\u0307x:2-4", "\u0307xx:2-5", " bb:8-10",   "bb :8-10"};
    CHECK(found == expected);
    CHECK(vectorizer.places(documents_of({{""}}), 0).empty());
}

// For any bytes, places are within the text, and features are those of the rows.
void test_places_of_any_text() {
    const auto spec = spec_of({block(Analyzer::word, 1, 3), block(Analyzer::character_in_span, 2, 4),
                               block(Analyzer::character, 2, 3)});
    Rng rng(5);
    Strings texts;
    const Strings pieces{"a", "B",  "Σ",    "İ",        "木",           "  ", "\n",
                         ",", "ab", "\xff", "\xe2\x82", "\xed\xa0\x80", "É"};
    for (int i = 0; i < 200; ++i) {
        std::string& text = texts.emplace_back();
        for (size_t n = rng.below(40); n > 0; --n) text += pieces[rng.below(pieces.size())];
    }
    const auto [vocabulary, rows] = fit(spec, {texts});
    const Vectorizer vectorizer(vocabulary);
    for (size_t d = 0; d < texts.size(); ++d) {
        Offsets offsets;
        offsets.assign(as_is(texts[d]));
        std::set<int32_t> columns;
        for (const Place& place : vectorizer.places(documents_of({texts}), d)) {
            CHECK(place.begin < place.end && place.end <= offsets.size() && place.field == 0);
            columns.insert(static_cast<int32_t>(place.column));
        }
        CHECK(columns == std::set(rows.index.begin() + rows.ptr[d], rows.index.begin() + rows.ptr[d + 1]));
    }
}

void test_checks() {
    CHECK_THROWS(Fit(spec_of({})), "at least one block");
    CHECK_THROWS(Fit(spec_of({block(Analyzer::word, 2, 1)})), "min_n <= max_n");
    CHECK_THROWS(Fit(spec_of({block(Analyzer::word, 1, 1)}, 0)), "no such field");
    auto bad = block(Analyzer::word, 1, 1);
    bad.weight = std::nan("");
    CHECK_THROWS(Fit(spec_of({bad})), "weight must be greater than 0");
    bad.weight = 1;
    bad.max_df = {1.5, true};
    CHECK_THROWS(Fit(spec_of({bad})), "shares of all");

    const auto good = fit(spec_of({block(Analyzer::word, 1, 2)}), {{"aa bb", "aa bb cc"}}).vocabulary;
    auto v = good;
    v.fields[0].ngrams[0][0] = pair_key(0, 77);
    CHECK_THROWS(Vectorizer(v), "has a word that is missing");
    v = good;
    std::swap(v.fields[0].ngrams[0][0], v.fields[0].ngrams[0][1]);
    CHECK_THROWS(Vectorizer(v), "not in ascending order");
    v = good;
    v.blocks[0].df[0].pop_back();
    CHECK_THROWS(Vectorizer(v), "one document frequency for each term");
    v = good;
    v.blocks[0].df[0][0] = 3;
    CHECK_THROWS(Vectorizer(v), "greater than the number of documents");
    v = good;
    v.fields[0].ngrams.clear();
    CHECK_THROWS(Vectorizer(v), "n-grams of a block are missing");
}

void test_arrays() {
    const auto v = fit(spec_of({block(Analyzer::word, 1, 2)}), {{"aa bb", "aa bb cc äö"}}).vocabulary;
    const auto words = to_arrays(v.fields[0].words);
    const auto ngrams = to_arrays(v.fields[0].ngrams[0], v.fields[0].words.size());
    CHECK(ngrams.ptr == std::vector<int64_t>{0, 1, 2, 3, 3} && ngrams.last == std::vector<uint32_t>{1, 2, 3});
    CHECK(read_ngrams(ngrams.ptr, ngrams.last) == v.fields[0].ngrams[0]);
    const StringTable again = read_strings(words.bytes, words.ptr);
    CHECK(again.size() == 4 && again[3] == "äö");

    const std::vector<uint8_t> bytes{'a', 'a', 0xC3};
    CHECK_THROWS(read_strings(bytes, std::vector<int64_t>{0, 1, 2}), "do not ascend");
    CHECK_THROWS(read_strings(bytes, std::vector<int64_t>{0, 2, 1, 3}), "do not ascend");
    CHECK_THROWS(read_strings(bytes, std::vector<int64_t>{}), "do not ascend");
    CHECK_THROWS(read_strings(bytes, std::vector<int64_t>{0, 1, 2, 3}), "appears twice in the vocabulary");
    CHECK_THROWS(read_strings(bytes, std::vector<int64_t>{0, 2, 3}), "not UTF-8");
    CHECK_THROWS(read_ngrams(std::vector<int64_t>{0, 2}, std::vector<uint32_t>{1}), "do not ascend");
}

void test_interrupted() {
    Control control;
    Pool pool(2, control);
    Fit fit(spec_of({block(Analyzer::word, 1, 1)}));
    const Strings texts{"aa bb", "cc"};
    control.stop = true;
    CHECK_THROWS(fit.add(documents_of({texts}), pool), "interrupted");
}

}  // namespace

int main() {
    test_lower_case();
    test_not_utf8();
    test_words();
    test_spans();
    test_character_ngrams();
    test_tables();
    test_weights();
    test_blocks();
    test_order_and_limits();
    test_any_threads_and_parts();
    test_places();
    test_places_of_any_text();
    test_checks();
    test_arrays();
    test_interrupted();
    return check::report("text");
}

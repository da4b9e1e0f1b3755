// For documents of any bytes, `transform` returns the rows of `fit`, and every feature has a place in its
// text.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "input.hpp"
#include "text/fit.hpp"
#include "text/select.hpp"
#include "text/tokenizer.hpp"
#include "text/vectorizer.hpp"

using namespace bonsai;
using namespace bonsai::text;
using fuzz::Input;

namespace {

TextSpec spec_of(Input& input) {
    TextSpec spec{.n_fields = 1u + input.flag(),
                  .lowercase = input.flag(),
                  .min_word_length = 1u + static_cast<uint32_t>(input.below(2)),
                  .blocks = {}};
    for (uint32_t field = 0; field < spec.n_fields; ++field)
        for (size_t n = 1 + input.below(2); n > 0; --n) {
            const auto min_n = 1u + static_cast<uint32_t>(input.below(4));
            const auto max_n = min_n + static_cast<uint32_t>(input.below(3));
            spec.blocks.push_back({.field = field,
                                   .analyzer = static_cast<Analyzer>(input.below(3)),
                                   .min_n = min_n,
                                   .max_n = max_n,
                                   .min_df = {1.0 + static_cast<double>(input.below(2)), false},
                                   .max_df = {1.0, true},
                                   .max_features = input.below(8),
                                   .sublinear_tf = input.flag(),
                                   .smooth_idf = input.flag(),
                                   .power = 1,
                                   .weight = 1});
        }
    return spec;
}

// The rest of the bytes, cut at 0xFF, field by field; views on copies of exactly their length.
Documents documents_of(Input& input, size_t n_fields, std::vector<std::vector<char>>& kept) {
    std::vector<std::string_view> parts;
    std::string_view rest = input.rest();
    for (size_t end; (end = rest.find('\xFF')) != std::string_view::npos; rest.remove_prefix(end + 1))
        parts.push_back(rest.substr(0, end));
    parts.push_back(rest);
    parts.resize((parts.size() + n_fields - 1) / n_fields * n_fields);
    for (const auto part : parts) kept.emplace_back(part.begin(), part.end());
    Documents documents(n_fields);
    for (size_t i = 0; i < kept.size(); ++i)
        documents[i % n_fields].emplace_back(kept[i].data(), kept[i].size());
    return documents;
}

void check_rows(const SparseRows& rows, size_t n_documents, size_t n_features) {
    REQUIRE(rows.ptr.size() == n_documents + 1 && rows.index.size() == rows.value.size());
    REQUIRE(rows.ptr.back() == static_cast<int64_t>(rows.index.size()));
    for (size_t d = 0; d < n_documents; ++d) {
        const auto begin = static_cast<size_t>(rows.ptr[d]), n = static_cast<size_t>(rows.ptr[d + 1]) - begin;
        REQUIRE(is_row(std::span(rows.index).subspan(begin, n), std::span(rows.value).subspan(begin, n),
                       n_features));
    }
}

// With n-grams of one code point, the space around a span is a feature without a place.
bool has_padding_alone(const BlockSpec& block) {
    return block.analyzer == Analyzer::character_in_span && block.min_n == 1;
}

void check_places(const Vectorizer& vectorizer, const Documents& documents, const SparseRows& rows) {
    const auto& blocks = vectorizer.vocabulary().spec.blocks;
    const bool padding = std::any_of(blocks.begin(), blocks.end(), has_padding_alone);
    for (size_t d = 0; d < n_documents(documents); ++d) {
        std::vector<int32_t> found;
        for (const Place& place : vectorizer.places(documents, d)) {
            REQUIRE(place.column < vectorizer.n_features() && place.field < documents.size());
            REQUIRE(place.begin < place.end && place.end <= documents[place.field][d].size() + 2);
            found.push_back(static_cast<int32_t>(place.column));
        }
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        const auto begin = rows.index.begin() + rows.ptr[d], end = rows.index.begin() + rows.ptr[d + 1];
        REQUIRE(std::includes(begin, end, found.begin(), found.end()));
        REQUIRE(padding || end - begin == static_cast<std::ptrdiff_t>(found.size()));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    try {
        const TextSpec spec = spec_of(input);
        std::vector<std::vector<char>> kept;
        const Documents documents = documents_of(input, spec.n_fields, kept);
        check(spec);
        Control control;
        Pool pool(1, control);
        Fit fit(spec);
        fit.add(documents, pool);
        Fit::Result result = fit.finish(true, pool);
        const Vectorizer vectorizer(std::move(result.vocabulary));
        check_rows(result.rows, n_documents(documents), vectorizer.n_features());
        const SparseRows rows = vectorizer.transform(documents, pool);
        REQUIRE(rows.ptr == result.rows.ptr && rows.index == result.rows.index &&
                rows.value == result.rows.value);
        check_places(vectorizer, documents, rows);
        for (size_t b = 0; b < spec.blocks.size(); ++b) {
            const Names names = feature_names(vectorizer.vocabulary(), b);
            REQUIRE(names.ends.size() == vectorizer.n_features(b));
        }
        std::vector<uint8_t> keep(vectorizer.n_features());
        for (size_t f = 0; f < keep.size(); f += 2) keep[f] = 1;
        const Vectorizer half(select(vectorizer, keep));
        REQUIRE(half.n_features() == (keep.size() + 1) / 2);
        check_rows(half.transform(documents, pool), n_documents(documents), half.n_features());
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

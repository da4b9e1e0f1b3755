// The vocabulary of a model file is rejected, or safe for reading texts.
#include <stdexcept>
#include <string>
#include <vector>

#include "input.hpp"
#include "text/fit.hpp"
#include "text/select.hpp"
#include "text/vectorizer.hpp"

using namespace bonsai;
using namespace bonsai::text;
using fuzz::Input;

namespace {

BlockSpec block(uint32_t field, Analyzer analyzer, uint32_t min_n, uint32_t max_n) {
    return {.field = field,
            .analyzer = analyzer,
            .min_n = min_n,
            .max_n = max_n,
            .min_df = {1, false},
            .max_df = {1, true},
            .max_features = 0,
            .sublinear_tf = true,
            .smooth_idf = true,
            .power = 1,
            .weight = 1};
}

const Documents& documents() {
    static const Documents all = {{"the quick fox", "the fox and Äpfel"}, {"a title", "abc ab"}};
    return all;
}

// The arrays of a file.
struct Stored {
    TextSpec spec;
    size_t n_documents;
    std::vector<StringArrays> words, grams;              // of each field, of each block
    std::vector<std::vector<NgramArrays>> ngrams;        // of each field
    std::vector<std::vector<std::vector<uint32_t>>> df;  // of each block
};

Stored stored() {
    const TextSpec spec{
        .n_fields = 2,
        .lowercase = true,
        .min_word_length = 2,
        .blocks = {block(0, Analyzer::word, 1, 3), block(0, Analyzer::character, 2, 3),
                   block(1, Analyzer::word, 1, 2), block(1, Analyzer::character_in_span, 3, 4)}};
    Control control;
    Pool pool(1, control);
    Fit fit(spec);
    fit.add(documents(), pool);
    const Vocabulary v = fit.finish(false, pool).vocabulary;
    Stored made{.spec = spec, .n_documents = v.n_documents};
    for (const FieldTerms& field : v.fields) {
        made.words.push_back(to_arrays(field.words));
        auto& ngrams = made.ngrams.emplace_back();
        size_t n_shorter = field.words.size();
        for (const auto& keys : field.ngrams) {
            ngrams.push_back(to_arrays(keys, n_shorter));
            n_shorter = keys.size();
        }
    }
    for (const BlockTerms& terms : v.blocks) {
        made.grams.push_back(to_arrays(terms.grams));
        made.df.push_back(terms.df);
    }
    return made;
}

void edit_spec(Input& input, TextSpec& spec) {
    BlockSpec& b = spec.blocks[input.below(spec.blocks.size())];
    switch (input.below(7)) {
        case 0:
            b.field = input.value<uint8_t>();
            break;
        case 1:
            b.min_n = static_cast<uint32_t>(input.below(5));
            break;
        case 2:
            b.max_n = static_cast<uint32_t>(input.below(5));
            break;
        case 3:
            b.analyzer = static_cast<Analyzer>(input.below(3));
            break;
        case 4:
            b.power = input.value<float>();
            break;
        case 5:
            b.weight = input.value<float>();
            break;
        default:
            spec.min_word_length = input.value<uint8_t>();
    }
}

void edit(Input& input, Stored& s) {
    const auto edit_strings = [&](std::vector<StringArrays>& all) {
        StringArrays& one = all[input.below(all.size())];
        input.flag() ? input.edit(one.bytes) : input.edit(one.ptr);
    };
    switch (input.below(6)) {
        case 0:
            return edit_strings(s.words);
        case 1:
            return edit_strings(s.grams);
        case 2: {
            auto& all = s.ngrams[input.below(s.ngrams.size())];
            if (all.empty()) return;
            NgramArrays& one = all[input.below(all.size())];
            return input.flag() ? input.edit(one.ptr) : input.edit(one.last);
        }
        case 3: {
            auto& all = s.df[input.below(s.df.size())];
            if (!all.empty()) input.edit(all[input.below(all.size())]);
            return;
        }
        case 4:
            s.n_documents = input.value<uint32_t>();
            return;
        default:
            edit_spec(input, s.spec);
    }
}

Vocabulary read(const Stored& s) {
    check(s.spec);
    Vocabulary v{.spec = s.spec, .n_documents = s.n_documents};
    for (size_t f = 0; f < s.words.size(); ++f) {
        FieldTerms& field = v.fields.emplace_back();
        field.words = read_strings(s.words[f].bytes, s.words[f].ptr);
        for (const NgramArrays& one : s.ngrams[f]) field.ngrams.push_back(read_ngrams(one.ptr, one.last));
    }
    for (size_t b = 0; b < s.grams.size(); ++b) {
        BlockTerms& terms = v.blocks.emplace_back();
        terms.grams = read_strings(s.grams[b].bytes, s.grams[b].ptr);
        terms.df = s.df[b];
    }
    return v;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Stored valid = stored();
    Input input(data, size);
    try {
        Stored s = valid;
        for (size_t n = input.below(6); n > 0 && !input.empty(); --n) edit(input, s);
        const Vectorizer vectorizer(read(s));
        Control control;
        Pool pool(1, control);
        const std::string more(input.rest());
        Documents texts = documents();
        for (auto& field : texts) field.push_back(more);
        const SparseRows rows = vectorizer.transform(texts, pool);
        for (const int32_t column : rows.index)
            REQUIRE(column >= 0 && static_cast<size_t>(column) < vectorizer.n_features());
        for (size_t d = 0; d < n_documents(texts); ++d)
            for (const Place& place : vectorizer.places(texts, d))
                REQUIRE(place.column < vectorizer.n_features());
        for (size_t b = 0; b < s.spec.blocks.size(); ++b)
            REQUIRE(feature_names(vectorizer.vocabulary(), b).ends.size() == vectorizer.n_features(b));
        std::vector<uint8_t> keep(vectorizer.n_features());
        for (size_t f = 0; f < keep.size(); f += 3) keep[f] = 1;
        (void)Vectorizer(select(vectorizer, keep)).transform(texts, pool);
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

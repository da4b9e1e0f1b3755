#include "text/vectorizer.hpp"

#include <algorithm>
#include <utility>

#include "text/tokenizer.hpp"

namespace bonsai::text {

namespace {

constexpr size_t kBytesPerTask = 64 << 10;

Vocabulary checked(Vocabulary vocabulary) {
    check(vocabulary);
    return vocabulary;
}

}  // namespace

Vectorizer::Vectorizer(Vocabulary vocabulary)
    : vocabulary_(checked(std::move(vocabulary))), weights_(block_weights(vocabulary_)) {
    for (const auto& block : weights_) n_features_ += block.columns.size;
    for (const auto& field : vocabulary_.fields) {
        auto& tables = ngrams_.emplace_back();
        for (const auto& keys : field.ngrams) {
            PairTable& table = tables.emplace_back(keys.size());
            for (const uint64_t key : keys) table.count(key, PairTable::hash(key));
        }
    }
}

// Reads documents one after another, with the buffers of one worker.
class Vectorizer::Reader {
  public:
    explicit Reader(const Vectorizer& vectorizer) : v_(vectorizer) {}

    void read(const Documents& documents, size_t document, RowWriter& writer) {
        const TextSpec& spec = v_.vocabulary_.spec;
        for (size_t b = 0; b < spec.blocks.size();) {
            const uint32_t field = spec.blocks[b].field;
            begin_field(field, documents[field][document]);
            for (; b < spec.blocks.size() && spec.blocks[b].field == field; ++b) {
                count_block(b);
                writer.add(v_.weights_[b], counts_.items());
            }
        }
        writer.end_row();
    }

  private:
    void begin_field(uint32_t field, std::string_view text) {
        const TextSpec& spec = v_.vocabulary_.spec;
        const FieldTerms& terms = v_.vocabulary_.fields[field];
        text_.assign(text, spec.lowercase);
        for (const auto& block : spec.blocks)
            if (block.field == field && block.analyzer == Analyzer::character) text_.collapse_spaces();
        const auto& tables = v_.ngrams_[field];
        places_.resize(tables.size() + 1);
        auto& words = places_[0];
        words.clear();
        if (terms.words.size() > 0)
            for_each_word(text_.view(), spec.min_word_length,
                          [&](std::string_view word) { words.push_back(terms.words.find(word)); });
        for (size_t n = 2; n <= places_.size(); ++n) find_ngrams(tables[n - 2], n);
    }

    // Finds the n-gram at each place from the (n-1)-gram there.
    void find_ngrams(const PairTable& table, size_t n) {
        const auto& words = places_[0];
        const auto& shorter = places_[n - 2];
        auto& ngrams = places_[n - 1];
        ngrams.assign(words.size(), kNone);
        for (size_t i = 0; i + n <= words.size(); ++i) {
            const uint32_t last = words[i + n - 1];
            if (shorter[i] == kNone || last == kNone) continue;
            const uint64_t key = pair_key(shorter[i], last);
            ngrams[i] = table.find(key, PairTable::hash(key));
        }
    }

    void count_block(size_t b) {
        const BlockSpec& block = v_.vocabulary_.spec.blocks[b];
        const auto& columns = v_.weights_[b].columns.of;
        if (block.analyzer == Analyzer::word) {
            counts_.begin(places_[0].size() * (block.max_n - block.min_n + 1));
            for (uint32_t n = block.min_n; n <= block.max_n; ++n)
                for (const uint32_t ngram : places_[n - 1])
                    if (ngram != kNone) count(columns[n - block.min_n][ngram]);
            return;
        }
        const StringTable& grams = v_.vocabulary_.blocks[b].grams;
        const auto look_up = [&](std::string_view gram) {
            const uint32_t number = grams.find(gram);
            if (number != kNone) count(columns[0][number]);
        };
        counts_.begin(std::min(grams.size(), (text_.view().size() + 2) * (block.max_n - block.min_n + 1)));
        if (block.analyzer == Analyzer::character)
            for_each_char_ngram(text_.view(), offsets_, block.min_n, block.max_n, look_up);
        else
            for_each_span(text_.view(), [&](std::string_view span) {
                for_each_ngram_in_span(padded_(span), offsets_, block.min_n, block.max_n, look_up);
            });
    }

    void count(uint32_t column) {
        if (column != kNone) counts_.add(column);
    }

    const Vectorizer& v_;
    Normalized text_;
    Offsets offsets_;
    PaddedSpan padded_;
    std::vector<std::vector<uint32_t>> places_;  // [n - 1]: n-grams in text order
    Distinct<uint32_t> counts_;
};

SparseRows Vectorizer::transform(const Documents& documents, Pool& pool) const {
    const auto ranges = split(documents, kBytesPerTask);
    std::vector<SparseRows> parts(ranges.size());
    pool.run(ranges.size(), [&](size_t i, unsigned) {
        Reader reader(*this);
        RowWriter writer;
        for (size_t d = ranges[i].begin; d < ranges[i].end; ++d) {
            pool.control().check();
            reader.read(documents, d, writer);
        }
        parts[i] = std::move(writer.rows());
    });
    return join(parts, pool);
}

}  // namespace bonsai::text

#include "text/select.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "text/unicode.hpp"

namespace bonsai::text {

namespace {

void check_keep(const Vectorizer& from, std::span<const uint8_t> keep) {
    if (keep.size() != from.n_features()) throw std::invalid_argument("keep needs a byte for each feature");
}

template <class T>
void sort_distinct(std::vector<T>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
}

template <class T>
uint32_t place_in(const std::vector<T>& sorted, const T& value) {
    return static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

StringTable table_of(const std::vector<std::string>& strings) {
    StringTable table;
    Normalized padded;
    for (const std::string& s : strings) {
        padded.assign(s, false);
        table.intern(padded.view());
    }
    return table;
}

std::vector<std::string> words_of(const std::string& term) {
    std::vector<std::string> words;
    size_t begin = 0;
    for (size_t end = 0; end != std::string::npos; begin = end + 1) {
        end = term.find(' ', begin);
        words.push_back(term.substr(begin, end - begin));
    }
    return words;
}

}  // namespace

Vocabulary select(const Vectorizer& from, std::span<const uint8_t> keep) {
    check_keep(from, keep);
    Vocabulary vocabulary = from.vocabulary();
    for (size_t b = 0; b < vocabulary.blocks.size(); ++b) {
        const auto& columns = from.weights(b).columns.of;
        for (size_t i = 0; i < columns.size(); ++i)
            for (size_t t = 0; t < columns[i].size(); ++t)
                if (columns[i][t] != kNone && !keep[from.weights(b).first_column + columns[i][t]])
                    vocabulary.blocks[b].df[i][t] = 0;
    }
    drop_unused(vocabulary);
    return vocabulary;
}

SparseRows select(const RowsView& rows, const Vectorizer& from, std::span<const uint8_t> keep, Pool& pool) {
    check_keep(from, keep);
    constexpr size_t kRowsPerTask = 4096;
    const size_t n_blocks = from.vocabulary().blocks.size();
    std::vector<int32_t> number(keep.size());
    std::vector<uint32_t> block_of(keep.size());
    for (size_t b = 0; b < n_blocks; ++b)
        std::fill_n(block_of.begin() + static_cast<int64_t>(from.weights(b).first_column), from.n_features(b),
                    static_cast<uint32_t>(b));
    for (size_t c = 0, n = 0; c < keep.size(); ++c) number[c] = keep[c] ? static_cast<int32_t>(n++) : -1;
    std::vector<SparseRows> parts((rows.n_rows + kRowsPerTask - 1) / kRowsPerTask);
    pool.run(parts.size(), [&](size_t task, unsigned) {
        SparseRows& out = parts[task];
        std::vector<double> factor(n_blocks);
        for (size_t i = task * kRowsPerTask; i < std::min(rows.n_rows, (task + 1) * kRowsPerTask); ++i) {
            std::fill(factor.begin(), factor.end(), 0.0);
            for_each_entry(rows, i, [&](uint32_t column, float value) {
                if (keep[column]) factor[block_of[column]] += double{value} * value;
            });
            double norm2 = 0;
            for (size_t b = 0; b < n_blocks; ++b)
                if (factor[b] > 0) norm2 += from.weights(b).weight * from.weights(b).weight;
            for (size_t b = 0; b < n_blocks; ++b)
                if (factor[b] > 0)
                    factor[b] = from.weights(b).weight / std::sqrt(norm2) / std::sqrt(factor[b]);
            for_each_entry(rows, i, [&](uint32_t column, float value) {
                if (!keep[column]) return;
                out.index.push_back(number[column]);
                out.value.push_back(static_cast<float>(value * factor[block_of[column]]));
            });
            out.ptr.push_back(static_cast<int64_t>(out.index.size()));
        }
    });
    return join(parts, pool);
}

Vocabulary vocabulary_of_terms(const TextSpec& spec, size_t n_documents, std::span<const std::string> terms,
                               std::span<const uint32_t> df) {
    if (spec.n_fields != 1 || spec.blocks.size() != 1 || terms.size() != df.size())
        throw std::invalid_argument("terms need one block, and a document frequency each");
    Vocabulary v{.spec = spec, .n_documents = n_documents};
    FieldTerms& field = v.fields.emplace_back();
    BlockTerms& block = v.blocks.emplace_back();
    const auto [min_n, max_n] = std::pair{spec.blocks[0].min_n, spec.blocks[0].max_n};
    if (spec.blocks[0].analyzer != Analyzer::word) {
        block.grams = table_of({terms.begin(), terms.end()});
        block.df.emplace_back(df.begin(), df.end());
        return v;
    }
    std::vector<std::vector<std::string>> words;
    std::vector<std::string> all;
    for (const std::string& term : terms) {
        words.push_back(words_of(term));
        if (words.back().size() < min_n || words.back().size() > max_n)
            throw std::invalid_argument("the term '" + term + "' has more or fewer words than the block's");
        all.insert(all.end(), words.back().begin(), words.back().end());
    }
    sort_distinct(all);
    field.words = table_of(all);
    // The number of each term's first n words among all n-grams that begin a term.
    std::vector<uint32_t> begins(terms.size());
    size_t n_shorter = all.size();
    for (uint32_t n = 1; n <= max_n; ++n) {
        const auto key = [&](size_t t) { return uint64_t{begins[t]} << 32 | place_in(all, words[t][n - 1]); };
        std::vector<uint64_t> keys;
        for (size_t t = 0; n > 1 && t < terms.size(); ++t)
            if (words[t].size() >= n) keys.push_back(key(t));
        sort_distinct(keys);
        for (size_t t = 0; t < terms.size(); ++t)
            if (words[t].size() >= n)
                begins[t] = n == 1 ? place_in(all, words[t][0]) : place_in(keys, key(t));
        if (n > 1) {
            n_shorter = keys.size();
            field.ngrams.push_back(std::move(keys));
        }
        if (n < min_n) continue;
        auto& of_order = block.df.emplace_back(n_shorter, 0u);
        for (size_t t = 0; t < terms.size(); ++t)
            if (words[t].size() == n) of_order[begins[t]] = df[t];
    }
    return v;
}

}  // namespace bonsai::text

#include "text/vocabulary.hpp"

#include <algorithm>
#include <stdexcept>

namespace bonsai::text {

namespace {

uint32_t first_of(uint64_t key) {
    return static_cast<uint32_t>(key >> 32);
}
uint32_t last_of(uint64_t key) {
    return static_cast<uint32_t>(key);
}

// Calls fn(n, number) for each word and n-gram of the field, n <= max_n, in the order of their strings.
template <class Fn>
class Walk {
  public:
    Walk(const FieldTerms& field, uint32_t max_n, Fn& fn)
        : field_(field), max_n_(max_n), fn_(fn), next_(max_n + 1) {
        for (uint32_t word = 0; word < field.words.size(); ++word) visit(1, word);
    }

  private:
    void visit(uint32_t n, uint32_t number) {
        fn_(n, number);
        if (n == max_n_) return;
        const auto& longer = field_.ngrams[n - 1];
        auto& next = next_[n];  // n-grams are sorted by their (n-1)-grams: each level is read sequentially
        while (next < longer.size() && first_of(longer[next]) == number) {
            const auto child = static_cast<uint32_t>(next++);
            visit(n + 1, child);
        }
    }

    const FieldTerms& field_;
    const uint32_t max_n_;
    Fn& fn_;
    std::vector<size_t> next_;
};

template <class Fn>
void walk(const FieldTerms& field, uint32_t max_n, Fn fn) {
    Walk<Fn>(field, max_n, fn);
}

void check_sorted(const StringTable& strings, const char* what) {
    for (size_t i = 1; i < strings.size(); ++i)
        if (!(strings[i - 1] < strings[i]))
            throw std::invalid_argument(std::string(what) + " are not in ascending order");
}

void check_field(const FieldTerms& field) {
    check_sorted(field.words, "words");
    size_t n_shorter = field.words.size();
    for (const auto& keys : field.ngrams) {
        for (size_t i = 0; i < keys.size(); ++i) {
            if (first_of(keys[i]) >= n_shorter || last_of(keys[i]) >= field.words.size())
                throw std::invalid_argument("an n-gram has a word that is missing");
            if (i > 0 && keys[i - 1] >= keys[i])
                throw std::invalid_argument("n-grams are not in ascending order");
        }
        n_shorter = keys.size();
    }
}

void check_block(const BlockSpec& block, const FieldTerms& field, const BlockTerms& terms,
                 size_t n_documents) {
    check_sorted(terms.grams, "character n-grams");
    const bool words = block.analyzer == Analyzer::word;
    const auto size_of = [&](size_t i) {
        if (!words) return terms.grams.size();
        const size_t n = block.min_n + i;
        return n == 1 ? field.words.size() : field.ngrams[n - 2].size();
    };
    if (words && field.ngrams.size() + 1 < block.max_n)
        throw std::invalid_argument("n-grams of a block are missing");
    if (terms.df.size() != (words ? block.max_n - block.min_n + 1 : 1))
        throw std::invalid_argument("document frequencies of a block are missing");
    for (size_t i = 0; i < terms.df.size(); ++i) {
        if (terms.df[i].size() != size_of(i))
            throw std::invalid_argument("a block needs one document frequency for each term");
        if (std::any_of(terms.df[i].begin(), terms.df[i].end(),
                        [&](uint32_t df) { return df > n_documents; }))
            throw std::invalid_argument("a document frequency is greater than the number of documents");
    }
}

}  // namespace

void check(const Vocabulary& v) {
    check(v.spec);
    if (v.fields.size() != v.spec.n_fields || v.blocks.size() != v.spec.blocks.size())
        throw std::invalid_argument(
            "the vocabulary and its description differ in the number of fields or blocks");
    for (const auto& field : v.fields) check_field(field);
    for (size_t b = 0; b < v.blocks.size(); ++b)
        check_block(v.spec.blocks[b], v.fields[v.spec.blocks[b].field], v.blocks[b], v.n_documents);
}

Columns number_columns(const BlockSpec& block, const FieldTerms& field, const BlockTerms& terms) {
    Columns columns;
    for (const auto& df : terms.df) columns.of.emplace_back(df.size(), kNone);
    const auto number = [&](size_t i, uint32_t term) {
        if (terms.df[i][term] > 0) columns.of[i][term] = static_cast<uint32_t>(columns.size++);
    };
    if (block.analyzer != Analyzer::word || block.min_n == block.max_n) {
        for (uint32_t term = 0; term < terms.df[0].size(); ++term) number(0, term);
    } else {
        walk(field, block.max_n, [&](uint32_t n, uint32_t term) {
            if (n >= block.min_n) number(n - block.min_n, term);
        });
    }
    return columns;
}

Names feature_names(const Vocabulary& v, size_t b) {
    const BlockSpec& block = v.spec.blocks[b];
    const BlockTerms& terms = v.blocks[b];
    const FieldTerms& field = v.fields[block.field];
    Names names;
    const auto end_name = [&] { names.ends.push_back(static_cast<int64_t>(names.bytes.size())); };
    if (block.analyzer != Analyzer::word) {
        for (size_t i = 0; i < terms.grams.size(); ++i)
            if (terms.df[0][i] > 0) {
                names.bytes += terms.grams[i];
                end_name();
            }
        return names;
    }
    std::vector<uint32_t> path(block.max_n);
    walk(field, block.max_n, [&](uint32_t n, uint32_t term) {
        path[n - 1] = n == 1 ? term : last_of(field.ngrams[n - 2][term]);
        if (n < block.min_n || terms.df[n - block.min_n][term] == 0) return;
        for (uint32_t i = 0; i < n; ++i) {
            if (i > 0) names.bytes += ' ';
            names.bytes += field.words[path[i]];
        }
        end_name();
    });
    return names;
}

namespace {

// old number -> new number; kNone: dropped
std::vector<uint32_t> ranks(const std::vector<uint8_t>& kept) {
    std::vector<uint32_t> rank(kept.size(), kNone);
    uint32_t next = 0;
    for (size_t i = 0; i < kept.size(); ++i)
        if (kept[i]) rank[i] = next++;
    return rank;
}

template <class T>
void keep(std::vector<T>& values, const std::vector<uint8_t>& kept) {
    size_t to = 0;
    for (size_t i = 0; i < values.size(); ++i)
        if (kept[i]) values[to++] = values[i];
    values.resize(to);
    values.shrink_to_fit();
}

StringTable keep(const StringTable& strings, const std::vector<uint8_t>& kept) {
    StringTable out;
    for (size_t i = 0; i < strings.size(); ++i)
        if (kept[i]) out.intern(strings[i]);
    return out;
}

// used[n - 1][number]: a feature of some block, or part of a feature
std::vector<std::vector<uint8_t>> used_ngrams(const Vocabulary& v, size_t f) {
    const FieldTerms& field = v.fields[f];
    std::vector<std::vector<uint8_t>> used{std::vector<uint8_t>(field.words.size())};
    for (const auto& keys : field.ngrams) used.emplace_back(keys.size());
    for (size_t b = 0; b < v.blocks.size(); ++b) {
        const BlockSpec& block = v.spec.blocks[b];
        if (block.field != f || block.analyzer != Analyzer::word) continue;
        for (size_t i = 0; i < v.blocks[b].df.size(); ++i)
            for (size_t t = 0; t < v.blocks[b].df[i].size(); ++t)
                if (v.blocks[b].df[i][t] > 0) used[block.min_n - 1 + i][t] = 1;
    }
    for (size_t n = used.size(); n >= 2; --n)
        for (size_t t = 0; t < used[n - 1].size(); ++t)
            if (used[n - 1][t]) {
                used[n - 2][first_of(field.ngrams[n - 2][t])] = 1;
                used[0][last_of(field.ngrams[n - 2][t])] = 1;
            }
    return used;
}

}  // namespace

void drop_unused(Vocabulary& v) {
    for (size_t f = 0; f < v.fields.size(); ++f) {
        FieldTerms& field = v.fields[f];
        const auto used = used_ngrams(v, f);
        for (size_t b = 0; b < v.blocks.size(); ++b) {
            const BlockSpec& block = v.spec.blocks[b];
            if (block.field != f || block.analyzer != Analyzer::word) continue;
            for (size_t i = 0; i < v.blocks[b].df.size(); ++i)
                keep(v.blocks[b].df[i], used[block.min_n - 1 + i]);
        }
        const auto word = ranks(used[0]);
        auto shorter = word;
        for (size_t n = 2; n <= used.size(); ++n) {
            auto& keys = field.ngrams[n - 2];
            keep(keys, used[n - 1]);
            for (auto& key : keys) key = uint64_t{shorter[first_of(key)]} << 32 | word[last_of(key)];
            shorter = ranks(used[n - 1]);
        }
        field.words = keep(field.words, used[0]);
    }
    for (size_t b = 0; b < v.blocks.size(); ++b) {
        if (v.spec.blocks[b].analyzer == Analyzer::word) continue;
        auto& df = v.blocks[b].df[0];
        std::vector<uint8_t> used(df.size());
        for (size_t i = 0; i < df.size(); ++i) used[i] = df[i] > 0;
        v.blocks[b].grams = keep(v.blocks[b].grams, used);
        keep(df, used);
    }
}

}  // namespace bonsai::text

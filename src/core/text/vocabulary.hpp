// The terms of a fitted vectorizer as plain arrays, the content of a model file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/spec.hpp"
#include "text/string_table.hpp"

namespace bonsai::text {

// Words and n-grams of one field, shared by its word blocks.
struct FieldTerms {
    StringTable words = {};                          // in the order of their code points
    std::vector<std::vector<uint64_t>> ngrams = {};  // [n - 2]: pair_key((n-1)-gram, last word), ascending
};

// The features of a block and their document frequencies.
struct BlockTerms {
    StringTable grams = {};                      // character blocks: in the order of their code points
    std::vector<std::vector<uint32_t>> df = {};  // word blocks: [n - min_n][number of the n-gram]; others:
                                                 // [0][number]; 0: no feature of this block
};

struct Vocabulary {
    TextSpec spec;
    size_t n_documents = 0;
    std::vector<FieldTerms> fields = {};
    std::vector<BlockTerms> blocks = {};
};

// Throws std::invalid_argument if the arrays, which may come from a file, are inconsistent.
void check(const Vocabulary& vocabulary);

// The columns of a block's terms in scikit-learn's order, which sorts them as strings with words joined by
// spaces. Shaped as BlockTerms::df; kNone: no feature.
struct Columns {
    std::vector<std::vector<uint32_t>> of;
    size_t size = 0;
};
Columns number_columns(const BlockSpec& block, const FieldTerms& field, const BlockTerms& terms);

// The names of a block's features, concatenated, and the end of each.
struct Names {
    std::string bytes;
    std::vector<int64_t> ends;
};
Names feature_names(const Vocabulary& vocabulary, size_t block);

// Drops words and n-grams that are neither features nor parts of features.
void drop_unused(Vocabulary& vocabulary);

// Strings and n-grams as stored in a file. Strings are concatenated, with the offset of each and of the end.
// For each (n-1)-gram, the offset of its n-grams, which are stored as their last words. Reading throws
// std::invalid_argument if the arrays do not have this form.
struct StringArrays {
    std::vector<uint8_t> bytes;
    std::vector<int64_t> ptr;
};
StringArrays to_arrays(const StringTable& strings);
StringTable read_strings(std::span<const uint8_t> bytes, std::span<const int64_t> ptr);

struct NgramArrays {
    std::vector<int64_t> ptr;
    std::vector<uint32_t> last;
};
NgramArrays to_arrays(const std::vector<uint64_t>& keys, size_t n_shorter);
std::vector<uint64_t> read_ngrams(std::span<const int64_t> ptr, std::span<const uint32_t> last);

}  // namespace bonsai::text

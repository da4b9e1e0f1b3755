// The specification of a text vectorizer: blocks of features, each a separate TF-IDF matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bonsai::text {

// scikit-learn's "word", "char" and "char_wb".
enum class Analyzer : uint8_t { word, character, character_in_span };

// A number of documents, or a share of all documents.
struct Frequency {
    double value;
    bool is_share;
    double of(size_t n_documents) const {
        return is_share ? value * static_cast<double>(n_documents) : value;
    }
};

// One block: the n-grams of a field, min_n <= n <= max_n. Its rows have unit length before they are
// multiplied by `weight`.
struct BlockSpec {
    uint32_t field;
    Analyzer analyzer;
    uint32_t min_n;
    uint32_t max_n;
    Frequency min_df;       // terms in fewer documents are left out
    Frequency max_df;       // terms in more documents are left out
    uint64_t max_features;  // number of terms kept, the most frequent first; 0: all
    bool sublinear_tf;      // 1 + log(tf) instead of tf
    bool smooth_idf;        // as if one more document had every term
    double power;           // exponent applied to values before rows are scaled to unit length
    double weight;
};

struct TextSpec {
    uint32_t n_fields;
    bool lowercase;
    uint32_t min_word_length;  // in code points
    std::vector<BlockSpec> blocks;
};

// Throws std::invalid_argument unless all values are valid.
void check(const TextSpec& spec);

}  // namespace bonsai::text

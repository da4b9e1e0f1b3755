// A fitted vectorizer, which turns texts into rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.hpp"
#include "text/documents.hpp"
#include "text/pair_table.hpp"
#include "text/tfidf.hpp"
#include "text/vocabulary.hpp"

namespace bonsai::text {

// An occurrence of a feature in the text of a field, as a range of code points in the original text.
struct Place {
    uint32_t column;  // counted over all blocks
    uint32_t field;
    uint32_t begin;
    uint32_t end;
};

class Vectorizer {
  public:
    // Throws std::invalid_argument if the vocabulary is inconsistent.
    explicit Vectorizer(Vocabulary vocabulary);

    SparseRows transform(const Documents& documents, Pool& pool) const;

    // Returns all occurrences of features in one document, block by block.
    std::vector<Place> places(const Documents& documents, size_t document) const;

    const Vocabulary& vocabulary() const { return vocabulary_; }
    size_t n_features() const { return n_features_; }
    const BlockWeights& weights(size_t block) const { return weights_[block]; }
    size_t n_features(size_t block) const { return weights_[block].columns.size; }

  private:
    class Reader;

    Vocabulary vocabulary_;
    std::vector<BlockWeights> weights_;
    std::vector<std::vector<PairTable>> ngrams_;  // [field][n - 2]
    size_t n_features_ = 0;
};

}  // namespace bonsai::text

// A fitted vectorizer: texts in, rows out.
#pragma once

#include <cstddef>
#include <vector>

#include "base/parallel.hpp"
#include "text/documents.hpp"
#include "text/pair_table.hpp"
#include "text/tfidf.hpp"
#include "text/vocabulary.hpp"

namespace bonsai::text {

class Vectorizer {
  public:
    // Throws std::invalid_argument if the vocabulary is inconsistent.
    explicit Vectorizer(Vocabulary vocabulary);

    SparseRows transform(const Documents& documents, Pool& pool) const;

    const Vocabulary& vocabulary() const { return vocabulary_; }
    size_t n_features() const { return n_features_; }
    size_t n_features(size_t block) const { return weights_[block].columns.size; }

  private:
    class Reader;

    Vocabulary vocabulary_;
    std::vector<BlockWeights> weights_;
    std::vector<std::vector<PairTable>> ngrams_;  // [field][n - 2]
    size_t n_features_ = 0;
};

}  // namespace bonsai::text

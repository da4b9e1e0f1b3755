// Vocabularies that are not fitted on documents: a selection from another vocabulary, or given terms.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "text/tfidf.hpp"
#include "text/vectorizer.hpp"

namespace bonsai::text {

// The vocabulary without the features whose byte of `keep` is 0. Throws std::invalid_argument unless there is
// a byte for each feature.
Vocabulary select(const Vectorizer& from, std::span<const uint8_t> keep);
// Takes sparse rows of `from` to the rows of the selection: each block scaled to its weight, each row to unit
// length.
SparseRows select(const RowsView& rows, const Vectorizer& from, std::span<const uint8_t> keep, Pool& pool);

// A vocabulary of one block with these terms, whose words are separated by spaces, as features, and their
// document frequencies. Throws std::invalid_argument if the number of words of a term is outside the block's
// range.
Vocabulary vocabulary_of_terms(const TextSpec& spec, size_t n_documents, std::span<const std::string> terms,
                               std::span<const uint32_t> df);

}  // namespace bonsai::text

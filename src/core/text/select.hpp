// Vocabularies that do not come from documents: some features of another one, or given terms.
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
// Rows of `from`, sparse, as the vectorizer of that vocabulary makes them: each block of its weight, each row
// of unit length.
SparseRows select(const RowsView& rows, const Vectorizer& from, std::span<const uint8_t> keep, Pool& pool);

// A vocabulary of one block with these terms as features, whose words are separated by spaces, and their
// document frequencies. Throws std::invalid_argument where a term has more or fewer words than the block
// says.
Vocabulary vocabulary_of_terms(const TextSpec& spec, size_t n_documents, std::span<const std::string> terms,
                               std::span<const uint32_t> df);

}  // namespace bonsai::text

// Label vectors: what the trees are clustered from.
#pragma once

#include "base/parallel.hpp"
#include "data/dataset.hpp"

namespace bonsai {

enum class Representation { input, output, joint };

// One unit row for each label (zero for a label without rows, or one that co-occurs with nothing in
// `output`). input: sum of the label's rows, n_features wide; output: how often it occurs with each other
// label, n_labels wide; joint: both side by side, each of unit norm first. Dense rows give dense vectors in
// `input`.
Rows label_vectors(const Dataset& data, Representation representation, Pool& pool);

// Divides each row by its norm; zero rows stay.
void make_unit_rows(Rows& rows);

}  // namespace bonsai

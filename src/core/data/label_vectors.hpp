// Label vectors (label representations): clustering them gives the trees.
#pragma once

#include <memory>

#include "base/parallel.hpp"
#include "base/stage.hpp"
#include "data/dataset.hpp"

namespace bonsai {

enum class Representation { input, output, joint };

// One row of norm 1 for each label; zero for a label without rows, and in `output` for one that co-occurs
// with no other. input: the sum of the label's rows, n_features wide. output: co-occurrences with each other
// label, n_labels wide. joint: both side by side, each normalised first. Dense rows give dense vectors in
// `input`.
//
// A unit is a block of labels. The data must outlive the stage.
class LabelVectorStage : public Stage {
  public:
    // The results, which leave the stage. Throws std::invalid_argument unless it is complete.
    virtual Rows finish(Pool& pool) = 0;
};
std::unique_ptr<LabelVectorStage> label_vector_stage(const Dataset& data, Representation representation);

// Divides each row by its norm; zero rows stay.
void make_unit_rows(Rows& rows);

}  // namespace bonsai

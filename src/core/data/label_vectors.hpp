// Label vectors (label representations), which are clustered into trees.
#pragma once

#include <memory>
#include <optional>

#include "base/parallel.hpp"
#include "base/stage.hpp"
#include "data/dataset.hpp"
#include "data/sizes.hpp"
#include "data/slice.hpp"

namespace bonsai {

enum class Representation { input, output, joint };

// One row of norm 1 for each label; zero for a label without rows, and in `output` for a label that co-occurs
// with no other. input: the sum of the label's rows, n_features wide. output: co-occurrence counts with all
// other labels, n_labels wide. joint: both side by side, each normalised first. Dense rows give dense vectors
// in `input`; features of sparse vectors are numbered by frequency: trees are clustered as they are, without
// a copy.
//
// Where labels and rows are many, vectors take more memory and time than anything else of training. Then no
// more than the kKeptEntries largest entries of each are kept, of both sides of `joint`: of Amazon-3M half of
// the entries, and 97 % of the squared norm of a vector; the accuracy of the trees stays within its noise.
inline constexpr size_t kKeptEntries = 512;
inline constexpr double kLargestWhole = double{1 << 28};
// The entries of the rows of each label; 0 for dense rows. Above kLargestWhole vectors are cut.
double n_products(const Dataset& data);
inline size_t most_entries(double n_products) {
    return n_products > kLargestWhole ? kKeptEntries : ~size_t{0};
}

// A unit is a block of labels. The data must outlive the stage. `most`: entries that are kept, at least one.
class LabelVectorStage : public Stage {
  public:
    // Moves the results out of the stage. Throws std::invalid_argument unless the stage is complete.
    virtual Rows finish(Pool& pool) = 0;
};
std::unique_ptr<LabelVectorStage> label_vector_stage(const Dataset& data, Representation representation,
                                                     size_t most);
inline std::unique_ptr<LabelVectorStage> label_vector_stage(const Dataset& data,
                                                            Representation representation) {
    return label_vector_stage(data, representation, most_entries(n_products(data)));
}

// Sizes of label vectors before they are computed. Without a representation they belong to the caller and
// cost nothing.
struct VectorSizes {
    VectorSizes(const ProblemSizes& problem, std::optional<Representation> representation);

    // Bytes of all vectors, and the peak while they are computed.
    double bytes() const;
    double making_bytes(double threads) const;
    // The vectors of a share of the labels with rows; and the number of columns that they use.
    RowsSize part(double share) const;
    double used_columns(double share) const;
    bool dense() const { return with_input_ && !with_output_ && problem_.dense; }

  private:
    const ProblemSizes& problem_;
    bool with_input_, with_output_;
    double of_input_, of_output_;  // entries
    double n_entries_, n_columns_;
};

// Divides each row by its norm; zero rows are unchanged.
void make_unit_rows(Rows& rows);

}  // namespace bonsai

// Explains why a row gets a label: the integers that add up to a classifier's margin, and the nodes that beam
// search keeps. For one row at a time; rankings compute the same for many rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"
#include "predict/batch.hpp"
#include "predict/model.hpp"
#include "predict/scores.hpp"

namespace bonsai {

// A row quantised as for prediction, and the decisions of a model's classifiers about it.
class Reasons {
  public:
    // The decision of one classifier. `sum` is the exact sum of value * weight over the row's features.
    struct Decision {
        std::vector<StoredWeight> weights;  // per feature of the row; 0 if there is none
        int32_t sum;
        float scale;
        float bias;
        float margin;  // sum * (unit * scale) + bias, plus the margin of a residual
        float score;   // log score of the margin plus that of the path
    };
    // A node that beam search keeps. Roots have level 0; a leaf is kept at all further levels unless the beam
    // is strict.
    struct Kept {
        uint32_t level;
        uint32_t node;
        float score;  // log score of the path to it
    };

    // Takes the only row of x. Throws std::invalid_argument if x does not fit the model.
    Reasons(const Model& model, const RowsView& x, const Kernels& kernels);

    // The features in the order of x, except those whose value rounds to 0. A value is an integer times
    // `unit`.
    std::span<const uint32_t> features() const { return {batch_.features(row()), row().n}; }
    std::span<const int16_t> values() const { return {batch_.values(row()), row().n}; }
    float unit() const { return row().unit; }

    // The classifier of a child, numbered over all nodes of the forest; `path` is the log score of its node.
    Decision decide(const Forest& forest, size_t child, float path) const;
    // All nodes that a beam search in the model's trees keeps, by level, then by tree. beam_size 0 keeps all.
    std::vector<Kept> search(size_t beam_size) const;

  private:
    const Batch::Row& row() const { return batch_.row(0); }

    const Model& model_;
    const Kernels& kernels_;
    Scores scores_;
    Batch batch_;
};

}  // namespace bonsai

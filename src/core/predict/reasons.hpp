// Why a row gets a label: the integers that a classifier's margin is made of, and the nodes that beam search
// keeps. For one row at a time; rankings compute the same for many.
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

// A row as prediction multiplies it, and what the classifiers of a model say about it.
class Reasons {
  public:
    // What one classifier says. The sum of value * weight over the row's features is `sum`, exactly.
    struct Decision {
        std::vector<StoredWeight> weights;  // of the row's features, in their order; 0 where it has none
        int32_t sum;
        float scale;
        float bias;
        float margin;  // sum * (unit * scale) + bias, and what a residual adds
        float score;   // log score of the margin, plus that of the path
    };
    // A node that beam search keeps. The roots have level 0; a leaf is kept at all further levels, unless the
    // beam is strict.
    struct Kept {
        uint32_t level;
        uint32_t node;
        float score;  // log score of the path to it
    };

    // Of the only row of x. Throws std::invalid_argument where x does not fit the model.
    Reasons(const Model& model, const RowsView& x, const Kernels& kernels);

    // Features in the order of x, without those whose value rounds to 0. A value is an integer times `unit`.
    std::span<const uint32_t> features() const { return {batch_.features(row()), row().n}; }
    std::span<const int16_t> values() const { return {batch_.values(row()), row().n}; }
    float unit() const { return row().unit; }

    // The classifier of a child, numbered over all nodes of the forest; `path` is the log score of its node.
    Decision decide(const Forest& forest, size_t child, float path) const;
    // All nodes that a search of the model's trees keeps, level by level, then by tree. beam_size 0 keeps
    // all.
    std::vector<Kept> search(size_t beam_size) const;

  private:
    const Batch::Row& row() const { return batch_.row(0); }

    const Model& model_;
    const Kernels& kernels_;
    Scores scores_;
    Batch batch_;
};

}  // namespace bonsai

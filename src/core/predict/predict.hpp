// Beam search over the trees, and the ranking of what it finds.
#pragma once

#include "base/parallel.hpp"
#include "data/matrix.hpp"
#include "linear/linear.hpp"
#include "model/forest.hpp"

namespace bonsai {

struct PredictParams {
    Loss loss;
    size_t beam;       /// nodes kept at each level; 0: all
    size_t k;          /// labels for each row
    bool normalize;    /// rows are made unit-norm first
    float path_power;  /// with a ranker: power of the path's score, >= 0
};

// For each row its k best labels: ids (n x k, -1 where there are fewer candidates) and log scores (n x k,
// -infinity there), best first. Ties go to the larger mean margin, then to the smaller label.
// With a ranker, a forest that is one leaf, the trees only find candidates, all labels of the leaves that the
// beam ends in, and the ranker's classifiers rank them.
void predict_top_k(const Forest& forest, const Forest* ranker, const RowsView& x, const PredictParams& params,
                   Pool& pool, int32_t* ids, float* scores);

}  // namespace bonsai

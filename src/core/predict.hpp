// Beam search over the trees, and the ranking of what it finds.
#pragma once

#include "linear.hpp"
#include "matrix.hpp"
#include "model.hpp"
#include "parallel.hpp"

namespace bonsai {

struct PredictParams {
    Loss loss;
    size_t beam;     /// nodes kept at each level; 0: all
    size_t k;        /// labels for each row
    bool normalize;  /// rows are made unit-norm first
};

// For each row its k best labels: ids (n x k, -1 where there are fewer candidates) and log scores (n x k,
// -infinity there), best first. Ties go to the larger mean margin, then to the smaller label.
void predict_top_k(const Forest& forest, const RowsView& x, const PredictParams& params, Pool& pool,
                   int32_t* ids, float* scores);

}  // namespace bonsai

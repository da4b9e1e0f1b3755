// One-vs-rest classifiers with an L1 penalty and the squared hinge loss: ProXML and, with an additional L2
// term, PPD-Sparse.
#pragma once

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "systems/sparse_weights.hpp"

namespace bonsai {

// For each label, min over w and b of l1 (|w|₁ + |b|) + l2/2 (|w|² + b²) + C Σ c_i max(0, 1 − s_i (w·x_i +
// b))², with the weights c_i of the rows.
struct L1HingeParams {
    double l1;       /// > 0
    double l2;       /// ≥ 0
    double c;        /// C > 0
    double tol;      /// > 0: the duality gap at which a label is solved, relative to its objective
    int max_rounds;  /// maximum number of working sets of features
};

// Labels are solved in parallel, each by one thread.
SparseWeights train_l1_hinge(const Dataset& data, const L1HingeParams& params, Pool& pool);

}  // namespace bonsai

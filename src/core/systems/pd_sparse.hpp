// PD-Sparse (Yen, Huang, Zhong, Ravikumar, Dhillon, ICML 2016): a max-margin ranking of labels with an L1
// penalty, solved in the dual, where few variables of a row are not 0, while few weights are not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "systems/sparse_weights.hpp"

namespace bonsai {

// min over W of Σ_k ½|w_k|² + l1 |w_k|₁ + C Σ_i c_i Σ_p max(0, 1 + max over negatives n of z_in − z_ip), with
// z_ik = w_k·x_i, the positives p and the weights c_i of the rows. As published, the largest term of a row
// stands for their sum.
struct PdSparseParams {
    double l1;        /// ≥ 0
    double c;         /// C > 0
    bool largest;     /// the largest loss of a row's positives instead of their sum
    int max_epochs;   /// passes over the rows, at most, before and after the penalty is taken away
    int patience;     /// epochs without a better precision on held-out rows after which passes end
    double held_out;  /// share of the rows, in [0, 1); 0: all epochs are done
    bool refit;       /// whether the weights are trained on without the L1 penalty, where they are not 0
    uint64_t seed;
};

// One thread: the update of a row depends on those before it.
SparseWeights train_pd_sparse(const Dataset& data, const PdSparseParams& params, Control& control);

// The point next to (a, b) with 0 ≤ a_p ≤ c, b_n ≥ 0 and Σ a_p = Σ b_n, in place: the duals of a sum of
// losses.
void project_pairs(std::span<double> a, std::span<double> b, double c);

// The same with Σ a_p = Σ b_n ≤ c: the duals of the largest loss.
void project_sums(std::span<double> a, std::span<double> b, double c);

}  // namespace bonsai

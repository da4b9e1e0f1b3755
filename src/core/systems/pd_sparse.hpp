// PD-Sparse (Yen, Huang, Zhong, Ravikumar, Dhillon, ICML 2016): a max-margin ranking of labels with an L1
// penalty, solved in the dual; both the dual variables of a row and the weights are sparse.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "systems/sparse_weights.hpp"

namespace bonsai {

// min over W of Σ_k ½|w_k|² + l1 |w_k|₁ + C Σ_i c_i Σ_p max(0, 1 + max over negatives n of z_in − z_ip), with
// z_ik = w_k·x_i, the positives p and the weights c_i of the rows. The published loss takes the largest term
// of a row instead of the sum.
struct PdSparseParams {
    double l1;        /// ≥ 0
    double c;         /// C > 0
    bool largest;     /// the largest loss of a row's positives instead of their sum
    int max_epochs;   /// maximum passes over the rows, each before and after the penalty is removed
    int patience;     /// passes end after this many epochs without better precision on held-out rows
    double held_out;  /// share of the rows, in [0, 1); 0: all epochs are done
    bool refit;       /// whether non-zero weights are then trained further without the L1 penalty
    uint64_t seed;
};

// Runs on one thread: the update of a row depends on earlier updates.
SparseWeights train_pd_sparse(const Dataset& data, const PdSparseParams& params, Control& control);

// Projects (a, b) onto 0 ≤ a_p ≤ c, b_n ≥ 0 and Σ a_p = Σ b_n, in place: the duals for a sum of losses.
void project_pairs(std::span<double> a, std::span<double> b, double c);

// The same with Σ a_p = Σ b_n ≤ c: the duals for the largest loss.
void project_sums(std::span<double> a, std::span<double> b, double c);

}  // namespace bonsai

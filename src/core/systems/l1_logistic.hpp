// Logistic regression with an L1 penalty, for problems whose solution is sparse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "kernels/kernels.hpp"
#include "systems/node_columns.hpp"

namespace bonsai {

struct L1Params {
    double tol = 0.01;  /// remaining violation of the optimality conditions, relative to the first
    int max_iter = 20;  /// maximum number of Newton steps
};

// min over w, b of ‖w‖₁ + |b| + Σᵢ cᵢ log(1 + exp(−sᵢ (w·xᵢ + b))): proximal Newton steps whose quadratic
// models are minimised by coordinate descent (Yuan, Ho, Lin: An improved GLMNET for L1-regularized logistic
// regression, JMLR 2012), one or two of them on each working set of columns, which is selected by the
// gradient of all columns.
class L1Logistic {
  public:
    explicit L1Logistic(const Kernels& kernels) : kernels_(kernels) {}

    // The result stays in `weights`, `bias`, `objective` and `n_iter` until the next call. `rng` orders the
    // coordinates. Throws Interrupted.
    void solve(const NodeColumns& x, std::span<const int8_t> sign, std::span<const float> cost,
               const L1Params& params, Rng rng, const Control& control);

    std::span<const float> weights() const { return {w_.data(), w_.size() - 1}; }  // one for each column
    float bias() const { return w_.back(); }
    double objective() const { return objective_; }
    int n_iter() const { return n_iter_; }

  private:
    // Of column j; the bias is the last one, of ones, after n_dense dense ones and the sparse ones.
    bool is_dense(size_t j) const { return j < x_->n_dense() || j == x_->size(); }
    const float* dense(size_t j) const { return j == x_->size() ? ones_.data() : x_->dense(j); }
    // Σ xᵢ of[i] and Σ xᵢ² of[i]
    float dot(size_t j, const std::vector<float>& of) const;
    float dot_squares(size_t j, const std::vector<float>& of) const;
    void add_pull(size_t j, float step);
    double violation(size_t j) const;
    void find_gradient(size_t j);
    double choose_columns();
    void descend(double tol, Rng& rng);
    bool step();
    // The loss at margin + part · direction; sets residual_ and curvature_ for that place.
    double evaluate(double part);

    const Kernels& kernels_;
    const NodeColumns* x_ = nullptr;
    std::span<const float> cost_;
    std::vector<float> w_, d_, gradient_, diagonal_;                  // per column
    std::vector<float> sign_, margin_, direction_, residual_, ones_;  // per row
    // The quadratic model at a row: the curvature of its loss, and this times the step of its margin.
    std::vector<float> curvature_, pull_;
    std::vector<uint32_t> working_, open_;
    double loss_ = 0, objective_ = 0;
    int n_iter_ = 0;
};

}  // namespace bonsai

// Logistic regression with an L1 penalty, for problems whose solution is sparse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "data/rows.hpp"

namespace bonsai {

struct L1Params {
    double tol = 0.01;  /// the violation of the optimality conditions that is left, as a part of the first
    int max_iter = 20;  /// Newton steps, at most
};

// Rows with signs, by columns. Columns whose weight is 0 in every solution are left out: the gradient of
// column j never exceeds the larger of Σ cᵢ max(0, sᵢ xᵢⱼ) and Σ cᵢ max(0, −sᵢ xᵢⱼ), and no weight leaves 0
// while the gradient is at most 1.
class SignedColumns {
  public:
    // Column j has the entries `begin(j)` … `begin(j + 1)` of `row` and `value`. Rows ascend in each column.
    size_t size() const { return features_.size(); }
    size_t n_rows() const { return n_rows_; }
    size_t begin(size_t j) const { return ptr_[j]; }
    const uint32_t* row() const { return row_.data(); }
    const float* value() const { return value_.data(); }
    // The features of the columns, ascending.
    std::span<const uint32_t> features() const { return features_; }

    // Row i is row ids[i] of `x` times factors[ids[i]]. `cost` and `sign` have one entry for each of `ids`.
    // The memory of an earlier call is used again.
    void build(const RowsView& x, std::span<const float> factors, std::span<const uint32_t> ids,
               std::span<const int8_t> sign, std::span<const float> cost);

  private:
    struct Feature {
        float up = 0, down = 0;  // Σ cᵢ max(0, sᵢ xᵢⱼ), Σ cᵢ max(0, −sᵢ xᵢⱼ)
        uint32_t count = 0;
    };

    size_t n_rows_ = 0;
    std::vector<Feature> seen_;    // by feature; all zero between calls
    std::vector<uint32_t> place_;  // by feature: of its next entry; all kNowhere between calls
    std::vector<uint32_t> touched_;
    std::vector<uint32_t> features_;
    std::vector<size_t> ptr_;
    UninitialisedVector<uint32_t> row_;
    UninitialisedVector<float> value_;
};

// min over w, b of ‖w‖₁ + |b| + Σᵢ cᵢ log(1 + exp(−sᵢ (w·xᵢ + b))): proximal Newton steps whose quadratic
// models are minimised by coordinate descent (Yuan, Ho, Lin: An improved GLMNET for L1-regularized logistic
// regression, JMLR 2012), on a working set of columns that the gradient of all columns chooses.
class L1Logistic {
  public:
    // The result is in `weights`, `bias`, `objective` and `n_iter`, until the next call. `rng` orders the
    // coordinates. Throws Interrupted.
    void solve(const SignedColumns& x, std::span<const int8_t> sign, std::span<const float> cost,
               const L1Params& params, Rng rng, const Control& control);

    std::span<const float> weights() const { return {w_.data(), w_.size() - 1}; }  // one for each column
    float bias() const { return w_.back(); }
    double objective() const { return objective_; }
    int n_iter() const { return n_iter_; }

  private:
    // The bias is the last column, of ones.
    float dot(size_t j, const float* values) const;
    float curvature_of(size_t j) const;
    void add(size_t j, float step, float* to) const;
    void add_curved(size_t j, float step);
    double violation(size_t j) const;
    double look_at_all();
    double look_at_working();
    void descend(double tol, Rng& rng);
    bool step();
    // The loss at margin + part · direction; sets residual_ and curvature_ for that place.
    double evaluate(double part);

    const SignedColumns* x_ = nullptr;
    std::span<const int8_t> sign_;
    std::span<const float> cost_;
    std::vector<float> w_, d_, gradient_, diagonal_;                         // of each column
    std::vector<float> margin_, direction_, residual_, curvature_, curved_;  // of each row
    std::vector<uint32_t> working_, open_;
    double loss_ = 0, objective_ = 0;
    int n_iter_ = 0;
};

}  // namespace bonsai

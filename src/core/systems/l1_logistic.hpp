// Logistic regression with an L1 penalty, for problems whose solution is sparse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "systems/sparse_weights.hpp"

namespace bonsai {

struct L1Params {
    double tol = 0.01;  /// remaining violation of the optimality conditions, relative to the first
    int max_iter = 20;  /// maximum number of Newton steps
};

// The columns of a node's rows that may get a weight.
class NodeColumns {
  public:
    using Entry = Columns::Entry;

    // Columns of all rows, which all nodes share. Both are borrowed.
    NodeColumns(const Dataset& data, const Columns& all) : data_(data), all_(all) {}

    // The node has these rows, ascending: row i of the columns is row ids[i] of the data set times its
    // factor. It has the columns with Σᵢ |pull[i] xᵢⱼ| > least. Memory of earlier calls is reused.
    void take(std::span<const uint32_t> ids, std::span<const float> pull, float least);

    size_t size() const { return columns_.size(); }
    size_t n_rows() const { return n_rows_; }
    // Rows ascend in each column.
    std::span<const Entry> operator[](size_t j) const { return columns_[j]; }
    // The features of the columns, each once, in no order.
    std::span<const uint32_t> features() const { return features_; }
    // Σᵢ pull[i] xᵢⱼ of each column.
    std::span<const float> pulls() const { return pulls_; }

  private:
    struct Sums {
        float pull = 0, size = 0;
        uint32_t n = 0;
    };
    void add(uint32_t feature, std::span<const Entry> column, float pull) {
        features_.push_back(feature);
        columns_.push_back(column);
        pulls_.push_back(pull);
    }
    void add(uint32_t feature, std::span<const Entry> column, std::span<const float> pull, float least);
    void select(std::span<const uint32_t> ids, std::span<const float> pull, float least);
    void transpose(std::span<const uint32_t> ids, std::span<const float> pull, float least);

    const Dataset& data_;
    const Columns& all_;
    size_t n_rows_ = 0;
    std::vector<uint32_t> features_;
    std::vector<std::span<const Entry>> columns_;
    std::vector<float> pulls_;
    SharedVector<Entry> entries_;
    std::vector<uint32_t> place_;  // per row of the data set, in the node
    std::vector<Sums> sums_;       // of each feature; all 0 between calls
    std::vector<uint32_t> touched_;
    std::vector<Entry*> next_;  // of each feature: where its next entry goes
};

// min over w, b of ‖w‖₁ + |b| + Σᵢ cᵢ log(1 + exp(−sᵢ (w·xᵢ + b))): proximal Newton steps whose quadratic
// models are minimised by coordinate descent (Yuan, Ho, Lin: An improved GLMNET for L1-regularized logistic
// regression, JMLR 2012), one or two of them on each working set of columns, which is selected by the
// gradient of all columns.
class L1Logistic {
  public:
    // The result stays in `weights`, `bias`, `objective` and `n_iter` until the next call. `x` takes the
    // columns of the rows; those whose weight is 0 in every solution are left out. `rng` orders the
    // coordinates. Throws Interrupted.
    void solve(NodeColumns& x, std::span<const uint32_t> rows, std::span<const int8_t> sign,
               std::span<const float> cost, const L1Params& params, Rng rng, const Control& control);

    std::span<const float> weights() const { return {w_.data(), w_.size() - 1}; }  // one for each column
    float bias() const { return w_.back(); }
    double objective() const { return objective_; }
    int n_iter() const { return n_iter_; }

  private:
    // The quadratic model at a row: the second derivative of its loss, and this times the step of its margin.
    struct Curve {
        float curvature, pull;
    };
    template <size_t n>
    struct Sums {
        float of[n] = {};
        void operator+=(const Sums& other) {
            for (size_t k = 0; k < n; ++k) of[k] += other.of[k];
        }
    };

    // The bias is the last column, of ones.
    template <class Sum, class Value>
    Sum sum_of(size_t j, Value&& value) const;
    void add_pull(size_t j, float step);
    double violation(size_t j) const;
    void find_gradient(size_t j);
    double choose_columns();
    void descend(double tol, Rng& rng);
    bool step();
    // The loss at margin + part · direction; sets residual_ and curve_ for that place.
    double evaluate(double part);

    const NodeColumns* x_ = nullptr;
    std::span<const int8_t> sign_;
    std::span<const float> cost_;
    std::vector<float> w_, d_, gradient_, diagonal_;    // per column
    std::vector<float> margin_, direction_, residual_;  // per row
    std::vector<Curve> curve_;
    std::vector<uint32_t> working_, open_;
    double loss_ = 0, objective_ = 0;
    int n_iter_ = 0;
};

}  // namespace bonsai

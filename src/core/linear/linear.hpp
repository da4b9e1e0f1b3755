// Binary linear classifiers, a panel at a time. Knows rows, signs and lanes; nothing of labels or trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/parallel.hpp"
#include "data/matrix.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {

enum class Loss { squared_hinge, logistic };
enum class Solver { dual, newton };

// min over w of 1/2 |w|^2 + C sum_i s_i loss(y_i (w . x_i + b)). No defaults here: they live in the Python
// signature.
struct LinearParams {
    Loss loss;
    Solver solver;
    double c;          /// C > 0
    double tol;        /// > 0: spread of the projected gradient (dual), relative gradient norm (newton)
    int max_iter;      /// passes over the rows, or Newton steps
    bool learn_bias;   /// b is the weight of a constant feature 1, regularised like the others
    float fixed_bias;  /// b, where it is not learnt
    float prune;       /// weights |w| <= prune are not reported; negative: report all
};

// Whether the solver takes a row's lone entries apart from its others. In the dual of the squared hinge the
// weight of such an entry is y alpha x, and so its part of the margin y alpha x^2: as if 1 / (2 C_i) were
// larger by x^2.
inline bool holds_apart(const LinearParams& params) {
    return params.solver == Solver::dual && params.loss == Loss::squared_hinge;
}

// The rows that all classifiers of a node share, and for each row the classifiers that it is a positive of.
struct Problem {
    RowsView rows;
    const LoneEntries* lone = nullptr;  // more entries of the rows; only where holds_apart()
    std::vector<float> weight;          // s_i for each row; empty: all 1
    std::vector<float> norm2;           // |x_i|^2 for each row, lone entries included
    std::vector<int64_t> class_ptr;     // n_rows + 1
    std::vector<uint32_t> classes;      // ascending in each row
    size_t n_classes = 0;
    uint64_t key = 0;  // address of the node: the order of the rows follows from it

    double cost(size_t i, double c) const { return weight.empty() ? c : c * double{weight[i]}; }
};

struct Weight {
    uint32_t feature;  // of problem.rows or problem.lone
    uint32_t cls;
    float value;
};

// What a panel leaves behind. `weights` holds runs, each ascending by feature.
struct Solution {
    std::vector<Weight> weights;
    std::vector<float> bias;      // for each class of the panel
    std::vector<int32_t> n_iter;  // for each class: passes or Newton steps taken
    std::vector<uint8_t> converged;
};

// Solves classes [first, first + n) of the problem, n <= kMaxLanes. A class's result does not depend on which
// others share its panel.
Solution solve_panel(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                     const Kernels& kernels, const Control& control);

}  // namespace bonsai

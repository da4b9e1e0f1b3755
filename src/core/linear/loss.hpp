// The loss functions: one struct each, with everything that solvers and prediction need from a loss. A new
// loss needs a struct here, an entry in `Loss`, and a pass of dual coordinate descent (kernels/dual.inl).
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "kernels/kernels.hpp"

namespace bonsai {

struct Derivatives {
    double first, second;
};

// A lane after a pass of dual coordinate descent, see DualPass.
struct PassedLane {
    float bias, gradient_max, gradient_min, residual, alpha_sum, support;
};

// max(0, 1 - m)^2 at the margin m = y (w.x + b)
struct SquaredHinge {
    static constexpr const char* name = "squared_hinge";
    static constexpr const char* score_formula = "exp(−max(0, 1 − margin)²)";
    static constexpr double usual_c = 1;
    // Rows with a margin of 1 or more have no influence: one_vs_rest/active_set.hpp solves it.
    static constexpr bool has_active_sets = true;
    // In the dual, a feature that occurs in a single row has the weight y alpha x, which adds y alpha x^2 to
    // the margin of that row: the same as a 1 / (2 C_i) larger by x^2.
    static constexpr bool eliminates_singletons = true;

    template <class Float>
    static Float at(Float m) {
        const Float slack = std::max(Float{0}, Float{1} - m);
        return slack * slack;
    }
    static Derivatives derivatives(double m) { return {-2.0 * std::max(0.0, 1.0 - m), m < 1.0 ? 2.0 : 0.0}; }
    // The margin that has this loss; the loss is above 0.
    static float margin_of(float loss) { return 1.0f - std::sqrt(loss); }

    static constexpr auto dual_pass = &Kernels::dual_squared_hinge;
    // DualPass::diagonal and Q_ii of a row.
    static double diagonal(double cost, double singletons2) { return 0.5 / cost + singletons2; }
    static double q(double cost, double norm2, bool) { return norm2 + 0.5 / cost; }
    // A pass leaves the bias unchanged: otherwise every change of the bias would require updates of rows that
    // hardly affect the class. The initial bias is the optimum of a classifier without weights, given the
    // costs of the positives and of all rows.
    static constexpr bool moves_bias_between_passes = true;
    static double first_bias(double positives, double all) { return 2 * positives / all - 1; }
    // At the optimum the bias is the sum of y alpha. If the bias changes by 1, the alpha of a support vector
    // changes by 1 / Q_ii if the weights follow at once, and by up to three times as much if they do not.
    // This is a Newton step with twice 1 / Q_ii.
    static float bias_step(const PassedLane& lane) {
        return (lane.alpha_sum - lane.bias) / (1 + 2 * lane.support);
    }
    static bool converged(const PassedLane& lane, float bias_step, double tol) {
        return lane.gradient_max - lane.gradient_min <= tol && std::abs(bias_step) <= tol;
    }
};

// log(1 + exp(-m)), without overflow
struct Logistic {
    static constexpr const char* name = "logistic";
    static constexpr const char* score_formula = "1 / (1 + exp(−margin))";
    static constexpr double usual_c =
        10;  // the loss is flatter: with C = 1, classifiers of rare labels stay near 0
    static constexpr bool has_active_sets = false;
    static constexpr bool eliminates_singletons = false;

    template <class Float>
    static Float at(Float m) {
        return std::max(Float{0}, -m) + std::log1p(std::exp(-std::abs(m)));
    }
    static Derivatives derivatives(double m) {
        const double p = 1.0 / (1.0 + std::exp(-m));
        return {p - 1.0, p * (1.0 - p)};
    }
    static float margin_of(float loss) { return -std::log(std::expm1(loss)); }

    static constexpr auto dual_pass = &Kernels::dual_logistic;
    static double diagonal(double cost, double) { return cost; }
    // A row without features and bias has no influence: any finite step is valid.
    static double q(double, double norm2, bool learn_bias) {
        return std::max(norm2 + (learn_bias ? 1.0 : 0.0), 1e-12);
    }
    static constexpr bool moves_bias_between_passes = false;
    static double first_bias(double, double) { return 0; }
    static float bias_step(const PassedLane&) { return 0; }
    static bool converged(const PassedLane& lane, float, double tol) {
        return lane.residual <= tol * double{lane.alpha_sum};
    }
};

// One of the losses. std::visit passes it to a solver with its type.
using Loss = std::variant<SquaredHinge, Logistic>;

// Calls fn(loss) for each loss.
template <class Fn>
void for_each_loss(Fn&& fn) {
    [&]<size_t... place>(std::index_sequence<place...>) {
        (fn(std::variant_alternative_t<place, Loss>{}), ...);
    }(std::make_index_sequence<std::variant_size_v<Loss>>{});
}

}  // namespace bonsai

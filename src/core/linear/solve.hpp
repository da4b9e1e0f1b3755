// The choice between the solvers.
#pragma once

#include "linear/dual.hpp"
#include "linear/newton.hpp"

namespace bonsai {

// Solves classes [first, first + n) of the problem, n ≤ kMaxLanes, by params.solver. The result of a class
// does not depend on the other classes in its panel.
inline Solution solve_panel(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                            const Kernels& kernels, const Control& control,
                            ProgressShare* progress = nullptr) {
    const auto solve = params.solver == Solver::newton ? solve_newton : solve_dual;
    return solve(problem, first, n, params, kernels, control, progress);
}

}  // namespace bonsai

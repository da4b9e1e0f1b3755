// The primal trust-region Newton method on one panel at a time.
#pragma once

#include "base/parallel.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"

namespace bonsai {

// Solves classes [first, first + n) of the problem, n ≤ kMaxLanes. Reports progress if a share is given.
Solution solve_newton(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                      const Kernels& kernels, const Control& control, ProgressShare* progress = nullptr);

}  // namespace bonsai

// The primal trust-region Newton method, a panel at a time.
#pragma once

#include "linear/linear.hpp"

namespace bonsai {

// For each row of the problem, bit l: the row is a positive of class first + l.
std::vector<uint64_t> positive_lanes(const Problem& problem, size_t first, size_t n);

Solution solve_newton(const Problem& problem, size_t first, size_t n, const LinearParams& params,
                      const Kernels& kernels, const Control& control);

}  // namespace bonsai

// The loss functions. Each also has a dual update (kernels/dual.inl), derivatives (linear/newton.cpp) and a
// score for prediction (predict/scores.hpp).
#pragma once

#include <algorithm>
#include <cmath>

namespace bonsai {

enum class Loss { squared_hinge, logistic };

// The loss at margin m = y (w·x + b): max(0, 1 − m)², or log(1 + exp(−m)) without overflow.
inline double loss_at(Loss loss, double m) {
    const double slack = std::max(0.0, 1.0 - m);
    return loss == Loss::squared_hinge ? slack * slack
                                       : std::max(0.0, -m) + std::log1p(std::exp(-std::abs(m)));
}

}  // namespace bonsai

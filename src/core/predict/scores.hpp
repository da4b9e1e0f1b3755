// Log scores from margins, and bounds on them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <variant>

#include "kernels/kernels.hpp"
#include "linear/loss.hpp"
#include "model/packed_block.hpp"

namespace bonsai {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();
// The margin of an excluded child; other margins are at least -1e15. Its score and bounds are finite.
inline constexpr float kExcluded = -4e15f;

// The log score of a child is the log score of the path to its node minus the loss of its margin. So it is at
// most the score of the path, and does not decrease as the margin grows.
class Scores {
  public:
    Scores(Loss loss, const Kernels& kernels) : loss_(loss), kernels_(kernels) {}

    float of(float path, float margin) const {
        return path - std::visit([&](auto loss) { return loss.at(margin); }, loss_);
    }
    // An upper bound on the scores of all margins up to `largest`, for any rounding of logarithms.
    float upper_bound(float path, float largest) const {
        const float score = of(path, largest);
        return score + rounding(score);
    }
    // A margin such that the score of every smaller margin is below `threshold`.
    float lowest_margin(float path, float threshold) const {
        const float own = threshold - path - rounding(threshold) - rounding(path);
        if (own >= 0) return -kLowest;
        const float margin = std::visit([&](auto loss) { return loss.margin_of(-own); }, loss_);
        return margin - rounding(margin);
    }
    // Calls fn(child, score) for each of up to 128 margins that is at least `lowest`, except for excluded
    // children.
    template <class Fn>
    void for_each_at_least(float path, std::span<const float> margins, float lowest, Fn&& fn) const {
        uint32_t where[kBlockChildren + kLaneStep];
        const size_t n =
            kernels_.find_at_least(margins.data(), margins.size(), std::max(lowest, kExcluded / 2), where);
        for (size_t i = 0; i < n; ++i) fn(where[i], of(path, margins[where[i]]));
    }

  private:
    // An upper bound on the total rounding error of a score.
    static float rounding(float score) { return 1e-5f * (1 + std::abs(score)); }

    Loss loss_;
    const Kernels& kernels_;
};

}  // namespace bonsai

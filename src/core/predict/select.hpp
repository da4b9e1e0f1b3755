// Scores of margins, and the best of many.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/kernels.hpp"
#include "linear/loss.hpp"
#include "model/forest.hpp"

namespace bonsai {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A child's score is that of the path to it plus the log score of its own margin, which is never above 0, and
// never falls as the margin rises.
class Scores {
  public:
    Scores(Loss loss, const Kernels& kernels) : loss_(loss), kernels_(kernels) {}

    float of(float path, float margin) const {
        if (loss_ == Loss::logistic)
            return path + (std::min(margin, 0.0f) - std::log1p(std::exp(-std::abs(margin))));
        const float gap = 1.0f - margin, slack = gap > 0.0f ? gap : 0.0f;
        return path - slack * slack;
    }
    // No margin up to `largest` gives a higher score, however logarithms are rounded.
    float at_most(float path, float largest) const {
        const float score = of(path, largest);
        return score + leeway(score);
    }
    // No margin below this one gives a score of `bar`: its inverse, with room for rounding.
    float least_margin(float path, float bar) const {
        const float own = bar - path - leeway(bar) - leeway(path);
        if (own >= 0) return -kLowest;
        const float margin = loss_ == Loss::logistic ? -std::log(std::expm1(-own)) : 1.0f - std::sqrt(-own);
        return margin - leeway(margin);
    }
    // fn(c, score) for each of up to 128 margins, not below `least`, whose score may be of interest.
    template <class Fn>
    void for_each_reaching(float path, std::span<const float> margins, float least, Fn&& fn) const {
        uint32_t where[kBlockChildren + kLaneStep];
        const size_t n = kernels_.find_at_least(margins.data(), margins.size(), least, where);
        for (size_t i = 0; i < n; ++i) fn(where[i], of(path, margins[where[i]]));
    }

  private:
    static float leeway(float score) { return 1e-5f * (1 + std::abs(score)); }

    Loss loss_;
    const Kernels& kernels_;
};

// The best of the items that are offered, up to a number of them: the same ones in whatever order they come,
// if no two are equal.
template <class Item>
class Best {
  public:
    void clear(size_t most) {
        most_ = most;
        bar_ = most > 0 ? kLowest : -kLowest;
        items_.clear();
    }
    // Nothing with a lower score is wanted. May be read while another thread adds.
    float bar() const {
        float bar;
        __atomic_load(&bar_, &bar, __ATOMIC_RELAXED);
        return bar;
    }
    // make(c, score) for each of a block's margins that might be among the best.
    template <class Make>
    void offer(const Scores& scores, float path, std::span<const float> margins, Make&& make) {
        const float least = bar_ == kLowest ? surely_reached(margins) : scores.least_margin(path, bar_);
        scores.for_each_reaching(path, margins, least, [&](size_t c, float score) { add(make(c, score)); });
    }
    void add(const Item& item) {
        if (items_.size() < most_) {
            items_.push_back(item);
            if (items_.size() < most_) return;
            std::make_heap(items_.begin(), items_.end());
        } else if (most_ > 0 && item < items_.front()) {
            replace_worst(item);
        } else {
            return;
        }
        const auto bar = static_cast<float>(items_.front().score);
        __atomic_store(&bar_, &bar, __ATOMIC_RELAXED);
    }
    std::span<const Item> items() const { return items_; }

  private:
    // A margin that as many reach as there is room for: of the largest of each 16th, so many are not below.
    float surely_reached(std::span<const float> margins) const {
        float largest[kLaneStep];
        if (most_ > kLaneStep || margins.size() < kLaneStep) return kLowest;
        std::copy_n(margins.begin(), kLaneStep, largest);
        for (size_t c = kLaneStep; c + kLaneStep <= margins.size(); c += kLaneStep)
            for (size_t l = 0; l < kLaneStep; ++l) largest[l] = std::max(largest[l], margins[c + l]);
        std::nth_element(largest, largest + most_ - 1, largest + kLaneStep, std::greater<>());
        return largest[most_ - 1];
    }
    void replace_worst(const Item& item) {
        size_t at = 0;
        for (size_t below; (below = 2 * at + 1) < items_.size(); at = below) {
            if (below + 1 < items_.size()) below += items_[below] < items_[below + 1];
            if (!(item < items_[below])) break;
            items_[at] = items_[below];
        }
        items_[at] = item;
    }

    size_t most_ = 0;
    float bar_ = kLowest;
    std::vector<Item> items_;  // once there are enough: a heap with the worst on top
};

}  // namespace bonsai

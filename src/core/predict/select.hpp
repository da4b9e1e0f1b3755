// Selection of the k best items.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "predict/scores.hpp"

namespace bonsai {

// Keeps the k best of the added items. `a < b` if a is better; `score` is a member of an item. If no two
// items are equal, the result does not depend on the order of adding.
template <class Item>
class TopK {
  public:
    void reset(size_t k) {
        k_ = k;
        threshold_ = k > 0 ? kLowest : -kLowest;
        items_.clear();
    }
    // Items with a lower score are not kept. May be read while another thread adds items.
    float threshold() const {
        float threshold;
        __atomic_load(&threshold_, &threshold, __ATOMIC_RELAXED);
        return threshold;
    }
    // Adds make(child, score) for each margin of a block that may be among the best.
    template <class Make>
    void add_block(const Scores& scores, float path, std::span<const float> margins, Make&& make) {
        const float lowest =
            threshold_ == kLowest ? lowest_of_k(margins) : scores.lowest_margin(path, threshold_);
        scores.for_each_at_least(path, margins, lowest, [&](size_t c, float score) { add(make(c, score)); });
    }
    void add(const Item& item) {
        if (items_.size() < k_) {
            items_.push_back(item);
            if (items_.size() < k_) return;
            std::make_heap(items_.begin(), items_.end());
        } else if (k_ > 0 && item < items_.front()) {
            replace_worst(item);
        } else {
            return;
        }
        auto threshold = static_cast<float>(items_.front().score);  // not const: Clang
        __atomic_store(&threshold_, &threshold, __ATOMIC_RELAXED);
    }
    // In no order.
    std::span<const Item> items() const { return items_; }

  private:
    // A margin that at least k children of the first block reach: the k-th largest of 16 maxima, each over
    // every 16th margin.
    float lowest_of_k(std::span<const float> margins) const {
        float largest[kLaneStep];
        if (k_ > kLaneStep || margins.size() < kLaneStep) return kLowest;
        std::copy_n(margins.begin(), kLaneStep, largest);
        for (size_t c = kLaneStep; c + kLaneStep <= margins.size(); c += kLaneStep)
            for (size_t l = 0; l < kLaneStep; ++l) largest[l] = std::max(largest[l], margins[c + l]);
        std::nth_element(largest, largest + k_ - 1, largest + kLaneStep, std::greater<>());
        return largest[k_ - 1];
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

    size_t k_ = 0;
    float threshold_ = kLowest;
    std::vector<Item> items_;  // with k items, a heap with the worst on top
};

}  // namespace bonsai

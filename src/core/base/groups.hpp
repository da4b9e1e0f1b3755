// Items grouped by an integer key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"

namespace bonsai {

// A counting sort: keys in ascending order, the items of each key in their original order. Reusable; one call
// costs what its items and distinct keys cost, not what the key space does.
class Groups {
  public:
    explicit Groups(size_t n_keys) : position_(n_keys) {}

    // Groups the items 0 … n_items - 1 by key_of(item).
    template <class KeyOf>
    void group(size_t n_items, KeyOf&& key_of) {
        keys_.clear();
        for (size_t i = 0; i < n_items; ++i)
            if (position_[key_of(i)]++ == 0) keys_.push_back(key_of(i));
        std::sort(keys_.begin(), keys_.end());
        ends_.clear();
        uint32_t begin = 0;
        for (const size_t key : keys_) {
            const uint32_t n = position_[key];
            position_[key] = begin;
            ends_.push_back(begin += n);
        }
        items_.resize(n_items);
        for (size_t i = 0; i < n_items; ++i) items_[position_[key_of(i)]++] = static_cast<uint32_t>(i);
        for (const size_t key : keys_) position_[key] = 0;
    }

    // Number of groups, and the key of each.
    size_t size() const { return keys_.size(); }
    size_t key(size_t group) const { return keys_[group]; }
    // The items in the order of their groups.
    uint32_t item(size_t i) const { return items_[i]; }
    // Where a group begins in that order, and its part of an array that follows it.
    size_t begin(size_t group) const { return group > 0 ? ends_[group - 1] : 0; }
    std::span<const uint32_t> part(size_t group, std::span<const uint32_t> of_all) const {
        return of_all.subspan(begin(group), ends_[group] - begin(group));
    }

  private:
    // For each key: its number of items, then where its next item goes; 0 between calls.
    ZeroedArray<uint32_t> position_;
    std::vector<size_t> keys_;
    std::vector<uint32_t> ends_;
    std::vector<uint32_t> items_;
};

}  // namespace bonsai

// Items grouped by an integer key.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/slices.hpp"

namespace bonsai {

// A counting sort: keys in ascending order, the items of each key in their original order. Reusable; one call
// costs what its items and distinct keys cost, not what the key space does.
//
// The keys are divided among the threads. Each thread scans all items, and counts and places those of its own
// keys: no two threads write to the same counters.
class Groups {
  public:
    Groups(size_t n_keys, Pool& pool) : pool_(pool), position_(n_keys) {}

    // Groups the items 0 … n_items - 1 by key_of(item).
    template <class KeyOf>
    void group(size_t n_items, KeyOf&& key_of) {
        const Slices slices(n_items, pool_);
        key_of_item_.resize(n_items);
        slices.for_each(pool_, [&](size_t, size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) key_of_item_[i] = static_cast<uint32_t>(key_of(i));
        });
        items_.resize(n_items);
        const size_t n_parts = std::bit_floor(slices.size());
        if (parts_.size() < n_parts) parts_.resize(n_parts);
        pool_.run(n_parts, [&](size_t p, unsigned) { count(p, n_parts); });
        place(n_parts);
        pool_.run(n_parts, [&](size_t p, unsigned) { fill(p, n_parts); });
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
    // Keys whose positions share a cache line are in the same part; n_parts is a power of two.
    static bool is_in(size_t part, size_t n_parts, uint32_t key) {
        constexpr size_t per_line = 64 / sizeof(uint32_t);
        return (key / per_line & (n_parts - 1)) == part;
    }

    void count(size_t part, size_t n_parts) {
        std::vector<uint32_t>& keys = parts_[part];
        keys.clear();
        for (const uint32_t key : key_of_item_)
            if (is_in(part, n_parts, key) && position_[key]++ == 0) keys.push_back(key);
    }

    void place(size_t n_parts) {
        keys_.clear();
        for (size_t p = 0; p < n_parts; ++p) keys_.insert(keys_.end(), parts_[p].begin(), parts_[p].end());
        std::sort(keys_.begin(), keys_.end());
        ends_.clear();
        uint32_t begin = 0;
        for (const uint32_t key : keys_) {
            const uint32_t n = position_[key];
            position_[key] = begin;
            ends_.push_back(begin += n);
        }
    }

    void fill(size_t part, size_t n_parts) {
        for (size_t i = 0; i < key_of_item_.size(); ++i)
            if (const uint32_t key = key_of_item_[i]; is_in(part, n_parts, key))
                items_[position_[key]++] = static_cast<uint32_t>(i);
        for (const uint32_t key : parts_[part]) position_[key] = 0;
    }

    Pool& pool_;
    UninitialisedVector<uint32_t> key_of_item_;
    // For each key: its number of items, then where its next item goes; 0 between calls.
    ZeroedArray<uint32_t> position_;
    std::vector<std::vector<uint32_t>> parts_;  // keys that occur
    std::vector<uint32_t> keys_;
    std::vector<uint32_t> ends_;
    UninitialisedVector<uint32_t> items_;
};

}  // namespace bonsai

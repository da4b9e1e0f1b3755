// Items grouped by an integer key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/slices.hpp"

namespace bonsai {

// A counting sort: keys in ascending order, the items of each key in their original order. The first pass
// counts items, which gives the groups; the second gives each item its position. Reusable. The cost grows
// with the number of items and, if there are many items, with the key space.
class Groups {
  public:
    static constexpr uint32_t kNone = ~uint32_t{0};  // the key of items that belong to no group

    Groups(size_t n_keys, Pool& pool) : n_keys_(n_keys), pool_(pool), next_(n_keys) {}

    // Groups the items 0 … n_items - 1 by key_of(item).
    template <class KeyOf>
    void count(size_t n_items, KeyOf&& key_of) {
        key_of_item_.resize(n_items);
        keys_.clear();
        ends_.clear();
        if (is_small())
            count_few(key_of);
        else
            count_slices(key_of);
    }
    // Calls fn(item, key, position) for each item that belongs to a group, on all threads. Once after each
    // count.
    template <class Fn>
    void for_each(Fn&& fn) {
        if (is_small()) {
            place(0, key_of_item_.size(), &next_[0], fn);
            for (const uint32_t key : keys_) next_[key] = 0;
        } else {
            slices().for_each(
                pool_, [&](size_t s, size_t begin, size_t end) { place(begin, end, next_of_slice(s), fn); });
        }
    }

    // The number of groups, and the number of items in all groups.
    size_t size() const { return keys_.size(); }
    size_t n_placed() const { return ends_.empty() ? 0 : ends_.back(); }
    size_t key(size_t group) const { return keys_[group]; }
    // Its items have the positions [begin, end).
    size_t begin(size_t group) const { return group > 0 ? ends_[group - 1] : 0; }
    size_t end(size_t group) const { return ends_[group]; }
    // Its part of an array that is ordered by position.
    std::span<const uint32_t> part(size_t group, std::span<const uint32_t> of_all) const {
        return of_all.subspan(begin(group), end(group) - begin(group));
    }

  private:
    bool is_small() const { return key_of_item_.size() < n_keys_; }
    // The limit keeps the counts smaller than the items.
    Slices slices() const {
        const size_t n_items = key_of_item_.size();
        return {n_items, pool_, 4 * n_items, n_items / (n_keys_ + 1)};
    }
    uint32_t* next_of_slice(size_t slice) { return next_of_slices_.data() + slice * n_keys_; }

    template <class KeyOf>
    void count_few(KeyOf&& key_of) {
        for (size_t i = 0; i < key_of_item_.size(); ++i) {
            const uint32_t key = key_of_item_[i] = static_cast<uint32_t>(key_of(i));
            if (key != kNone && next_[key]++ == 0) keys_.push_back(key);
        }
        std::sort(keys_.begin(), keys_.end());
        uint32_t begin = 0;
        for (const uint32_t key : keys_) {
            const uint32_t n = next_[key];
            next_[key] = begin;
            ends_.push_back(begin += n);
        }
    }

    template <class KeyOf>
    void count_slices(KeyOf&& key_of) {
        const Slices slices = this->slices();
        next_of_slices_.resize(slices.size() * n_keys_);
        slices.for_each(pool_, [&](size_t s, size_t begin, size_t end) {
            uint32_t* const n = next_of_slice(s);
            std::fill(n, n + n_keys_, 0);
            for (size_t i = begin; i < end; ++i) {
                const uint32_t key = key_of_item_[i] = static_cast<uint32_t>(key_of(i));
                if (key != kNone) ++n[key];
            }
        });
        uint32_t end = 0;
        for (uint32_t key = 0; key < n_keys_; ++key) {
            const uint32_t begin = end;
            for (size_t s = 0; s < slices.size(); ++s) {
                const uint32_t n = next_of_slice(s)[key];
                next_of_slice(s)[key] = end;
                end += n;
            }
            if (end == begin) continue;
            keys_.push_back(key);
            ends_.push_back(end);
        }
    }

    template <class Fn>
    void place(size_t begin, size_t end, uint32_t* next, Fn&& fn) {
        for (size_t i = begin; i < end; ++i)
            if (const uint32_t key = key_of_item_[i]; key != kNone) fn(i, key, next[key]++);
    }

    const size_t n_keys_;
    Pool& pool_;
    UninitialisedVector<uint32_t> key_of_item_;
    // For each key, the number of its items, then the position of its next item. For few items: all 0 between
    // calls. For many items: one such table per slice.
    ZeroedArray<uint32_t> next_;
    UninitialisedVector<uint32_t> next_of_slices_;
    std::vector<uint32_t> keys_;
    std::vector<uint32_t> ends_;
};

}  // namespace bonsai

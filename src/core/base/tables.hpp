// Memory that costs nothing until it is used, and items grouped by key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/panel.hpp"

namespace bonsai {

// A table that begins as zeros. Not a vector: of memory that the system hands out as zeros, only what is used
// costs time.
template <class T>
class Zeros {
  public:
    explicit Zeros(size_t n) : data_(static_cast<T*>(std::calloc(n + 1, sizeof(T))), &std::free) {
        if (!data_) throw std::bad_alloc();
    }
    T& operator[](size_t i) { return data_[i]; }

  private:
    std::unique_ptr<T[], decltype(&std::free)> data_;
};

// Numbers that begin as anything: large memory is first touched where it is used, by many threads.
class Floats {
  public:
    void make_room(size_t n) {
        if (n <= size_) return;
        data_.reset();
        data_ = {PanelAllocator<float>().allocate(n), &std::free};
        size_ = n;
    }
    float& operator[](size_t i) { return data_[i]; }
    const float& operator[](size_t i) const { return data_[i]; }

  private:
    std::unique_ptr<float[], decltype(&std::free)> data_{nullptr, &std::free};
    size_t size_ = 0;
};

// Items by their keys: keys in ascending order, the items of each in the order they had.
class Groups {
  public:
    explicit Groups(size_t n_keys) : place_(n_keys) {}

    template <class KeyOf>
    void group(size_t n_items, KeyOf&& key_of) {
        keys_.clear();
        for (size_t i = 0; i < n_items; ++i)
            if (place_[key_of(i)]++ == 0) keys_.push_back(key_of(i));
        std::sort(keys_.begin(), keys_.end());
        ends_.clear();
        uint32_t begin = 0;
        for (const size_t key : keys_) {
            const uint32_t n = place_[key];
            place_[key] = begin;
            ends_.push_back(begin += n);
        }
        items_.resize(n_items);
        for (size_t i = 0; i < n_items; ++i) items_[place_[key_of(i)]++] = static_cast<uint32_t>(i);
        for (const size_t key : keys_) place_[key] = 0;
    }
    size_t size() const { return keys_.size(); }
    size_t key(size_t group) const { return keys_[group]; }
    // The i-th item of all, group by group.
    uint32_t item(size_t i) const { return items_[i]; }
    // Where a group begins among these, and its part of what somebody has for each of them.
    size_t begin(size_t group) const { return group > 0 ? ends_[group - 1] : 0; }
    std::span<const uint32_t> part(size_t group, std::span<const uint32_t> of_all) const {
        return of_all.subspan(begin(group), ends_[group] - begin(group));
    }

  private:
    Zeros<uint32_t> place_;  // of each key
    std::vector<size_t> keys_;
    std::vector<uint32_t> ends_;
    std::vector<uint32_t> items_;
};

}  // namespace bonsai

// A hash table of pairs of 32-bit numbers: each pair has a count and a number (id).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/random.hpp"
#include "text/string_table.hpp"

namespace bonsai::text {

inline uint64_t pair_key(uint32_t first, uint32_t second) {
    return uint64_t{first} << 32 | second;
}

class PairTable {
  public:
    struct Slot {
        uint64_t key;
        uint32_t number;
        uint32_t count;  // 0: free
    };

    explicit PairTable(size_t n_expected = 0) {
        size_t n = 64;
        while (2 * n < 3 * n_expected) n *= 2;
        slots_.resize(n);
    }

    // This table uses the low bits of the hash; the upper bits are free for other uses.
    static uint64_t hash(uint64_t key) { return mix(key); }
    void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }

    // Increments the count of the key and returns its number; numbers count up from 0 in order of first
    // occurrence.
    uint32_t count(uint64_t key, uint64_t hash) {
        Slot& slot = slots_[place_of(key, hash)];
        if (slot.count++ > 0) return slot.number;
        slot.key = key;
        const uint32_t number = slot.number = static_cast<uint32_t>(size_++);
        if (3 * size_ > 2 * slots_.size()) grow();
        return number;
    }

    // Returns the number of the key, or kNone.
    uint32_t find(uint64_t key, uint64_t hash) const {
        const Slot& slot = slots_[place_of(key, hash)];
        return slot.count > 0 ? slot.number : kNone;
    }

    size_t size() const { return size_; }
    template <class Fn>
    void for_each(Fn&& fn) {
        for (Slot& slot : slots_)
            if (slot.count > 0) fn(slot);
    }

  private:
    size_t place_of(uint64_t key, uint64_t hash) const {
        size_t place = hash & (slots_.size() - 1);
        while (slots_[place].count > 0 && slots_[place].key != key) place = (place + 1) & (slots_.size() - 1);
        return place;
    }

    void grow() {
        std::vector<Slot> old(2 * slots_.size());
        old.swap(slots_);
        for (const Slot& slot : old)
            if (slot.count > 0) slots_[place_of(slot.key, hash(slot.key))] = slot;
    }

    std::vector<Slot> slots_;  // a power of two, at most two thirds of them taken
    size_t size_ = 0;
};

}  // namespace bonsai::text

// Sorting by a key in the upper bits of an integer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bonsai {

// Sorts by the upper 32 bits: a radix sort, or a comparison sort where that is faster. Stable.
inline void sort_by_upper_half(std::vector<uint64_t>& keys) {
    constexpr unsigned digit_bits = 9;
    constexpr size_t n_digits = size_t{1} << digit_bits, few = 64;
    if (keys.size() < few) return std::sort(keys.begin(), keys.end());
    uint64_t all = 0;
    for (const uint64_t key : keys) all |= key;
    std::vector<uint64_t> sorted(keys.size());
    for (unsigned shift = 32; shift < 64 && all >> shift; shift += digit_bits) {
        const auto digit = [&](uint64_t key) { return key >> shift & (n_digits - 1); };
        uint32_t next[n_digits] = {};
        for (const uint64_t key : keys) ++next[digit(key)];
        uint32_t begin = 0;
        for (uint32_t& n : next) begin += std::exchange(n, begin);
        for (const uint64_t key : keys) sorted[next[digit(key)]++] = key;
        keys.swap(sorted);
    }
}

}  // namespace bonsai

// Random numbers. The same seed gives the same sequence everywhere: nothing here depends on the standard
// library's distributions or on the order in which threads run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace bonsai {

inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;

inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

// A key is an address: (seed, tree, path from the root). `derive` goes one step down.
inline uint64_t derive(uint64_t key, uint64_t word) {
    return mix(key + kGolden * (word + 1));
}

// Purposes are larger than every possible child number, so that they never collide with a step down the tree.
inline constexpr uint64_t kForClustering = 1ULL << 32;
inline constexpr uint64_t kForSolver = (1ULL << 32) + 1;

// splitmix64.
class Rng {
  public:
    explicit Rng(uint64_t key) : state_(key) {}

    uint64_t next() {
        state_ += kGolden;
        return mix(state_);
    }

    // Uniform in [0, n), n > 0; the bias of the multiply-shift is below n / 2^64.
    uint64_t below(uint64_t n) {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
    }

    double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

    template <class T>
    void shuffle(std::vector<T>& values) {
        for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
    }

    // Draws k distinct numbers from [0, n), in random order.
    std::vector<uint32_t> sample(size_t n, size_t k) {
        std::vector<uint32_t> perm(n);
        std::iota(perm.begin(), perm.end(), 0u);
        for (size_t i = 0; i < k; ++i) std::swap(perm[i], perm[i + below(n - i)]);
        perm.resize(k);
        return perm;
    }

  private:
    uint64_t state_;
};

}  // namespace bonsai

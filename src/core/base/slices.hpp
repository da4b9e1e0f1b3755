// Large arrays cut into a slice for each thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/parallel.hpp"

namespace bonsai {

// The items 0 … n_items - 1 in consecutive slices of about equal size. Few items are one slice: waking
// threads for them would take longer.
class Slices {
  public:
    Slices(size_t n_items, const Pool& pool)
        : n_items_(n_items), n_(std::clamp<size_t>(n_items / kLeastItems, 1, pool.threads())) {}

    size_t size() const { return n_; }
    size_t begin(size_t slice) const { return n_items_ * slice / n_; }

    // fn(slice, begin, end) for each slice, by all threads.
    template <class Fn>
    void for_each(Pool& pool, Fn&& fn) const {
        if (n_ == 1) return fn(size_t{0}, size_t{0}, n_items_);
        pool.run(n_, [&](size_t slice, unsigned) { fn(slice, begin(slice), begin(slice + 1)); });
    }

  private:
    static constexpr size_t kLeastItems = 4096;

    size_t n_items_;
    size_t n_;
};

}  // namespace bonsai

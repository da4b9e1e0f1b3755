// Large arrays cut into one slice per thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/parallel.hpp"

namespace bonsai {

// The items 0 … n_items - 1 in consecutive slices of about equal size. Little work is a single slice: waking
// threads would take longer.
class Slices {
  public:
    // `work`: total work in units of about a nanosecond; by default a few for each item. `most`: maximum
    // number of slices.
    Slices(size_t n_items, const Pool& pool, size_t work, size_t most = ~size_t{0})
        : n_items_(n_items),
          n_(std::max<size_t>(1, std::min({work / kLeastWork, most, size_t{pool.threads()}}))) {}
    Slices(size_t n_items, const Pool& pool) : Slices(n_items, pool, 4 * n_items) {}

    size_t size() const { return n_; }
    size_t begin(size_t slice) const { return n_items_ * slice / n_; }

    // Calls fn(slice, begin, end) for each slice, on all threads.
    template <class Fn>
    void for_each(Pool& pool, Fn&& fn) const {
        if (n_ == 1) return fn(size_t{0}, size_t{0}, n_items_);
        pool.run(n_, [&](size_t slice, unsigned) { fn(slice, begin(slice), begin(slice + 1)); });
    }

  private:
    static constexpr size_t kLeastWork = 1 << 17;

    size_t n_items_;
    size_t n_;
};

}  // namespace bonsai

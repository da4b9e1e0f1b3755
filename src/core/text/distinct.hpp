// The distinct keys of one document and how often each occurs: in a small hash table, or with one counter per
// key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.hpp"

namespace bonsai::text {

template <class Key>
struct Count {
    Key key;
    uint32_t n;
};

// Reused from document to document: old entries are overwritten, not cleared.
template <class Key>
class Distinct {
  public:
    // Begins a new document. `n_keys`: the maximum number of keys that will be added.
    void begin(size_t n_keys) {
        items_.clear();
        size_t n = 64;
        while (n < 2 * n_keys) n *= 2;
        if (n > slots_.size()) {
            slots_.assign(n, Slot{});
            document_ = 0;
        }
        if (++document_ == 0) {
            std::fill(slots_.begin(), slots_.end(), Slot{});
            document_ = 1;
        }
        mask_ = n - 1;  // a small document stays in a small part of the table
    }

    void add(Key key, uint32_t n = 1) {
        size_t place = (static_cast<uint64_t>(key) * kGolden >> 32) & mask_;
        while (slots_[place].document == document_) {
            auto& item = items_[slots_[place].item];
            if (item.key == key) {
                item.n += n;
                return;
            }
            place = (place + 1) & mask_;
        }
        slots_[place] = {document_, static_cast<uint32_t>(items_.size())};
        items_.push_back({key, n});
    }

    // In order of first occurrence.
    std::vector<Count<Key>>& items() { return items_; }

  private:
    struct Slot {
        uint32_t document = 0;
        uint32_t item = 0;
    };
    std::vector<Slot> slots_;
    std::vector<Count<Key>> items_;
    size_t mask_ = 0;
    uint32_t document_ = 0;
};

// The same for keys below a bound, with one counter per key: for many documents in sequence.
class ColumnCounts {
  public:
    void begin(size_t n_columns) {
        items_.clear();
        if (n_.size() < n_columns) n_.resize(n_columns);
    }
    void add(uint32_t column, uint32_t n = 1) {
        if (n_[column] == 0) items_.push_back({column, 0});
        n_[column] += n;
    }
    // Adds a column that is new in this document and is not added again.
    void append(uint32_t column, uint32_t n) { items_.push_back({column, n}); }
    // Ends the document.
    void end() {
        for (auto& item : items_) {
            item.n += n_[item.key];
            n_[item.key] = 0;
        }
    }
    std::vector<Count<uint32_t>>& items() { return items_; }

  private:
    std::vector<uint32_t> n_;  // 0 between documents
    std::vector<Count<uint32_t>> items_;
};

}  // namespace bonsai::text

// Some rows of a matrix, restricted to the features that occur in them: the input of solvers and k-means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "data/sizes.hpp"

namespace bonsai {

// Entries of singleton features, which occur in a single row of the slice (document frequency 1). The entries
// of row i are [ptr[i], ptr[i + 1]); entry e belongs to feature first_feature + e. Empty if singletons are
// not separated.
struct SingletonFeatures {
    size_t first_feature = 0;
    std::vector<int64_t> ptr = {};
    std::vector<float> value = {};

    std::span<const float> operator[](size_t i) const {
        if (ptr.empty()) return {};
        return {value.data() + ptr[i], static_cast<size_t>(ptr[i + 1] - ptr[i])};
    }
};

// The rows `ids` of `source`, each multiplied by its factor. Features are renumbered in descending order of
// frequency, so that the panel rows of frequent features share pages and stay in cache. A dense source is not
// copied: the slice borrows it, and keeps all features.
//
// Large slices are made by all threads.
//
// `separate_singletons`: singleton features are not part of rows(). They are numbered after all others, row
// by row, and their entries are in singletons(). A dense source has none.
class Slice {
  public:
    // Buffers of one worker, as large as the whole feature space, reused from slice to slice. Must not be
    // reused after an exception.
    struct Scratch {
        std::vector<uint32_t> local;  // feature -> local number + 1, 0 between calls
    };

    Slice(const RowsView& source, std::span<const uint32_t> ids, std::span<const float> factors,
          Scratch& scratch, Pool& pool, bool separate_singletons = false);
    Slice(Slice&&) = default;

    // Borrows from the slice.
    RowsView rows() const;
    const SingletonFeatures& singletons() const { return singletons_; }
    // local feature -> feature of `source`
    std::span<const uint32_t> features() const { return features_; }

  private:
    struct Place {
        size_t entry = 0;
        size_t singleton = 0;
    };
    // Copies the rows ids[first] to ids[last - 1] to their places.
    void copy_entries(const RowsView& source, std::span<const uint32_t> ids, size_t first, size_t last,
                      Place at, std::span<const float> factors, std::span<const uint32_t> local,
                      const Control& control);

    size_t n_features_ = 0;  // without singletons
    std::vector<int64_t> ptr_;
    UninitialisedVector<int32_t> index_;
    UninitialisedVector<float> value_;
    const float* dense_ = nullptr;
    std::vector<uint32_t> row_ids_;
    std::vector<float> scale_;
    std::vector<uint32_t> features_;
    SingletonFeatures singletons_;
};

// Bytes of a slice that holds this share of all rows.
double slice_bytes(const ProblemSizes& sizes, double share);

// Renumbers the features of sparse rows likewise, and sorts each row by these numbers: in place, by all
// threads. Rows then read a table of features nearly from front to back.
void number_by_frequency(Rows& rows, Pool& pool);

// The rows `ids` of `source`, features renumbered and rows sorted likewise. Built by all threads. Rows whose
// features are numbered by frequency are not copied where `ids` are all that have entries: the slice borrows
// them. Otherwise it is the same, however the features of `source` are numbered.
class SortedSlice {
  public:
    SortedSlice(const RowsView& source, std::span<const uint32_t> ids, Pool& pool);
    SortedSlice(SortedSlice&&) = default;

    // Borrows from the slice.
    RowsView rows() const;

  private:
    size_t n_features_ = 0;
    std::vector<int64_t> ptr_;
    SharedVector<int32_t> index_;
    SharedVector<float> value_;
    const float* dense_ = nullptr;
    RowsView borrowed_;  // no index: none
    std::vector<uint32_t> row_ids_;
};

// Uninitialised rows, filled in later.
struct RowsSize {
    double n_rows, n_entries, n_columns;
    bool dense;
};
// Bytes of a sorted slice while it is made; of numbering features in place, beside the rows.
double sorting_bytes(const RowsSize& rows, double threads);
double numbering_bytes(const RowsSize& rows, double threads);

}  // namespace bonsai

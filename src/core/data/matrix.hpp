// Rows of a matrix, sparse or dense, borrowed or owned; and the data set that a model is trained on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bonsai {

class Pool;

// Borrowed rows: CSR, or dense row-major when `dense` is set. Every index is proven in range by whoever makes
// one.
struct RowsView {
    size_t n_rows = 0;
    size_t n_features = 0;
    const int64_t* ptr = nullptr;    // n_rows + 1
    const int32_t* index = nullptr;  // ascending and distinct in each row
    const float* value = nullptr;
    const float* dense = nullptr;    // n_rows x n_features; instead of the three above
    const uint32_t* pick = nullptr;  // dense only: row i is row pick[i] of `dense` ...
    const float* scale = nullptr;    // ... times scale[i]

    // Always inlined: kernels are compiled for several instruction sets, and the linker must not pick one's
    // copy.
    [[gnu::always_inline]] size_t row_size(size_t i) const {
        return dense ? n_features : static_cast<size_t>(ptr[i + 1] - ptr[i]);
    }
    [[gnu::always_inline]] const float* dense_row(size_t i) const {
        return dense + (pick ? size_t{pick[i]} : i) * n_features;
    }
    [[gnu::always_inline]] float dense_scale(size_t i) const { return scale ? scale[i] : 1.0f; }
};

// Calls fn(feature, value) for each stored entry of row i (each non-zero of a dense one).
template <class Fn>
void for_each_entry(const RowsView& rows, size_t i, Fn&& fn) {
    if (rows.dense) {
        const float* x = rows.dense_row(i);
        const float scale = rows.dense_scale(i);
        for (size_t f = 0; f < rows.n_features; ++f)
            if (x[f] != 0.0f) fn(static_cast<uint32_t>(f), x[f] * scale);
    } else {
        for (int64_t e = rows.ptr[i]; e < rows.ptr[i + 1]; ++e)
            fn(static_cast<uint32_t>(rows.index[e]), rows.value[e]);
    }
}

// Owned CSR, or owned dense rows.
struct Rows {
    size_t n_rows = 0;
    size_t n_features = 0;
    std::vector<int64_t> ptr = {};
    std::vector<int32_t> index = {};
    std::vector<float> value = {};
    std::vector<float> dense = {};

    RowsView view() const {
        RowsView v{.n_rows = n_rows, .n_features = n_features};
        if (ptr.empty()) {
            v.dense = dense.data();
        } else {
            v.ptr = ptr.data();
            v.index = index.data();
            v.value = value.data();
        }
        return v;
    }
};

// Which labels has a row, or which rows has a label: CSR without values.
struct IdLists {
    std::vector<int64_t> ptr;
    std::vector<int32_t> id;

    size_t size() const { return ptr.size() - 1; }
    std::span<const int32_t> operator[](size_t i) const {
        return {id.data() + ptr[i], static_cast<size_t>(ptr[i + 1] - ptr[i])};
    }
};

IdLists transpose(const int64_t* ptr, const int32_t* id, size_t n_rows, size_t n_columns);

// Euclidean norm of row i, summed in double in the order of storage.
double row_norm(const RowsView& rows, size_t i);

// Rows shorter than this are left as they are: 1 / norm would leave the range of float.
inline constexpr double kSmallestNorm = 1e-30;
// The squares of longer ones would leave the range of float in the solvers.
inline constexpr double kLargestNorm = 1e15;

// Entries whose feature no other row has: those of row i are [ptr[i], ptr[i + 1]), entry e is that of feature
// first_feature + e. Empty if nobody looked for any.
struct LoneEntries {
    size_t first_feature = 0;
    std::vector<int64_t> ptr = {};
    std::vector<float> value = {};

    std::span<const float> operator[](size_t i) const {
        if (ptr.empty()) return {};
        return {value.data() + ptr[i], static_cast<size_t>(ptr[i + 1] - ptr[i])};
    }
};

// The rows `ids` of `source`, each multiplied by its factor, over just the features that they use, renumbered
// so that frequent features come first: their panel rows then share few pages and stay in cache. A dense
// source is not copied: the slice is a view with the factors beside it, and keeps all features.
//
// `apart`: features that just one row has are not part of rows(). They are numbered after all others, row by
// row, and their entries kept in lone(). Of a dense source, none is.
class Slice {
  public:
    // Buffers of one worker, of the size of the whole feature space, reused from slice to slice.
    struct Scratch {
        std::vector<uint32_t> local;  // feature -> local number + 1, 0 between calls
    };

    Slice(const RowsView& source, std::span<const uint32_t> ids, std::span<const float> factors,
          Scratch& scratch, bool apart = false);

    const RowsView& rows() const { return view_; }
    const LoneEntries& lone() const { return lone_; }
    // local feature -> feature of `source`
    std::span<const uint32_t> features() const { return features_; }

  private:
    std::vector<int64_t> ptr_;
    std::vector<int32_t> index_;
    std::vector<float> value_;
    std::vector<uint32_t> pick_;
    std::vector<float> scale_;
    std::vector<uint32_t> features_;
    LoneEntries lone_;
    RowsView view_;
};

// The rows `ids` of `source` over just the features that they use, renumbered likewise, with each row sorted
// by these numbers: rows are then read nearly from one end of a table to the other. By all threads.
class SortedSlice {
  public:
    SortedSlice(const RowsView& source, std::span<const uint32_t> ids, Pool& pool);

    const RowsView& rows() const { return view_; }

  private:
    std::vector<int64_t> ptr_;
    std::vector<int32_t> index_;
    std::vector<float> value_;
    std::vector<uint32_t> pick_;
    RowsView view_;
};

// Training rows with their labels. X is borrowed; norms and the transposed label lists are computed once.
class Dataset {
  public:
    // weights: one for each row, > 0, or empty. Throws std::invalid_argument if an index is out of range.
    Dataset(const RowsView& x, std::span<const int64_t> label_ptr, std::span<const int32_t> labels,
            size_t n_labels, std::span<const float> weights, bool normalize);

    size_t n_rows() const { return x_.n_rows; }
    size_t n_features() const { return x_.n_features; }
    size_t n_labels() const { return rows_of_label_.size(); }
    const RowsView& x() const { return x_; }
    // What row i is multiplied by: 1 / norm if rows are normalised (1 for a zero row).
    std::span<const float> factors() const { return factors_; }
    float weight(size_t i) const { return weights_.empty() ? 1.0f : weights_[i]; }
    bool weighted() const { return !weights_.empty(); }
    std::span<const int32_t> labels_of(size_t row) const {
        return {labels_ + label_ptr_[row], static_cast<size_t>(label_ptr_[row + 1] - label_ptr_[row])};
    }
    std::span<const int32_t> rows_of(size_t label) const { return rows_of_label_[label]; }

  private:
    RowsView x_;
    const int64_t* label_ptr_;
    const int32_t* labels_;
    std::span<const float> weights_;
    std::vector<float> factors_;
    IdLists rows_of_label_;
};

// Throws std::invalid_argument unless ptr rises from 0 to the number of entries and ids lie in [0, limit),
// ascending and distinct in each row.
void check_csr(std::span<const int64_t> ptr, std::span<const int32_t> id, size_t n_rows, size_t limit,
               const char* what);

}  // namespace bonsai

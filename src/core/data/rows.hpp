// Matrix rows, sparse or dense, borrowed or owned; lists of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"

namespace bonsai {

// Borrowed rows in one of two layouts: CSR (ptr, index, value), or dense and row-major. The creator of a view
// guarantees that every index is in range, and keeps the arrays alive.
struct RowsView {
    size_t n_rows = 0;
    size_t n_features = 0;
    const int64_t* ptr = nullptr;    // n_rows + 1
    const int32_t* index = nullptr;  // ascending and distinct in each row
    const float* value = nullptr;
    const float* dense = nullptr;       // instead of the three arrays above: n_features values for each row
    const uint32_t* row_ids = nullptr;  // dense only: row i is row row_ids[i] of `dense` …
    const float* scale = nullptr;       // … times scale[i]
    // CSR only: index i stands for feature features[i] (see number_by_frequency); empty: for feature i.
    std::span<const uint32_t> features = {};

    // Always inlined: kernels are compiled for several instruction sets, and the linker must not choose the
    // copy of one for all of them.
    [[gnu::always_inline]] bool is_dense() const { return dense != nullptr; }
    [[gnu::always_inline]] size_t row_size(size_t i) const {
        return dense ? n_features : static_cast<size_t>(ptr[i + 1] - ptr[i]);
    }
    [[gnu::always_inline]] const float* dense_row(size_t i) const {
        return dense + (row_ids ? size_t{row_ids[i]} : i) * n_features;
    }
    [[gnu::always_inline]] float dense_scale(size_t i) const { return scale ? scale[i] : 1.0f; }
};

// Calls fn(feature, value) for each stored entry of row i (each non-zero of a dense one).
template <class Fn>
void for_each_entry(const RowsView& rows, size_t i, Fn&& fn) {
    if (rows.is_dense()) {
        const float* x = rows.dense_row(i);
        const float scale = rows.dense_scale(i);
        for (size_t f = 0; f < rows.n_features; ++f)
            if (x[f] != 0.0f) fn(static_cast<uint32_t>(f), x[f] * scale);
    } else {
        for (int64_t e = rows.ptr[i]; e < rows.ptr[i + 1]; ++e)
            fn(static_cast<uint32_t>(rows.index[e]), rows.value[e]);
    }
}

// Owned rows: CSR, or dense where `ptr` is empty.
struct Rows {
    size_t n_rows = 0;
    size_t n_features = 0;
    std::vector<int64_t> ptr = {};
    SharedVector<int32_t> index = {};
    SharedVector<float> value = {};
    std::vector<float> dense = {};
    std::vector<uint32_t> features = {};

    bool is_dense() const { return ptr.empty(); }

    // Valid as long as the vectors are neither changed nor destroyed.
    RowsView view() const {
        RowsView v{.n_rows = n_rows, .n_features = n_features};
        if (is_dense()) {
            v.dense = dense.data();
        } else {
            v.ptr = ptr.data();
            v.index = index.data();
            v.value = value.data();
            v.features = features;
        }
        return v;
    }
};

// The labels of each row, or the rows of each label: CSR without values.
struct IdLists {
    std::vector<int64_t> ptr;
    std::vector<int32_t> id;

    size_t size() const { return ptr.size() - 1; }
    std::span<const int32_t> operator[](size_t i) const {
        return {id.data() + ptr[i], static_cast<size_t>(ptr[i + 1] - ptr[i])};
    }
};

IdLists transpose(const int64_t* ptr, const int32_t* id, size_t n_rows, size_t n_columns);

// Euclidean norm of row i, summed in double in storage order.
double row_norm(const RowsView& rows, size_t i);

// Rows with a smaller norm are not normalised: 1 / norm would overflow a float.
inline constexpr double kSmallestNorm = 1e-30;
// Rows with a larger norm are rejected: squares would overflow a float in the solvers.
inline constexpr double kLargestNorm = 1e15;

// Throws std::invalid_argument, beginning with `what`, unless ptr ascends from 0 to the number of entries and
// the ids of each row are ascending, distinct and below `limit`.
void check_csr(std::span<const int64_t> ptr, std::span<const int32_t> id, size_t n_rows, size_t limit,
               const char* what);

// Whether these are the entries of a row: ascending ids below `limit`, each with a finite value.
bool is_row(std::span<const int32_t> id, std::span<const float> value, size_t limit);

}  // namespace bonsai

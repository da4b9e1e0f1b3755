// Arrays as they cross the boundary: borrowed on the way in, handed over or viewed on the way out, copied in
// neither direction.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/rows.hpp"

namespace bonsai {

// Arguments of this type need `.noconvert()`, so that another dtype or layout is an error, never a silent
// copy.
template <class T>
using In = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using InDense = nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::span<const T> span(const In<T>& array) {
    return {array.data(), array.size()};
}

// Casts an object that must be an array of this type; the error message contains `name`.
template <class Array>
Array cast_array(nanobind::handle object, const std::string& name) {
    Array array;
    if (!nanobind::try_cast(object, array, false))
        throw nanobind::type_error((name + " is not a contiguous array of the expected type").c_str());
    return array;
}

// A Python object that C++ keeps alive; a thread without the GIL may release it.
inline std::shared_ptr<const void> keep_alive(nanobind::object object) {
    return {new nanobind::object(std::move(object)), [](const nanobind::object* kept) {
                const nanobind::gil_scoped_acquire hold;
                delete kept;
            }};
}

// Passes the ownership of the vector's memory to NumPy; the capsule deletes the vector. Without a shape the
// array has one axis.
template <class T, class Allocator>
nanobind::object to_numpy(std::vector<T, Allocator>&& values, std::vector<size_t> shape = {}) {
    using Values = std::vector<T, Allocator>;
    if (shape.empty()) shape = {values.size()};
    auto kept = std::make_unique<Values>(std::move(values));
    T* data = kept->data();
    nanobind::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<Values*>(p); });
    kept.release();
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(data, shape.size(), shape.data(), owner));
}

// A read-only view of memory that `owner` keeps alive.
template <class T>
nanobind::object view_numpy(std::span<const T> values, nanobind::handle owner,
                            std::vector<size_t> shape = {}) {
    if (shape.empty()) shape = {values.size()};
    return nanobind::cast(
        nanobind::ndarray<nanobind::numpy, const T>(values.data(), shape.size(), shape.data(), owner));
}

// Rows as they cross the boundary: a tuple (indptr, indices, values, n_columns), or a 2-D array. Keeps the
// arrays alive. `check` verifies that every index is in range, and needs no GIL.
class RowsIn {
  public:
    RowsIn(nanobind::handle x, const char* name) : name_(name) {
        if (!nanobind::isinstance<nanobind::tuple>(x)) {
            dense_ = cast_array<InDense>(x, name_);
            view_.n_rows = dense_.shape(0);
            view_.n_features = dense_.shape(1);
            view_.dense = dense_.data();
            return;
        }
        const auto parts = nanobind::cast<nanobind::tuple>(x);
        if (parts.size() != 4 || !nanobind::try_cast(parts[3], view_.n_features))
            throw nanobind::type_error((name_ + " is not (indptr, indices, values, n_columns)").c_str());
        ptr_ = cast_array<In<int64_t>>(parts[0], name_ + ".indptr");
        index_ = cast_array<In<int32_t>>(parts[1], name_ + ".indices");
        value_ = cast_array<In<float>>(parts[2], name_ + ".values");
        view_.n_rows = ptr_.size() == 0 ? 0 : ptr_.size() - 1;
        view_.ptr = ptr_.data();
        view_.index = index_.data();
        view_.value = value_.data();
    }
    void check() const {
        if (view_.dense) return;
        check_csr(span(ptr_), span(index_), view_.n_rows, view_.n_features, name_.c_str());
        if (value_.size() != index_.size())
            throw std::invalid_argument(name_ + ": every index needs one value");
    }
    const RowsView& view() const { return view_; }

  private:
    std::string name_;
    In<int64_t> ptr_;
    In<int32_t> index_;
    In<float> value_;
    InDense dense_;
    RowsView view_;
};

}  // namespace bonsai

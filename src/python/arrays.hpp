// Arrays as they cross the boundary: borrowed on the way in, handed over on the way out, copied in neither
// direction.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace bonsai {

// Arguments of this type need `.noconvert()`: another dtype or layout is an error then, never a silent copy.
template <class T>
using In = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::span<const T> span(const In<T>& array) {
    return {array.data(), array.size()};
}

// Hands the vector's memory to numpy; the capsule deletes exactly that vector. Without a shape the array has
// one axis.
template <class T>
nanobind::object to_numpy(std::vector<T>&& values, std::vector<size_t> shape = {}) {
    if (shape.empty()) shape = {values.size()};
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nanobind::cast(
        nanobind::ndarray<nanobind::numpy, T>(kept->data(), shape.size(), shape.data(), owner));
}

}  // namespace bonsai

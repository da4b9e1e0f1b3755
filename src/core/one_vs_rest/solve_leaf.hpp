// The classifiers of a leaf with many labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "kernels/kernels.hpp"
#include "linear/problem.hpp"
#include "model/pack.hpp"

namespace bonsai {

// A leaf with at least this many labels has so many rows without most of them that one-vs-rest on its rows
// takes less time than panels.
inline constexpr size_t kLargeLeaf = 1024;
// Labels of more than this share of the rows learn their bias: most rows affect their classifiers.
inline constexpr double kFrequentShare = 0.02;

// Whether `solve_leaf` can solve a leaf with this many labels.
bool is_large_leaf(size_t n_labels, bool dense, LinearParams params);

// Solves one-vs-rest on the rows of a leaf, which are ascending: with a bias of -1, except for frequent
// labels. The classifiers are in the order of the labels.
PackedNode solve_leaf(const Dataset& data, std::span<const uint32_t> labels, std::span<const uint32_t> rows,
                      uint64_t key, LinearParams params, const Kernels& kernels, Pool& pool,
                      ProgressShare& progress);

}  // namespace bonsai

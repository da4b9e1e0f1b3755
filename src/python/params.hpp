// Parameters from Python: dicts from which every entry is read once, by name, and checked.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "linear/problem.hpp"
#include "tree/build.hpp"

namespace bonsai {

// Names of parameter values, and the values.
template <class T>
using Choices = std::vector<std::pair<const char*, T>>;

Loss loss_named(const std::string& name);

// {"loss", "solver", "C", "tol", "max_iter", "learn_bias", "fixed_bias", "prune"}
LinearParams linear_params(const nanobind::dict& params);
// {"branching_factor", "kmeans_tol", "kmeans_max_iter", "plus_plus", "balanced"}
KMeansParams kmeans_params(const nanobind::dict& params);
// As above, and {"max_leaf_size", "max_depth", "split_oversized"}
TreeParams tree_params(const nanobind::dict& params, uint64_t seed);

template <class T>
T choice(const std::string& parameter, const std::string& name, const Choices<T>& choices) {
    std::string known;
    for (const auto& [text, value] : choices) {
        if (name == text) return value;
        known += (known.empty() ? "" : ", ") + std::string(text);
    }
    throw std::invalid_argument(parameter + " is '" + name + "', but must be one of " + known);
}

}  // namespace bonsai

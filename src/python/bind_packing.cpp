// Classifiers that something else has trained, packed as those of our own training are.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "model/pack.hpp"
#include "python/arrays.hpp"
#include "python/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

void check(std::span<const float> bias, std::span<const int64_t> ptr, std::span<const uint32_t> feature,
           std::span<const float> value, size_t n_features) {
    if (ptr.size() != bias.size() + 1 || ptr[0] != 0 || ptr.back() != static_cast<int64_t>(feature.size()) ||
        feature.size() != value.size())
        throw std::invalid_argument("bias, ptr, feature and value do not fit together");
    for (size_t c = 0; c < bias.size(); ++c) {
        if (ptr[c] > ptr[c + 1] || ptr[c + 1] > ptr.back()) throw std::invalid_argument("ptr decreases");
        for (int64_t i = ptr[c]; i < ptr[c + 1]; ++i)
            if (feature[i] >= n_features || (i > ptr[c] && feature[i] <= feature[i - 1]))
                throw std::invalid_argument("the features of a classifier do not ascend, or are too large");
    }
    for (const auto& numbers : {bias, value})
        for (const float number : numbers)
            if (!std::isfinite(number)) throw std::invalid_argument("a weight or a bias is not finite");
}

// The classifiers of one node: weights ptr[c] … ptr[c + 1] are those of the c-th, by ascending feature.
nb::dict pack_node(In<float> bias, In<int64_t> ptr, In<uint32_t> feature, In<float> value,
                   size_t n_features) {
    PackedNode node;
    {
        nb::gil_scoped_release unlock;
        check(span(bias), span(ptr), span(feature), span(value), n_features);
        // features that occur, numbered through: a node of a large model uses few of them
        std::vector<uint32_t> used(feature.data(), feature.data() + feature.size());
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
        std::vector<Solution> panels((bias.size() + kMaxLanes - 1) / kMaxLanes);
        for (size_t c = 0; c < bias.size(); ++c) {
            Solution& panel = panels[c / kMaxLanes];
            panel.bias.push_back(bias.data()[c]);
            for (int64_t i = ptr.data()[c]; i < ptr.data()[c + 1]; ++i) {
                const auto place = std::lower_bound(used.begin(), used.end(), feature.data()[i]);
                panel.weights.push_back(
                    {static_cast<uint32_t>(place - used.begin()), static_cast<uint32_t>(c), value.data()[i]});
            }
        }
        node = pack(panels, used, bias.size());
    }
    nb::dict result;
    OwnedForest& part = node.part;
    result["bias"] = to_numpy(std::move(part.bias));
    result["scale"] = to_numpy(std::move(part.scale));
    result["bucket_ptr"] = to_numpy(std::move(part.bucket_ptr));
    result["record_ptr"] = to_numpy(std::move(part.record_ptr));
    result["shift"] = to_numpy(std::move(part.shift));
    result["buckets"] = to_numpy(std::move(part.buckets));
    result["records"] = to_numpy(std::move(part.records));
    return result;
}

}  // namespace

void bind_packing(nb::module_& m) {
    m.def("pack_node", pack_node, "bias"_a.noconvert(), "ptr"_a.noconvert(), "feature"_a.noconvert(),
          "value"_a.noconvert(), "n_features"_a,
          "The arrays of one node for `Forest`: classifiers quantised to 8 bits. Weights ptr[c] … ptr[c + 1] "
          "are those of classifier c, by ascending feature.");
}

}  // namespace bonsai

// Packs classifiers trained outside the core into the format of a forest.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "model/edit.hpp"
#include "model/pack.hpp"
#include "python/arrays.hpp"
#include "python/bindings.hpp"
#include "python/watched.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

void check(std::span<const float> bias, std::span<const int64_t> ptr, std::span<const uint32_t> feature,
           std::span<const float> value, size_t n_features) {
    if (ptr.size() != bias.size() + 1 || ptr[0] != 0 || ptr.back() != static_cast<int64_t>(feature.size()) ||
        feature.size() != value.size())
        throw std::invalid_argument("the lengths of bias, ptr, feature and value do not match");
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

// Checks what is needed to read the children of each node; the rest is checked with the whole forest.
void check_nodes(const OwnedForest& forest) {
    const auto& ptr = forest.child_ptr;
    if (ptr.size() != forest.is_leaf.size() + 1 || ptr.front() != 0 ||
        !std::is_sorted(ptr.begin(), ptr.end()) || ptr.back() != static_cast<int64_t>(forest.children.size()))
        throw std::invalid_argument("child_ptr does not span the children");
}

// The classifiers of one node: the c-th has the weights [ptr[c], ptr[c + 1]), by ascending feature.
nb::dict pack_node(In<float> bias, In<int64_t> ptr, In<uint32_t> feature, In<float> value,
                   size_t n_features) {
    PackedNode node;
    {
        nb::gil_scoped_release unlock;
        check(span(bias), span(ptr), span(feature), span(value), n_features);
        // consecutive numbers of the features that occur: a node of a large model uses few features
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
        node = pack(panels, kMaxLanes, used, bias.size());
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

template <class T>
void copy_to(std::vector<T>& to, const nb::dict& arrays, const char* name) {
    const auto values = span(cast_array<In<T>>(arrays[name], name));
    to.assign(values.begin(), values.end());
}

std::shared_ptr<Forest> assembled(const nb::dict& structure, const nb::list& sources, In<uint32_t> source,
                                  In<int64_t> child, size_t n_labels, unsigned threads) {
    std::vector<const Forest*> forests;
    for (const nb::handle forest : sources) forests.push_back(nb::cast<const Forest*>(forest));
    if (forests.empty()) throw std::invalid_argument("there must be at least one source");
    OwnedForest nodes;
    copy_to(nodes.tree_ptr, structure, "tree_ptr");
    copy_to(nodes.child_ptr, structure, "child_ptr");
    copy_to(nodes.children, structure, "children");
    copy_to(nodes.is_leaf, structure, "is_leaf");
    check_nodes(nodes);
    const auto made_of = [&](std::span<const Forest* const> from, std::shared_ptr<Forest> residual) {
        const auto made = std::make_shared<OwnedForest>(nodes);
        run_watched(threads, nb::none(),
                    [&](Pool& pool) { assemble(*made, {from, span(source), span(child)}, pool); });
        const nb::gil_scoped_release unlock;
        return std::make_shared<Forest>(made->arrays(), from[0]->n_features(), n_labels, made,
                                        std::move(residual));
    };
    const auto has_residual = [](const Forest* forest) { return forest->residual() != nullptr; };
    if (std::none_of(forests.begin(), forests.end(), has_residual)) return made_of(forests, nullptr);
    std::vector<std::shared_ptr<const Forest>> kept;
    std::vector<const Forest*> residuals;
    for (const Forest* forest : forests) {
        kept.push_back(has_residual(forest) ? forest->residual() : without_weights(*forest));
        residuals.push_back(kept.back().get());
    }
    return made_of(forests, made_of(residuals, nullptr));
}

}  // namespace

void bind_packing(nb::module_& m) {
    m.def("pack_node", pack_node, "bias"_a.noconvert(), "ptr"_a.noconvert(), "feature"_a.noconvert(),
          "value"_a.noconvert(), "n_features"_a,
          "The arrays of one node for `Forest`: classifiers quantised to 8 bits. Weights ptr[c] … ptr[c + 1] "
          "are those of classifier c, by ascending feature.");
    m.def("assemble_forest", assembled, "structure"_a, "sources"_a, "source"_a.noconvert(),
          "child"_a.noconvert(), "n_labels"_a, "threads"_a,
          "A forest with the tree_ptr, child_ptr, children and is_leaf of `structure`. The classifier of its "
          "c-th child is that of child child[c] of the forest sources[source[c]], with the same stored "
          "weights, "
          "so that its margins stay the same bits.");
}

}  // namespace bonsai

#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace bonsai {
namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the model is inconsistent: ") + what);
}

void require_rising(std::span<const int64_t> ptr, size_t n, size_t end, const char* what) {
    require(ptr.size() == n + 1 && ptr[0] == 0 && ptr[n] == static_cast<int64_t>(end), what);
    require(std::is_sorted(ptr.begin(), ptr.end()), what);
}

}  // namespace

Forest::Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels)
    : a_(arrays), n_features_(n_features), n_labels_(n_labels) {
    check_structure();
    for (size_t v = 0; v < a_.is_leaf.size(); ++v)
        max_children_ = std::max(max_children_, static_cast<size_t>(a_.child_ptr[v + 1] - a_.child_ptr[v]));
}

void Forest::check_structure() const {
    const size_t nodes = a_.is_leaf.size(), children = a_.children.size();
    require(a_.tree_ptr.size() >= 2, "it has no tree");
    require_rising(a_.tree_ptr, a_.tree_ptr.size() - 1, nodes, "tree_ptr");
    require_rising(a_.child_ptr, nodes, children, "child_ptr");
    require_rising(a_.feature_ptr, nodes, a_.features.size(), "feature_ptr");
    require_rising(a_.weight_base, nodes, a_.weights.size(), "weight_base");
    require(a_.bias.size() == children && a_.scale.size() == children, "bias and scale");
    require(a_.weight_ptr.size() == a_.features.size() + nodes, "weight_ptr");
    require(a_.child_base.size() == nodes, "child_base");
    std::vector<uint8_t> has_parent(nodes, 0);
    for (size_t t = 0; t + 1 < a_.tree_ptr.size(); ++t) {
        const int64_t first = a_.tree_ptr[t], size = a_.tree_ptr[t + 1] - first;
        require(size > 0, "a tree without nodes");
        for (int64_t v = first; v < first + size; ++v) {
            const auto limit = static_cast<int64_t>(a_.is_leaf[v] ? n_labels_ : size);
            // Children after their parent: prediction goes down and ends.
            const int64_t least = a_.is_leaf[v] ? 0 : v - first + 1;
            const int64_t n = a_.child_ptr[v + 1] - a_.child_ptr[v];
            for (int64_t c = a_.child_ptr[v]; c < a_.child_ptr[v + 1]; ++c) {
                require(a_.children[c] >= least && a_.children[c] < limit, "a child out of range");
                if (!a_.is_leaf[v]) require(!std::exchange(has_parent[first + a_.children[c]], 1), "a node with two parents");
                require(std::isfinite(a_.bias[c]) && std::isfinite(a_.scale[c]), "a bias or scale that is no number");
            }
            const int64_t end = a_.child_base[v] + a_.weight_base[v + 1] - a_.weight_base[v];
            const size_t stored = n <= static_cast<int64_t>(kNarrow) ? a_.narrow.size() : a_.wide.size();
            require(a_.child_base[v] >= 0 && end <= static_cast<int64_t>(stored), "child_base");
        }
    }
}

void Forest::verify() const {
    for (size_t v = 0; v < a_.is_leaf.size(); ++v) {
        const auto begin = static_cast<size_t>(a_.feature_ptr[v]), end = static_cast<size_t>(a_.feature_ptr[v + 1]);
        const auto n_weights = static_cast<uint32_t>(a_.weight_base[v + 1] - a_.weight_base[v]);
        for (size_t f = begin; f < end; ++f) {
            require(a_.features[f] < n_features_, "a feature out of range");
            require(f == begin || a_.features[f - 1] < a_.features[f], "features out of order");
            require(a_.weight_ptr[f + v] <= a_.weight_ptr[f + v + 1], "weight_ptr falls");
        }
        require(a_.weight_ptr[begin + v] == 0 && a_.weight_ptr[end + v] == n_weights, "weight_ptr");
        const int64_t n = a_.child_ptr[v + 1] - a_.child_ptr[v];
        for (int64_t e = a_.child_base[v]; e < a_.child_base[v] + n_weights; ++e) {
            const uint32_t child = n <= static_cast<int64_t>(kNarrow) ? a_.narrow[e] : a_.wide[e];
            require(child < n, "a child number out of range");
        }
    }
}

}  // namespace bonsai

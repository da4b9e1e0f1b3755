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
    const size_t nodes = a_.is_leaf.size(), children = a_.children.size(), blocks = a_.shift.size();
    require(a_.tree_ptr.size() >= 2, "it has no tree");
    require_rising(a_.tree_ptr, a_.tree_ptr.size() - 1, nodes, "tree_ptr");
    require_rising(a_.child_ptr, nodes, children, "child_ptr");
    require_rising(a_.block_ptr, nodes, blocks, "block_ptr");
    require_rising(a_.weight_ptr, blocks, a_.weights.size(), "weight_ptr");
    require_rising(a_.bucket_ptr, blocks, a_.buckets.size() / 2, "bucket_ptr");
    require(a_.buckets.size() % 2 == 0 && a_.weight_child.size() == a_.weights.size(),
            "buckets and weight_child");
    require(a_.bias.size() == children && a_.scale.size() == children, "bias and scale");
    require(a_.low_base.size() == blocks, "low_base");
    std::vector<uint8_t> has_parent(nodes, 0);
    for (size_t t = 0; t + 1 < a_.tree_ptr.size(); ++t) {
        const int64_t first = a_.tree_ptr[t], size = a_.tree_ptr[t + 1] - first;
        require(size > 0, "a tree without nodes");
        for (int64_t v = first; v < first + size; ++v) {
            const auto limit = static_cast<int64_t>(a_.is_leaf[v] ? n_labels_ : size);
            // Children after their parent: prediction goes down and ends.
            const int64_t least = a_.is_leaf[v] ? 0 : v - first + 1;
            const auto n = static_cast<size_t>(a_.child_ptr[v + 1] - a_.child_ptr[v]);
            for (int64_t c = a_.child_ptr[v]; c < a_.child_ptr[v + 1]; ++c) {
                require(a_.children[c] >= least && a_.children[c] < limit, "a child out of range");
                if (!a_.is_leaf[v])
                    require(!std::exchange(has_parent[first + a_.children[c]], 1), "a node with two parents");
                require(std::isfinite(a_.bias[c]) && std::isfinite(a_.scale[c]),
                        "a bias or scale that is no number");
            }
            require(static_cast<size_t>(a_.block_ptr[v + 1] - a_.block_ptr[v]) ==
                        (n + kBlockChildren - 1) / kBlockChildren,
                    "blocks that do not fit a node's children");
        }
    }
    for (size_t b = 0; b < blocks; ++b) {
        require(a_.shift[b] <= kMaxShift, "shift");
        require(a_.bucket_ptr[b] < a_.bucket_ptr[b + 1], "a block without buckets");
        const size_t stored = a_.shift[b] <= kByteShift ? a_.low8.size() : a_.low16.size();
        require(a_.low_base[b] >= 0 && static_cast<size_t>(a_.low_base[b]) <= stored &&
                    n_features_of(b) <= stored - static_cast<size_t>(a_.low_base[b]),
                "low_base");
    }
}

void Forest::weight_starts(size_t block, std::vector<uint32_t>& starts) const {
    const uint8_t* child = a_.weight_child.data() + a_.weight_ptr[block];
    const size_t n_weights = n_weights_of(block), n_features = n_features_of(block);
    starts.assign(n_features + 1, static_cast<uint32_t>(n_weights));
    starts[0] = 0;
    size_t found = 1;
    for (size_t at = 0; at < n_weights && found <= n_features; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, child + at, std::min<size_t>(8, n_weights - at));
        for (word &= kLastOfEight; word && found <= n_features; word &= word - 1)
            starts[found++] =
                static_cast<uint32_t>(at) + static_cast<uint32_t>(std::countr_zero(word)) / 8 + 1;
    }
}

void Forest::verify() const {
    for (size_t v = 0; v < a_.is_leaf.size(); ++v) {
        size_t left = static_cast<size_t>(a_.child_ptr[v + 1] - a_.child_ptr[v]);
        for (int64_t b = a_.block_ptr[v]; b < a_.block_ptr[v + 1]; ++b) {
            const size_t n_children = std::min(left, kBlockChildren);
            check_block(static_cast<size_t>(b), n_children);
            left -= n_children;
        }
    }
}

void Forest::check_block(size_t block, size_t n_children) const {
    const uint32_t* bucket = a_.buckets.data() + 2 * a_.bucket_ptr[block];
    const auto n_buckets = static_cast<size_t>(a_.bucket_ptr[block + 1] - a_.bucket_ptr[block]) - 1;
    const uint8_t* child = a_.weight_child.data() + a_.weight_ptr[block];
    const size_t n_weights = n_weights_of(block);
    for (size_t w = 0; w < n_weights; ++w)
        require((child[w] & ~kLastWeight) < static_cast<int>(n_children), "a weight of a child out of range");
    require(n_weights == 0 || child[n_weights - 1] & kLastWeight, "a feature without an end");
    size_t at = 0, weight = 0;
    for (size_t b = 0; b < n_buckets; ++b) {
        require(bucket[2 * b] == at && bucket[2 * b + 1] == weight && bucket[2 * b + 2] >= at, "buckets");
        for (; at < bucket[2 * b + 2]; ++at) {
            require(at == bucket[2 * b] || low(block, at - 1) < low(block, at), "features out of order");
            require(((b << a_.shift[block]) | low(block, at)) < n_features_, "a feature out of range");
            require(weight < n_weights, "a feature without weights");
            while (!(child[weight++] & kLastWeight)) continue;
        }
    }
    require(bucket[2 * n_buckets] == at && bucket[2 * n_buckets + 1] == weight && weight == n_weights,
            "buckets");
}

void OwnedForest::open_block(size_t n_features_used, size_t n_features) {
    constexpr size_t per_bucket = 16;  // half a byte for each feature, and short to search
    unsigned s = 0;
    while (s < kMaxShift && ((n_features >> s) + 1) * per_bucket > n_features_used) ++s;
    // Twice the buckets cost half a byte more for each feature, and save a whole one.
    if (s == kByteShift + 1) s = kByteShift;
    shift.push_back(static_cast<uint8_t>(s));
    low_base.push_back(static_cast<int64_t>(s <= kByteShift ? low8.size() : low16.size()));
    buckets.insert(buckets.end(), {0, 0});
}

void OwnedForest::add_feature(uint32_t feature, std::span<const StoredWeight> weight,
                              std::span<const uint8_t> child) {
    const unsigned s = shift.back();
    const size_t first = static_cast<size_t>(bucket_ptr.back());
    const size_t n_low =
        (s <= kByteShift ? low8.size() : low16.size()) - static_cast<size_t>(low_base.back());
    const size_t n_weights = weights.size() - static_cast<size_t>(weight_ptr.back());
    while (buckets.size() / 2 - first - 1 < (feature >> s))
        buckets.insert(buckets.end(), {static_cast<uint32_t>(n_low), static_cast<uint32_t>(n_weights)});
    const uint32_t low = feature & ((uint32_t{1} << s) - 1);
    if (s <= kByteShift)
        low8.push_back(static_cast<uint8_t>(low));
    else
        low16.push_back(static_cast<uint16_t>(low));
    weights.insert(weights.end(), weight.begin(), weight.end());
    weight_child.insert(weight_child.end(), child.begin(), child.end());
    weight_child.back() |= kLastWeight;
}

void OwnedForest::close_block(size_t n_features) {
    const unsigned s = shift.back();
    const size_t first = static_cast<size_t>(bucket_ptr.back());
    const size_t n_low =
        (s <= kByteShift ? low8.size() : low16.size()) - static_cast<size_t>(low_base.back());
    const size_t n_weights = weights.size() - static_cast<size_t>(weight_ptr.back());
    const size_t n_buckets = n_features == 0 ? 0 : ((n_features - 1) >> s) + 1;
    while (buckets.size() / 2 - first < n_buckets + 1)
        buckets.insert(buckets.end(), {static_cast<uint32_t>(n_low), static_cast<uint32_t>(n_weights)});
    bucket_ptr.push_back(static_cast<int64_t>(buckets.size() / 2));
    weight_ptr.push_back(static_cast<int64_t>(weights.size()));
}

}  // namespace bonsai

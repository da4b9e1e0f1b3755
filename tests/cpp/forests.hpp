// Small forests for tests, with every kind of block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "model/forest.hpp"

namespace forests {

using namespace bonsai;

inline constexpr size_t kFeatures = 3000;
inline constexpr size_t kLabels = 700;

// A copy's vectors are exactly as large as their contents, so that a sanitizer sees the first byte beyond.
inline void add_block(OwnedForest& f, size_t n_children, size_t n_used, Rng& rng) {
    std::vector<uint32_t> features = rng.sample(kFeatures, n_used), ptr = {0};
    std::sort(features.begin(), features.end());
    std::vector<uint8_t> child;
    std::vector<StoredWeight> weight;
    for (size_t i = 0; i < n_used; ++i) {
        // One weight, a few, or enough for a bitmap if there are enough children.
        const size_t kind = rng.below(3), step = kind == 0 ? n_children : kind == 1 ? 40 : 4;
        size_t c = rng.below(kind == 0 ? n_children : std::min(n_children, step));
        do {
            child.push_back(static_cast<uint8_t>(c));
            const int magnitude = 1 + static_cast<int>(rng.below(kWeightMax));
            weight.push_back(static_cast<StoredWeight>(rng.below(2) == 0 ? magnitude : -magnitude));
            c += 1 + rng.below(step);
        } while (kind > 0 && c < n_children);
        ptr.push_back(static_cast<uint32_t>(child.size()));
    }
    f.add_block(features, ptr, child, weight);
}

inline void add_node(OwnedForest& f, const std::vector<int32_t>& children, bool leaf, Rng& rng) {
    f.is_leaf.push_back(leaf);
    f.children.insert(f.children.end(), children.begin(), children.end());
    f.child_ptr.push_back(static_cast<int64_t>(f.children.size()));
    for (size_t c = 0; c < children.size(); ++c) {
        f.bias.push_back(static_cast<float>(rng.uniform() * 4 - 2));
        f.scale.push_back(static_cast<float>(rng.uniform() / 64));
    }
    // Many features in the first block of a node, few in the next: one byte of lower bits, or two.
    for (size_t first = 0; first < children.size(); first += kBlockChildren)
        add_block(f, std::min(kBlockChildren, children.size() - first), first == 0 ? 400 : 9, rng);
    f.block_ptr.push_back(static_cast<int64_t>(f.shift.size()));
}

// Two trees. The first: root 0 with children 1 (a leaf above the last level) and 2, whose children are the
// leaves 3 (400 labels: four blocks) and 4 (256: two). The second is one leaf.
inline OwnedForest make_forest(uint64_t key) {
    Rng rng(key);
    OwnedForest f;
    f.tree_ptr = f.child_ptr = f.block_ptr = f.bucket_ptr = f.record_ptr = {0};
    const auto range = [](int32_t begin, int32_t end) {
        std::vector<int32_t> labels;
        for (int32_t l = begin; l < end; ++l) labels.push_back(l);
        return labels;
    };
    add_node(f, {1, 2}, false, rng);
    add_node(f, range(0, 5), true, rng);
    add_node(f, {3, 4}, false, rng);
    add_node(f, range(5, 405), true, rng);
    add_node(f, range(405, 661), true, rng);
    f.tree_ptr.push_back(5);
    add_node(f, range(600, 700), true, rng);
    f.tree_ptr.push_back(6);
    return f;
}

// The weights of a feature in `with_block`: from one to all, determined by its number.
inline size_t n_weights(size_t feature) {
    constexpr size_t some[] = {1, 2, 1, 3, 1, 8, 1, 9, 1, 4, 20, 1, 128};
    return some[feature % 13];
}

// All weights of a feature of `with_block`.
inline StoredWeight weight_of(size_t feature) {
    return static_cast<StoredWeight>(feature % 127 + 1) * (feature % 2 == 0 ? 1 : -1);
}

// A forest whose last block has the given features, each with weights that identify it.
inline OwnedForest with_block(const std::vector<uint32_t>& features) {
    OwnedForest f = make_forest(1);
    f.tree_ptr.push_back(7);
    for (int32_t label = 0; label < static_cast<int32_t>(kBlockChildren); ++label)
        f.children.push_back(label);
    f.child_ptr.push_back(static_cast<int64_t>(f.children.size()));
    f.is_leaf.push_back(1);
    f.bias.resize(f.children.size(), 0.0f);
    f.scale.resize(f.children.size(), 1.0f);
    std::vector<uint32_t> ptr = {0};
    std::vector<uint8_t> child;
    std::vector<StoredWeight> weight;
    for (const uint32_t feature : features) {
        const size_t n = n_weights(feature);
        for (size_t c = 0; c < n; ++c)
            child.push_back(static_cast<uint8_t>((c + 1) * kBlockChildren / n - 1));
        weight.resize(child.size(), weight_of(feature));
        ptr.push_back(static_cast<uint32_t>(child.size()));
    }
    f.add_block(features, ptr, child, weight);
    f.block_ptr.push_back(static_cast<int64_t>(f.shift.size()));
    return f;
}

}  // namespace forests

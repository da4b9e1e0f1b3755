// The smallest models that have every kind of block, node and list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "data/rows.hpp"
#include "model/forest.hpp"

namespace fuzz {

using namespace bonsai;

inline constexpr size_t kFeatures = 300;
inline constexpr size_t kManyFeatures = 20'000;  // feature numbers of two bytes in each bucket
inline constexpr size_t kLabels = 150;           // two blocks

inline void add_block(OwnedForest& f, size_t n_features, size_t n_children, size_t n_used, Rng& rng) {
    std::vector<uint32_t> features = rng.sample(n_features, n_used), ptr = {0};
    std::sort(features.begin(), features.end());
    std::vector<uint8_t> child;
    std::vector<StoredWeight> weight;
    for (size_t i = 0; i < n_used; ++i) {
        const size_t kind = rng.below(3), step = kind == 0 ? n_children : kind == 1 ? 40 : 4;
        size_t c = rng.below(kind == 0 ? n_children : std::min(n_children, step));
        do {
            child.push_back(static_cast<uint8_t>(c));
            weight.push_back(static_cast<StoredWeight>(1 + rng.below(kWeightMax)));
            if (rng.below(2) == 0) weight.back() = static_cast<StoredWeight>(-weight.back());
            c += 1 + rng.below(step);
        } while (kind > 0 && c < n_children);
        ptr.push_back(static_cast<uint32_t>(child.size()));
    }
    f.add_block(features, ptr, child, weight);
}

inline void add_node(OwnedForest& f, size_t n_features, int32_t begin, int32_t end, bool leaf, Rng& rng) {
    f.is_leaf.push_back(leaf);
    const auto n = static_cast<size_t>(end - begin);
    for (int32_t c = begin; c < end; ++c) {
        f.children.push_back(c);
        f.bias.push_back(static_cast<float>(rng.uniform() * 4 - 2));
        f.scale.push_back(static_cast<float>(rng.uniform() / 64));
    }
    f.child_ptr.push_back(static_cast<int64_t>(f.children.size()));
    for (size_t first = 0; first < n; first += kBlockChildren)
        add_block(f, n_features, std::min(kBlockChildren, n - first), first == 0 ? 40 : 9, rng);
    f.block_ptr.push_back(static_cast<int64_t>(f.shift.size()));
}

inline OwnedForest no_nodes() {
    OwnedForest f;
    f.tree_ptr = f.child_ptr = f.block_ptr = f.bucket_ptr = f.record_ptr = {0};
    return f;
}

// A root with a leaf and an inner node, which has two leaves; and, unless one tree is enough, a single leaf.
inline OwnedForest small_trees(uint64_t key, size_t n_features = kFeatures, bool one = false) {
    Rng rng(key);
    OwnedForest f = no_nodes();
    add_node(f, n_features, 1, 3, false, rng);
    add_node(f, n_features, 0, 3, true, rng);
    add_node(f, n_features, 3, 5, false, rng);
    add_node(f, n_features, 3, 10, true, rng);
    add_node(f, n_features, 10, static_cast<int32_t>(kLabels), true, rng);
    f.tree_ptr.push_back(5);
    if (one) return f;
    add_node(f, n_features, 20, 30, true, rng);
    f.tree_ptr.push_back(6);
    return f;
}

// One-vs-rest classifiers of all labels.
inline OwnedForest small_leaf(uint64_t key, size_t n_features = kFeatures) {
    Rng rng(key);
    OwnedForest f = no_nodes();
    add_node(f, n_features, 0, static_cast<int32_t>(kLabels), true, rng);
    f.tree_ptr.push_back(1);
    return f;
}

// A row without features, one with half of all and one with few; dense for kind 2.
inline Rows small_rows(size_t n_features, size_t kind) {
    Rows rows{.n_rows = kind == 0 ? 1u : 3u, .n_features = n_features};
    const bool dense = kind == 2 && n_features > 0;  // dense rows need values
    if (dense) rows.dense.resize(rows.n_rows * n_features);
    if (!dense) rows.ptr.push_back(0);
    const size_t step = 1 + n_features / 1000;
    for (size_t i = 0; i < rows.n_rows; ++i) {
        for (size_t f = i; f < n_features && (i > 0 || kind == 0); f += step * (i == 1 ? 2 : 9)) {
            const float value = static_cast<float>((f * 7 + i) % 13) - 4;
            if (dense) {
                rows.dense[i * n_features + f] = value;
            } else if (value != 0) {
                rows.index.push_back(static_cast<int32_t>(f));
                rows.value.push_back(value);
            }
        }
        if (!dense) rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
    }
    return rows;
}

}  // namespace fuzz

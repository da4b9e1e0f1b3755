#include "model/pack.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"

namespace bonsai {
namespace {

// Local features that any classifier uses, ascending by their number in X.
std::vector<uint32_t> used_features(std::span<const Solution> panels, std::span<const uint32_t> features) {
    std::vector<uint8_t> used(features.size(), 0);
    for (const Solution& panel : panels)
        for (const Weight& w : panel.weights) used[w.feature] = 1;
    std::vector<uint32_t> order;
    for (uint32_t f = 0; f < features.size(); ++f)
        if (used[f]) order.push_back(f);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return features[a] < features[b]; });
    return order;
}

// Appends one block: the weights of `panels`, quantised, feature by feature in the given order.
void pack_block(std::span<Solution> panels, size_t first_class, std::span<const uint32_t> features,
                std::span<const uint32_t> order, OwnedForest& out) {
    const auto quantise = [&](const Weight& w) {
        const float scale = out.scale[w.cls];
        return static_cast<StoredWeight>(scale > 0 ? std::lrint(w.value / scale) : 0);
    };
    std::vector<uint32_t> next(features.size(), 0);  // of each local feature: first its number of weights
    for (const Solution& panel : panels)
        for (const Weight& w : panel.weights) next[w.feature] += quantise(w) != 0;
    std::vector<uint32_t> used, ptr = {0};
    for (const uint32_t f : order) {
        if (next[f] == 0) continue;
        used.push_back(features[f]);
        ptr.push_back(ptr.back() + next[f]);
        next[f] = ptr[ptr.size() - 2];  // from here on the place of its next one
    }
    std::vector<StoredWeight> weight(ptr.back());
    std::vector<uint8_t> child(ptr.back());
    for (Solution& panel : panels) {
        for (const Weight& w : panel.weights) {
            const StoredWeight q = quantise(w);
            if (q == 0) continue;
            weight[next[w.feature]] = q;
            child[next[w.feature]++] = static_cast<uint8_t>(w.cls - first_class);
        }
        panel.weights = {};
    }
    out.add_block(used, ptr, child, weight);
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
}
// Offsets, which begin at 0 in `from`; in `to` they go on from its last one.
void append(std::vector<int64_t>& to, const std::vector<int64_t>& from) {
    if (from.empty()) return;
    const int64_t shift = to.back();
    for (size_t i = 1; i < from.size(); ++i) to.push_back(from[i] + shift);
}

}  // namespace

PackedNode pack(std::vector<Solution>& panels, std::span<const uint32_t> features, size_t n_classes) {
    PackedNode node;
    OwnedForest& part = node.part;
    part.scale.assign(n_classes, 0.0f);
    part.bucket_ptr = part.record_ptr = {0};
    for (const Solution& panel : panels) {
        part.bias.insert(part.bias.end(), panel.bias.begin(), panel.bias.end());
        for (const int n : panel.n_iter) node.max_iter = std::max(node.max_iter, n);
        for (const uint8_t converged : panel.converged) node.n_unconverged += !converged;
        for (const Weight& w : panel.weights)
            part.scale[w.cls] = std::max(part.scale[w.cls], std::abs(w.value) / kWeightMax);
    }
    const auto order = used_features(panels, features);
    constexpr size_t per_block = kBlockChildren / kMaxLanes;
    for (size_t p = 0; p < panels.size(); p += per_block)
        pack_block({panels.data() + p, std::min(per_block, panels.size() - p)}, p * kMaxLanes, features,
                   order, part);
    return node;
}

void append(OwnedForest& forest, const OwnedForest& part) {
    for_each_array([](const char*, auto& to, const auto& from) { append(to, from); }, forest, part);
}

}  // namespace bonsai

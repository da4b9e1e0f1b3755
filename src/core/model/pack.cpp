#include "model/pack.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/sort.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {
namespace {

// Local features that occur in some classifier, ascending by their number in X.
std::vector<uint32_t> used_features(std::span<const Solution> panels, std::span<const uint32_t> features) {
    std::vector<uint8_t> used(features.size(), 0);
    for (const Solution& panel : panels)
        for (const Weight& w : panel.weights) used[w.feature] = 1;
    std::vector<uint64_t> keys;  // its number in X, then the local one
    for (uint32_t f = 0; f < features.size(); ++f)
        if (used[f]) keys.push_back(uint64_t{features[f]} << 32 | f);
    sort_by_upper_half(keys);
    std::vector<uint32_t> order;
    order.reserve(keys.size());
    for (const uint64_t key : keys) order.push_back(static_cast<uint32_t>(key));
    return order;
}

// Sorts the weights of a feature by child. They are few, and most are already in order.
void sort_children(size_t begin, size_t end, std::vector<uint8_t>& child, std::vector<StoredWeight>& weight) {
    for (size_t i = begin + 1; i < end; ++i)
        for (size_t j = i; j > begin && child[j - 1] > child[j]; --j) {
            std::swap(child[j - 1], child[j]);
            std::swap(weight[j - 1], weight[j]);
        }
}

// Appends one block. for_each(fn) calls fn(feature, child, weight) for each weight, twice in the same order,
// with features below n_features; for_each_feature(fn) calls fn(feature, its number in X), ascending by that
// number, for all features with weights and possibly others.
template <class ForEach, class ForEachFeature>
void add_block(size_t n_features, ForEach&& for_each, ForEachFeature&& for_each_feature, OwnedForest& out) {
    std::vector<uint32_t> next(n_features, 0);  // per feature: first its number of weights
    for_each([&](uint32_t feature, size_t, StoredWeight q) { next[feature] += q != 0; });
    std::vector<uint32_t> used, ptr = {0};
    for_each_feature([&](uint32_t feature, uint32_t number) {
        if (next[feature] == 0) return;
        used.push_back(number);
        ptr.push_back(ptr.back() + next[feature]);
        next[feature] = ptr[ptr.size() - 2];  // then the position of its next weight
    });
    std::vector<StoredWeight> weight(ptr.back());
    std::vector<uint8_t> child(ptr.back());
    for_each([&](uint32_t feature, size_t c, StoredWeight q) {
        if (q == 0) return;
        weight[next[feature]] = q;
        child[next[feature]++] = static_cast<uint8_t>(c);
    });
    for (size_t f = 0; f < used.size(); ++f) sort_children(ptr[f], ptr[f + 1], child, weight);
    out.add_block(used, ptr, child, weight);
}

// Appends one block: the weights of `panels`, quantised, feature by feature in the given order.
void pack_panels(std::span<Solution> panels, size_t first_class, std::span<const uint32_t> features,
                 std::span<const uint32_t> order, OwnedForest& out) {
    add_block(
        features.size(),
        [&](auto&& fn) {
            for (const Solution& panel : panels)
                for (const Weight& w : panel.weights)
                    fn(w.feature, w.cls - first_class, quantise(w.value, out.scale[w.cls]));
        },
        [&](auto&& fn) {
            for (const uint32_t f : order) fn(f, features[f]);
        },
        out);
    for (Solution& panel : panels) panel.weights = {};
}

// `at`: the lengths of all parts before it.
void copy_to(const OwnedForest& part, const PartSizes& at, OwnedForest& forest) {
    const auto copy = [](const auto& from, auto& to, size_t begin) {
        std::copy(from.begin(), from.end(), to.begin() + static_cast<int64_t>(begin));
    };
    copy(part.bias, forest.bias, at.classifiers);
    copy(part.scale, forest.scale, at.classifiers);
    copy(part.shift, forest.shift, at.blocks);
    copy(part.buckets, forest.buckets, at.buckets);
    copy(part.records, forest.records, at.bytes);
    for (size_t b = 0; b < part.shift.size(); ++b) {  // offsets begin at 0 in each part
        forest.bucket_ptr[at.blocks + b + 1] = static_cast<int64_t>(at.buckets) + part.bucket_ptr[b + 1];
        forest.record_ptr[at.blocks + b + 1] = static_cast<int64_t>(at.bytes) + part.record_ptr[b + 1];
    }
}

bool ascends(std::span<const int64_t> ptr, size_t last) {
    if (ptr.empty() || ptr.front() != 0 || ptr.back() != static_cast<int64_t>(last)) return false;
    return std::is_sorted(ptr.begin(), ptr.end());
}

}  // namespace

float scale_for(float largest) {
    return largest / kWeightMax;
}

StoredWeight quantise(float value, float scale) {
    return static_cast<StoredWeight>(scale > 0 ? std::lrint(value / scale) : 0);
}

PackedNode pack_block(std::span<QuantisedClassifier> classifiers, const Dataset& data) {
    PackedNode node;
    OwnedForest& part = node.part;
    part.bucket_ptr = part.record_ptr = {0};
    for (const QuantisedClassifier& found : classifiers) {
        part.bias.push_back(found.bias);
        part.scale.push_back(found.scale);
        node.max_iter = std::max(node.max_iter, static_cast<int>(found.n_iter));
        node.n_unconverged += !found.converged;
    }
    add_block(
        data.x().n_features,
        [&](auto&& fn) {
            for (size_t c = 0; c < classifiers.size(); ++c)
                for (size_t w = 0; w < classifiers[c].feature.size(); ++w)
                    fn(classifiers[c].feature[w], c, classifiers[c].weight[w]);
        },
        [&](auto&& fn) {
            for (uint32_t f = 0; f < data.x().n_features; ++f) fn(f, data.feature_of(f));
        },
        part);
    for (QuantisedClassifier& found : classifiers) found = {};
    return node;
}

PackedNode join(std::span<PackedNode> blocks, Pool& pool) {
    PackedNode node;
    std::vector<OwnedForest*> parts;
    for (PackedNode& block : blocks) {
        node.n_unconverged += block.n_unconverged;
        node.max_iter = std::max(node.max_iter, block.max_iter);
        parts.push_back(&block.part);
    }
    append(node.part, parts, pool);
    return node;
}

void write(const PackedNode& node, ByteWriter& out) {
    out.reserve(node.part.records.size() + node.part.buckets.size() * 4 + 4096);
    out.value(static_cast<uint64_t>(node.n_unconverged));
    out.value(static_cast<int32_t>(node.max_iter));
    for_each_array([&](const char*, const auto& array) { out.array(std::span(array)); }, node.part);
}

PackedNode read_packed_node(ByteReader& in, size_t n_classes) {
    PackedNode node;
    node.n_unconverged = in.value<uint64_t>();
    node.max_iter = in.value<int32_t>();
    for_each_array([&](const char*, auto& array) { in.array(array); }, node.part);
    const OwnedForest& part = node.part;
    const size_t n_blocks = part.shift.size();
    const bool fits = part.bias.size() == n_classes && part.scale.size() == n_classes &&
                      n_blocks == (n_classes + kBlockChildren - 1) / kBlockChildren &&
                      part.bucket_ptr.size() == n_blocks + 1 && part.record_ptr.size() == n_blocks + 1 &&
                      ascends(part.bucket_ptr, part.buckets.size()) &&
                      ascends(part.record_ptr, part.records.size()) && part.tree_ptr.empty() &&
                      part.child_ptr.empty() && part.children.empty() && part.is_leaf.empty() &&
                      part.block_ptr.empty();
    if (!fits) throw std::invalid_argument("the result of a unit of work is not that of such a node");
    return node;
}

PackedNode pack(std::vector<Solution>& panels, size_t lanes, std::span<const uint32_t> features,
                size_t n_classes) {
    PackedNode node;
    OwnedForest& part = node.part;
    part.scale.assign(n_classes, 0.0f);
    part.bucket_ptr = part.record_ptr = {0};
    for (const Solution& panel : panels) {
        part.bias.insert(part.bias.end(), panel.bias.begin(), panel.bias.end());
        for (const int n : panel.n_iter) node.max_iter = std::max(node.max_iter, n);
        for (const uint8_t converged : panel.converged) node.n_unconverged += !converged;
        for (const Weight& w : panel.weights)
            part.scale[w.cls] = std::max(part.scale[w.cls], scale_for(std::abs(w.value)));
    }
    const auto order = used_features(panels, features);
    const size_t per_block = kBlockChildren / lanes;
    for (size_t p = 0; p < panels.size(); p += per_block)
        pack_panels({panels.data() + p, std::min(per_block, panels.size() - p)}, p * lanes, features, order,
                    part);
    return node;
}

void add_numbers(const PackedNode& node, size_t n_classifiers, TrainReport& report) {
    report.n_classifiers += n_classifiers;
    report.n_unconverged += node.n_unconverged;
    report.max_iter = std::max(report.max_iter, node.max_iter);
}

PartSizes sizes_of(const OwnedForest& part) {
    return {part.bias.size(), part.shift.size(), part.buckets.size(), part.records.size()};
}

void append(OwnedForest& forest, std::span<const PartSizes> parts,
            const std::function<OwnedForest(size_t)>& take, Pool& pool) {
    std::vector<PartSizes> places;
    PartSizes end{forest.bias.size(), 0, 0, 0};
    for (const PartSizes& part : parts) {
        places.push_back(end);
        end.classifiers += part.classifiers;
        end.blocks += part.blocks;
        end.buckets += part.buckets;
        end.bytes += part.bytes;
    }
    forest.bias.resize(end.classifiers);
    forest.scale.resize(end.classifiers);
    forest.shift.resize(end.blocks);
    forest.bucket_ptr.assign(end.blocks + 1, 0);
    forest.record_ptr.assign(end.blocks + 1, 0);
    forest.buckets.resize(end.buckets);
    forest.records.resize(end.bytes);
    if (end.bytes > kAppendedBytes) trim_heaps();
    for (size_t begin = 0, last; begin < parts.size(); begin = last) {
        for (last = begin + 1;
             last < parts.size() && places[last].bytes - places[begin].bytes < kAppendedBytes;)
            ++last;
        constexpr size_t parts_per_task = 16;
        pool.run((last - begin + parts_per_task - 1) / parts_per_task, [&](size_t task, unsigned) {
            const size_t first = begin + task * parts_per_task;
            for (size_t p = first; p < std::min(last, first + parts_per_task); ++p) {
                const OwnedForest part = take(p);
                if (sizes_of(part) != parts[p])
                    throw std::invalid_argument("the result of a unit of work has changed");
                copy_to(part, places[p], forest);
            }
        });
        if (last - begin < parts.size()) trim_heaps();
    }
}

void append(OwnedForest& forest, std::span<OwnedForest* const> parts, Pool& pool) {
    std::vector<PartSizes> sizes;
    for (const OwnedForest* part : parts) sizes.push_back(sizes_of(*part));
    append(forest, sizes, [&](size_t p) { return std::exchange(*parts[p], {}); }, pool);
}

}  // namespace bonsai

#include "model/forest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/kernels.hpp"

namespace bonsai {
namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the model is inconsistent: ") + what);
}

void require_rising(std::span<const int64_t> ptr, size_t n, size_t end, const char* what) {
    require(ptr.size() == n + 1 && ptr[0] == 0 && ptr[n] == static_cast<int64_t>(end), what);
    require(std::is_sorted(ptr.begin(), ptr.end()), what);
}

// Twice as many buckets make look-ups faster and the block larger.
unsigned shift_for(std::span<const uint32_t> features) {
    constexpr size_t per_bucket = 10;
    const uint32_t last = features.empty() ? 0 : features.back();
    unsigned s = 0;
    while (s < kMaxShift && last >> s > 0 && ((last >> s) + size_t{1}) * per_bucket > features.size()) ++s;
    // An offset and a number of features for every eight or more cost less than a byte for each of them.
    if (s == kByteShift + 1) s = kByteShift;
    const auto too_full = [&] {
        for (size_t i = kRecordFeatures; i < features.size(); ++i)
            if (features[i] >> s == features[i - kRecordFeatures] >> s) return true;
        return false;
    };
    while (too_full()) --s;  // ends: so many features differ in more than seven bits
    return s;
}

}  // namespace

Forest::Forest(OwnedForest&& made, size_t n_features, size_t n_labels, bool routing_only)
    : owned_(std::move(made)),
      a_(owned_.arrays()),
      n_features_(n_features),
      n_labels_(n_labels),
      routing_only_(routing_only) {
    index();
}

Forest::Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels, bool routing_only,
               std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), n_features_(n_features), n_labels_(n_labels), routing_only_(routing_only) {
    a_ = arrays;
    for_each_structure_array(
        [](const char*, auto& view, auto& copy, const auto& given) {
            copy.assign(given.begin(), given.end());
            view = copy;
        },
        a_, owned_, arrays);
    check_structure();
    index();
}

void Forest::index() {
    for (size_t t = 0; t < n_trees(); ++t) {
        InnerNodes& inner = inner_.emplace_back();
        for (int64_t v = a_.tree_ptr[t]; v < a_.tree_ptr[t + 1]; ++v) {
            if (a_.is_leaf[v]) continue;
            const size_t n = padded_lanes(n_children(static_cast<size_t>(v)));
            inner.children += n;
            inner.widest = std::max(inner.widest, n);
        }
    }
    if (!is_one_leaf()) return;
    place_.assign(n_labels_, kNowhere);
    for (size_t c = 0; c < a_.children.size(); ++c) place_[a_.children[c]] = static_cast<uint32_t>(c);
}

void Forest::check_structure() const {
    const size_t nodes = a_.is_leaf.size(), children = a_.children.size(), blocks = a_.shift.size();
    require(a_.tree_ptr.size() >= 2, "it has no tree");
    require_rising(a_.tree_ptr, a_.tree_ptr.size() - 1, nodes, "tree_ptr");
    require_rising(a_.child_ptr, nodes, children, "child_ptr");
    require_rising(a_.block_ptr, nodes, blocks, "block_ptr");
    require_rising(a_.bucket_ptr, blocks, a_.buckets.size(), "bucket_ptr");
    require_rising(a_.record_ptr, blocks, a_.records.size(), "record_ptr");
    require(a_.bias.size() == children && a_.scale.size() == children, "bias and scale");
    std::vector<uint8_t> has_parent(nodes, 0);
    for (size_t t = 0; t + 1 < a_.tree_ptr.size(); ++t) {
        const int64_t first = a_.tree_ptr[t], size = a_.tree_ptr[t + 1] - first;
        require(size > 0, "a tree without nodes");
        std::vector<bool> in_leaf(n_labels_, false);
        for (int64_t v = first; v < first + size; ++v) {
            const auto limit = static_cast<int64_t>(a_.is_leaf[v] ? n_labels_ : size);
            // Children after their parent: prediction goes down and ends.
            const int64_t least = a_.is_leaf[v] ? 0 : v - first + 1;
            const auto n = static_cast<size_t>(a_.child_ptr[v + 1] - a_.child_ptr[v]);
            for (int64_t c = a_.child_ptr[v]; c < a_.child_ptr[v + 1]; ++c) {
                require(a_.children[c] >= least && a_.children[c] < limit, "a child out of range");
                if (!a_.is_leaf[v]) {
                    require(!std::exchange(has_parent[first + a_.children[c]], 1), "a node with two parents");
                } else {
                    require(!in_leaf[a_.children[c]], "a label in a tree twice");
                    in_leaf[a_.children[c]] = true;
                }
                require(std::isfinite(a_.bias[c]) && std::isfinite(a_.scale[c]),
                        "a bias or scale that is no number");
            }
            require(static_cast<size_t>(a_.block_ptr[v + 1] - a_.block_ptr[v]) ==
                        (routing_only_ && a_.is_leaf[v] ? 0 : (n + kBlockChildren - 1) / kBlockChildren),
                    "blocks that do not fit a node's children");
        }
    }
    for (size_t b = 0; b < blocks; ++b) {
        require(a_.shift[b] <= kMaxShift, "shift");
        require(a_.bucket_ptr[b] < a_.bucket_ptr[b + 1], "a block without buckets");
    }
}

void Forest::verify() const {
    for (size_t v = 0; v < a_.is_leaf.size(); ++v) {
        size_t left = n_children(v);
        for (int64_t b = a_.block_ptr[v]; b < a_.block_ptr[v + 1]; ++b) {
            const size_t n_children = std::min(left, kBlockChildren);
            block(static_cast<size_t>(b)).verify(n_features_, n_children);
            left -= n_children;
        }
    }
}

void PackedBlock::verify(size_t n_features, size_t n_children) const {
    require(offsets_[0] == 0 && offsets_[n_buckets_] == records_.size(), "buckets");
    require(std::is_sorted(offsets_, offsets_ + n_buckets_ + 1), "buckets");
    for (size_t bucket = 0; bucket < n_buckets_; ++bucket) {
        const size_t begin = offsets_[bucket], end = offsets_[bucket + 1];
        if (begin == end) continue;
        const Record r = record(begin, end);
        require(r.n > 0, "the length of a record");
        std::vector<size_t> features;
        const uint8_t* held = r.held;
        for (size_t i = 0; i < r.n; ++i) {
            features.push_back(feature(bucket, r, i));
            require(features[i] >> shift_ == bucket && features[i] < n_features, "a feature out of range");
            require(i == 0 || i == r.n_sized || features[i - 1] < features[i], "features out of order");
            const FeatureWeights found{held, i < r.n_sized ? r.size[i] : size_t{2}};
            require(found.size <= static_cast<size_t>(r.end - held), "the length of a record");
            size_t n = 0;
            if (found.spread())
                for (size_t c = 0; c < kMapBytes; ++c) n += static_cast<size_t>(std::popcount(held[c]));
            require(found.spread() ? n == found.n() : found.size > 0 && found.size % 2 == 0,
                    "features and weights that do not fit");
            for (size_t w = 0; !found.spread() && w < found.n(); ++w)
                require(held[w] < n_children, "a weight of a child out of range");
            found.for_each([&](size_t child, StoredWeight) {
                require(child < n_children, "a weight of a child out of range");
            });
            held += found.size;
        }
        require(held == r.end, "the length of a record");
        std::sort(features.begin(), features.end());
        require(std::adjacent_find(features.begin(), features.end()) == features.end(),
                "features out of order");
    }
}

void OwnedForest::add_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                            std::span<const uint8_t> child, std::span<const StoredWeight> weight) {
    const unsigned s = shift_for(features);
    const size_t first_bucket = buckets.size(), first_byte = records.size();
    std::vector<size_t> order;  // of one bucket's features
    for (size_t i = 0, end; i < features.size(); i = end) {
        const uint32_t bucket = features[i] >> s;
        for (end = i + 1; end < features.size() && features[end] >> s == bucket;) ++end;
        buckets.resize(first_bucket + bucket + 1, static_cast<uint32_t>(records.size() - first_byte));
        const auto n_weights = [&](size_t f) { return ptr[f + 1] - ptr[f]; };
        order.clear();
        for (size_t f = i; f < end; ++f)
            if (n_weights(f) > 1) order.push_back(f);
        const size_t n_sized = order.size();
        for (size_t f = i; f < end; ++f)
            if (n_weights(f) == 1) order.push_back(f);
        records.push_back(static_cast<uint8_t>(order.size()));
        records.push_back(static_cast<uint8_t>(n_sized));
        for (const size_t f : order) {
            const uint32_t low = features[f] & ((uint32_t{1} << s) - 1);
            records.push_back(static_cast<uint8_t>(low));
            if (s > kByteShift) records.push_back(static_cast<uint8_t>(low >> 8));
        }
        const auto spread = [&](size_t f) { return n_weights(f) > kMostListed; };
        for (const size_t f : std::span(order).first(n_sized))
            records.push_back(static_cast<uint8_t>(n_weights(f) + (spread(f) ? kMapBytes : n_weights(f))));
        for (const size_t f : order) {
            if (spread(f)) {
                uint8_t map[kMapBytes] = {};
                uint8_t of_child[kBlockChildren];
                for (size_t w = ptr[f]; w < ptr[f + 1]; ++w) {
                    map[child[w] / 8] |= static_cast<uint8_t>(1 << (child[w] % 8));
                    of_child[child[w]] = static_cast<uint8_t>(weight[w]);
                }
                records.insert(records.end(), map, map + kMapBytes);
                for (size_t c = 0; c < kBlockChildren; ++c)
                    if (map[c / 8] >> (c % 8) & 1) records.push_back(of_child[c]);
            } else {
                records.insert(records.end(), child.begin() + ptr[f], child.begin() + ptr[f + 1]);
                for (size_t w = ptr[f]; w < ptr[f + 1]; ++w)
                    records.push_back(static_cast<uint8_t>(weight[w]));
            }
        }
    }
    if (records.size() - first_byte > std::numeric_limits<uint32_t>::max())
        throw std::length_error("the weights of 128 classifiers take more than 4 GiB");
    buckets.push_back(static_cast<uint32_t>(records.size() - first_byte));
    shift.push_back(static_cast<uint8_t>(s));
    bucket_ptr.push_back(static_cast<int64_t>(buckets.size()));
    record_ptr.push_back(static_cast<int64_t>(records.size()));
}

}  // namespace bonsai

#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
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

// Twice as many buckets make look-ups faster and the block larger.
unsigned shift_for(std::span<const uint32_t> features) {
    constexpr size_t per_bucket = 8;
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

Forest::Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels, bool bare)
    : a_(arrays), n_features_(n_features), n_labels_(n_labels), bare_(bare) {
    check_structure();
    if (!is_one_leaf()) return;
    place_.assign(n_labels, kNowhere);
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
                        (bare_ && a_.is_leaf[v] ? 0 : (n + kBlockChildren - 1) / kBlockChildren),
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
        require(r.n > 0 && 1 + r.n * low_bytes_ + 2 * r.n_weights == end - begin, "the length of a record");
        for (size_t i = 0; i < r.n; ++i) {
            const size_t f = feature(bucket, r, i);
            require(f >> shift_ == bucket && f < n_features, "a feature out of range");
            require(i == 0 || feature(bucket, r, i - 1) < f, "features out of order");
        }
        size_t ends = 0;
        for (size_t w = 0; w < r.n_weights; ++w) {
            require((r.child[w] & ~kLastWeight) < static_cast<int>(n_children),
                    "a weight of a child out of range");
            ends += r.child[w] >> 7;
        }
        require(ends == r.n && r.child[r.n_weights - 1] & kLastWeight,
                "features and weights that do not fit");
    }
}

void OwnedForest::add_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                            std::span<const uint8_t> child, std::span<const StoredWeight> weight) {
    const unsigned s = shift_for(features);
    const size_t first_bucket = buckets.size(), first_byte = records.size();
    for (size_t i = 0, end; i < features.size(); i = end) {
        const uint32_t bucket = features[i] >> s;
        for (end = i + 1; end < features.size() && features[end] >> s == bucket;) ++end;
        buckets.resize(first_bucket + bucket + 1, static_cast<uint32_t>(records.size() - first_byte));
        records.push_back(static_cast<uint8_t>(end - i));
        for (size_t f = i; f < end; ++f) {
            const uint32_t low = features[f] & ((uint32_t{1} << s) - 1);
            records.push_back(static_cast<uint8_t>(low));
            if (s > kByteShift) records.push_back(static_cast<uint8_t>(low >> 8));
        }
        for (size_t f = i; f < end; ++f) {
            records.insert(records.end(), child.begin() + ptr[f], child.begin() + ptr[f + 1]);
            records.back() |= kLastWeight;
        }
        for (size_t w = ptr[i]; w < ptr[end]; ++w) records.push_back(static_cast<uint8_t>(weight[w]));
    }
    if (records.size() - first_byte > std::numeric_limits<uint32_t>::max())
        throw std::length_error("the weights of 128 classifiers take more than 4 GiB");
    buckets.push_back(static_cast<uint32_t>(records.size() - first_byte));
    shift.push_back(static_cast<uint8_t>(s));
    bucket_ptr.push_back(static_cast<int64_t>(buckets.size()));
    record_ptr.push_back(static_cast<int64_t>(records.size()));
}

}  // namespace bonsai

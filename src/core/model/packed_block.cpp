#include "model/packed_block.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace bonsai {
namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the model is inconsistent: ") + what);
}

// Twice as many buckets would make look-ups faster and the block larger.
unsigned shift_for(std::span<const uint32_t> features) {
    constexpr size_t per_bucket = 10;
    const uint32_t last = features.empty() ? 0 : features.back();
    unsigned s = 0;
    while (s < kMaxShift && last >> s > 0 && ((last >> s) + size_t{1}) * per_bucket > features.size()) ++s;
    // An offset and a record's head for every eight or more cost less than a byte for each of them.
    if (s == kByteShift + 1) s = kByteShift;
    const auto too_full = [&] {
        for (size_t i = kRecordFeatures; i < features.size(); ++i)
            if (features[i] >> s == features[i - kRecordFeatures] >> s) return true;
        return false;
    };
    while (too_full()) --s;  // terminates: this many features differ in more than seven bits
    return s;
}

// The number of bytes for n weights of a feature, as a list or a bitmap.
size_t encoded_size(size_t n) {
    return n + (n > kMaxListed ? kBitmapBytes : n);
}

// Writes the weights of one feature; returns the end.
uint8_t* encode_weights(std::span<const uint8_t> child, std::span<const StoredWeight> weight, uint8_t* out) {
    if (child.size() <= kMaxListed) {
        out = std::copy(child.begin(), child.end(), out);
        for (const StoredWeight w : weight) *out++ = static_cast<uint8_t>(w);
        return out;
    }
    uint8_t bitmap[kBitmapBytes] = {}, of_child[kBlockChildren];
    for (size_t w = 0; w < child.size(); ++w) {
        bitmap[child[w] / 8] |= static_cast<uint8_t>(1 << (child[w] % 8));
        of_child[child[w]] = static_cast<uint8_t>(weight[w]);
    }
    out = std::copy(bitmap, bitmap + kBitmapBytes, out);
    for (size_t c = 0; c < kBlockChildren; ++c)
        if (bitmap[c / 8] >> (c % 8) & 1) *out++ = of_child[c];
    return out;
}

// Checks the weights of one feature against docs/internals/format.md.
void verify_weights(const FeatureWeights& weights, bool has_size, size_t n_children) {
    size_t n = weights.n();
    if (weights.is_bitmap()) {
        size_t n_bits = 0;
        for (size_t i = 0; i < kBitmapBytes; ++i)
            n_bits += static_cast<size_t>(std::popcount(weights.bytes[i]));
        require(n == n_bits && n > kMaxListed, "the bitmap of a feature's weights");
    } else {
        require(weights.size % 2 == 0 && n > (has_size ? 1 : 0), "the number of a feature's weights");
        bool inside = true;
        for (size_t w = 0; w < n; ++w) inside &= weights.bytes[w] < n_children;
        require(inside, "a weight of a child out of range");
    }
    static_assert(kBlockChildren == 128);
    uint64_t seen[2] = {};
    bool inside = true, once = true, in_range = true;
    weights.for_each([&](size_t child, StoredWeight weight) {
        const uint64_t bit = uint64_t{1} << child % 64;
        inside &= child < n_children;
        once &= !(seen[child / 64] & bit);
        in_range &= weight != 0 && weight >= -kWeightMax;
        seen[child / 64] |= bit;
        --n;
    });
    require(inside, "a weight of a child out of range");
    require(once, "two weights of a feature for one child");
    require(in_range, "a weight of 0 or -128");
    require(n == 0, "the number of a feature's weights");
}

}  // namespace

void PackedBlock::verify(size_t n_features, size_t n_children) const {
    require(offsets_[0] == 0 && offsets_[n_buckets_] == records_.size(), "buckets");
    require(std::is_sorted(offsets_, offsets_ + n_buckets_ + 1), "buckets");
    std::vector<size_t> features;
    for (size_t bucket = 0; bucket < n_buckets_; ++bucket) {
        const size_t begin = offsets_[bucket], end = offsets_[bucket + 1];
        if (begin == end) continue;
        const Record r = record(begin, end);
        require(r.n > 0, "the length of a record");
        features.clear();
        Features all(*this, bucket, r);
        while (all.next()) {
            const size_t feature = all.feature();
            require(feature >> shift_ == bucket && feature < n_features, "a feature out of range");
            require(features.empty() || features.size() == r.n_sized || features.back() < feature,
                    "features out of order");
            verify_weights(all.weights(), all.has_size(), n_children);
            features.push_back(feature);
        }
        require(all.complete(), "the length of a record");
        // Each of the two parts is ascending: a repeated feature is in both.
        for (size_t a = 0, b = r.n_sized; a < r.n_sized && b < features.size();) {
            require(features[a] != features[b], "a feature twice");
            ++(features[a] < features[b] ? a : b);
        }
    }
}

unsigned encode_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                      std::span<const uint8_t> child, std::span<const StoredWeight> weight,
                      UninitialisedVector<uint32_t>& offsets, UninitialisedVector<uint8_t>& records) {
    const unsigned shift = shift_for(features);
    const size_t first_bucket = offsets.size(), first_byte = records.size();
    const auto n_weights = [&](size_t f) { return ptr[f + 1] - ptr[f]; };
    size_t size = 0;
    for (size_t f = 0; f < features.size(); ++f) {
        if (f == 0 || features[f] >> shift != features[f - 1] >> shift) size += 2;  // the head of a record
        size += (shift > kByteShift ? 2 : 1) + (n_weights(f) > 1) + encoded_size(n_weights(f));
    }
    if (size > std::numeric_limits<uint32_t>::max())
        throw std::length_error("the weights of 128 classifiers take more than 4 GiB");
    records.resize(first_byte + size);
    uint8_t* const begin = records.data() + first_byte;
    uint8_t* out = begin;
    std::vector<size_t> order;  // features of one bucket: those with several weights first
    for (size_t i = 0, end; i < features.size(); i = end) {
        const uint32_t bucket = features[i] >> shift;
        for (end = i + 1; end < features.size() && features[end] >> shift == bucket;) ++end;
        offsets.resize(first_bucket + bucket + 1, static_cast<uint32_t>(out - begin));
        order.clear();
        for (size_t f = i; f < end; ++f)
            if (n_weights(f) > 1) order.push_back(f);
        const size_t n_sized = order.size();
        for (size_t f = i; f < end; ++f)
            if (n_weights(f) == 1) order.push_back(f);
        *out++ = static_cast<uint8_t>(order.size());
        *out++ = static_cast<uint8_t>(n_sized);
        for (const size_t f : order) {
            const uint32_t low = features[f] & ((uint32_t{1} << shift) - 1);
            *out++ = static_cast<uint8_t>(low);
            if (shift > kByteShift) *out++ = static_cast<uint8_t>(low >> 8);
        }
        for (const size_t f : std::span(order).first(n_sized))
            *out++ = static_cast<uint8_t>(encoded_size(n_weights(f)));
        for (const size_t f : order)
            out = encode_weights(child.subspan(ptr[f], n_weights(f)), weight.subspan(ptr[f], n_weights(f)),
                                 out);
    }
    offsets.push_back(static_cast<uint32_t>(size));
    return shift;
}

}  // namespace bonsai

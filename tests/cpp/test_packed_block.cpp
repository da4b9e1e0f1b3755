#include "model/packed_block.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "check.hpp"
#include "forests.hpp"

using namespace bonsai;
using namespace forests;

namespace {

// The offsets of the parts of a record, and the number of its bucket.
struct Place {
    size_t bucket, begin, low, size, weights, end;
};
// The first record whose lower bits take `width` bytes, with at least two sized features and one without a
// size, and whose first feature has a bitmap or not, as requested.
Place first_record(const OwnedForest& f, size_t low_bytes, bool bitmap) {
    for (size_t block = 0; block < f.shift.size(); ++block) {
        if ((f.shift[block] <= kByteShift ? 1 : 2) != low_bytes) continue;
        for (auto b = static_cast<size_t>(f.bucket_ptr[block]);
             b + 1 < static_cast<size_t>(f.bucket_ptr[block + 1]); ++b) {
            const size_t begin = static_cast<size_t>(f.record_ptr[block]) + f.buckets[b];
            const size_t end = begin + f.buckets[b + 1] - f.buckets[b];
            if (begin == end || f.records[begin + 1] < 2 || f.records[begin] == f.records[begin + 1])
                continue;
            const size_t size = begin + 2 + f.records[begin] * low_bytes;
            if ((f.records[size] > 2 * kMaxListed) != bitmap) continue;
            return {b, begin, begin + 2, size, size + f.records[begin + 1], end};
        }
    }
    throw std::logic_error("no such record");
}

void verify(const OwnedForest& f) {
    Forest(f.arrays(), kFeatures, kLabels).verify();
}

// Damage that the constructor does not check: prediction tolerates it, and `verify` finds it.
constexpr size_t kNarrow = 1, kWide = 2;  // bytes of lower bits
template <class Change>
void refuses(size_t low_bytes, bool bitmap, Change&& change, const char* why) {
    OwnedForest forest = make_forest(1);
    verify(forest);
    change(forest, first_record(forest, low_bytes, bitmap));
    CHECK_THROWS(verify(forest), why);
}
template <class Change>
void always_refuses(Change&& change, const char* why) {
    for (const size_t low_bytes : {kNarrow, kWide})
        for (const bool bitmap : {false, true}) refuses(low_bytes, bitmap, change, why);
}

void test_damaged_features() {
    using Arrays = OwnedForest;
    const char *order = "features out of order", *range = "a feature out of range";
    refuses(
        kNarrow, false, [](Arrays& f, Place p) { std::swap(f.records[p.low], f.records[p.low + 1]); }, order);
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.low + 1] = f.records[p.low]; }, order);
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.low] = 0xff; }, range);
    // the same feature with a size and without
    refuses(
        kNarrow, false,
        [](Arrays& f, Place p) { f.records[p.low + f.records[p.begin + 1]] = f.records[p.low]; },
        "a feature twice");
    refuses(
        kWide, false,
        [](Arrays& f, Place p) {
            std::swap_ranges(&f.records[p.low], &f.records[p.low + 2], &f.records[p.low + 2]);
        },
        order);
    refuses(
        kWide, false, [](Arrays& f, Place p) { std::copy_n(&f.records[p.low], 2, &f.records[p.low + 2]); },
        order);
    refuses(kWide, false, [](Arrays& f, Place p) { f.records[p.low + 1] = 0xff; }, range);
    CHECK_THROWS(Forest(make_forest(1).arrays(), kFeatures / 2, kLabels).verify(), range);
}

void test_damaged_records() {
    using Arrays = OwnedForest;
    const char* length = "the length of a record";
    always_refuses([](Arrays& f, Place p) { f.records[p.begin] = 0; }, length);
    always_refuses([](Arrays& f, Place p) { f.records[p.begin + 1] = 255; }, length);
    refuses(
        kNarrow, false, [](Arrays& f, Place p) { f.buckets[p.bucket + 1] = f.buckets[p.bucket] + 1; },
        length);
    always_refuses([](Arrays& f, Place p) { f.records[p.size] = 255; }, "the model is inconsistent");
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.size] -= 2; }, "the model is inconsistent");

    always_refuses([](Arrays& f, Place p) { f.buckets[p.bucket + 1] = 0xffffffff; }, "buckets");
    refuses(kNarrow, false, [](Arrays& f, Place) { f.buckets[0] = 1; }, "buckets");
    refuses(kNarrow, false, [](Arrays& f, Place) { f.buckets[1] = f.buckets[2] + 1; }, "buckets");
    refuses(kNarrow, false, [](Arrays& f, Place) { f.buckets.back() -= 1; }, "buckets");
    refuses(kNarrow, false, [](Arrays& f, Place) { f.buckets.back() += 1; }, "buckets");
}

void test_damaged_weights() {
    using Arrays = OwnedForest;
    const char *child = "a weight of a child out of range", *number = "the number of a feature's weights";
    const char *bitmap = "the bitmap of a feature's weights", *zero = "a weight of 0 or -128";
    always_refuses([](Arrays& f, Place p) { f.records[p.end - 2] = 128; }, child);
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.weights] = 128; }, child);
    refuses(
        kNarrow, false, [](Arrays& f, Place p) { f.records[p.weights + 1] = f.records[p.weights]; },
        "two weights of a feature for one child");
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.size] = 0; }, number);
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.size] = 2; }, number);
    refuses(kNarrow, false, [](Arrays& f, Place p) { f.records[p.size] |= 1; }, number);
    refuses(kNarrow, true, [](Arrays& f, Place p) { f.records[p.weights] ^= 0xff; }, bitmap);
    refuses(kNarrow, true, [](Arrays& f, Place p) { f.records[p.size] = kBitmapBytes + kMaxListed; }, bitmap);
    // the last weight: that of a feature that has no other
    always_refuses([](Arrays& f, Place p) { f.records[p.end - 1] = 0x80; }, zero);
    always_refuses([](Arrays& f, Place p) { f.records[p.end - 1] = 0; }, zero);
    for (const uint8_t weight : {0x80, 0}) {
        refuses(
            kNarrow, false,
            [&](Arrays& f, Place p) { f.records[p.weights + f.records[p.size] - 1] = weight; }, zero);
        refuses(
            kNarrow, true, [&](Arrays& f, Place p) { f.records[p.weights + f.records[p.size] - 1] = weight; },
            zero);
    }
}

// Looking up single features and visiting all of them return the input. Returns the block's shift.
unsigned test_block(const std::vector<uint32_t>& features, size_t n_features) {
    const OwnedForest f = with_block(features);
    const Forest model(f.arrays(), std::max(n_features, kFeatures), kLabels);
    model.verify();
    const PackedBlock block = model.block(f.shift.size() - 1);
    std::vector<size_t> listed;
    bool good = true;
    block.for_each_feature([&](size_t feature, const FeatureWeights& weights) {
        listed.push_back(feature);
        const FeatureWeights found = block.find(static_cast<uint32_t>(feature));
        good &= found.bytes == weights.bytes && found.size == weights.size;
        const size_t n = n_weights(feature);
        good &= weights.n() == n && weights.is_bitmap() == (n > kMaxListed);
        size_t w = 0;
        weights.for_each([&](size_t child, StoredWeight weight) {
            good &= child == ++w * kBlockChildren / n - 1;
            good &= weight == weight_of(feature);
        });
        good &= w == n;
    });
    CHECK(good);
    std::sort(listed.begin(), listed.end());
    CHECK(std::equal(listed.begin(), listed.end(), features.begin(), features.end()));
    for (uint32_t feature = 0; feature < std::min<size_t>(n_features, 5000); ++feature)
        good &=
            (block.find(feature).size > 0) == std::binary_search(features.begin(), features.end(), feature);
    good &= block.find(static_cast<uint32_t>(n_features)).size == 0;
    good &= block.find(std::numeric_limits<uint32_t>::max()).size == 0;
    CHECK(good);
    return f.shift.back();
}

void test_lookup(size_t n_features, size_t n_used) {
    Rng rng(n_features + n_used);
    std::vector<uint32_t> features = rng.sample(n_features, n_used);
    std::sort(features.begin(), features.end());
    test_block(features, n_features);
}

// A record holds at most 255 features: if many features are close together, buckets are narrower than the
// number of features requires.
void test_crowded_buckets() {
    const auto crowd = [](uint32_t n) {
        std::vector<uint32_t> features(n);
        for (uint32_t f = 0; f < n; ++f) features[f] = f;
        features.push_back(1000000);
        return test_block(features, 1000001);
    };
    const unsigned roomy = crowd(255);
    CHECK(roomy > kByteShift);
    CHECK(crowd(256) == 7 && crowd(300) == 7 && crowd(1000) == 7);
}

}  // namespace

int main() {
    test_damaged_features();
    test_damaged_records();
    test_damaged_weights();
    for (const size_t n_features : {1u, 2u, 255u, 256u, 257u, 3000u, 70000u, 1500000u})
        for (const size_t n_used : {0u, 1u, 7u, 200u, 2900u, 20000u})
            if (n_used <= n_features) test_lookup(n_features, n_used);
    test_crowded_buckets();
    return check::report("packed_block");
}

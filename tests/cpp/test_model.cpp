#include "model/forest.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>

#include "base/random.hpp"
#include "check.hpp"
#include "kernels/kernels.hpp"
#include "model/model.hpp"
#include "predict/predict.hpp"

using namespace bonsai;

namespace {

constexpr size_t kFeatures = 3000;
constexpr size_t kLabels = 700;

// A copy's vectors are exactly as large as their contents, so that a sanitizer sees the first byte beyond.
void add_block(OwnedForest& f, size_t n_children, size_t n_used, Rng& rng) {
    std::vector<uint32_t> features = rng.sample(kFeatures, n_used), ptr = {0};
    std::sort(features.begin(), features.end());
    std::vector<uint8_t> child;
    std::vector<StoredWeight> weight;
    for (size_t i = 0; i < n_used; ++i) {
        // One weight, a few, or so many that they are spread, where there are children for them.
        const size_t kind = rng.below(3), step = kind == 0 ? n_children : kind == 1 ? 40 : 4;
        size_t c = rng.below(kind == 0 ? n_children : std::min(n_children, step));
        do {
            child.push_back(static_cast<uint8_t>(c));
            weight.push_back(static_cast<StoredWeight>(static_cast<int>(rng.below(255)) - 127));
            c += 1 + rng.below(step);
        } while (kind > 0 && c < n_children);
        ptr.push_back(static_cast<uint32_t>(child.size()));
    }
    f.add_block(features, ptr, child, weight);
}

void add_node(OwnedForest& f, const std::vector<int32_t>& children, bool leaf, Rng& rng) {
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
OwnedForest make_forest(uint64_t key) {
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

// Constructed, verified and used to predict; throws what these throw.
void use(const OwnedForest& forest, bool verify = true) {
    const OwnedForest exact = forest;
    const Forest model(exact.arrays(), kFeatures, kLabels);
    if (verify) model.verify();
}

template <class Change>
OwnedForest changed(Change&& change) {
    OwnedForest forest = make_forest(1);
    change(forest);
    return forest;
}

#define REFUSES(statement, why) \
    CHECK_THROWS(use(changed([](OwnedForest& f) { statement; }), false), "the model is inconsistent: " why)

void test_structure() {
    use(make_forest(1));
    REFUSES(f.tree_ptr.clear(), "it has no tree");
    REFUSES((f.tree_ptr = {0}), "it has no tree");
    REFUSES((f = {}), "it has no tree");
    REFUSES(f.tree_ptr[0] = 1, "tree_ptr");
    REFUSES(f.tree_ptr[2] = 7, "tree_ptr");
    REFUSES((f.tree_ptr = {0, 5, 3, 6}), "tree_ptr");
    REFUSES((f.tree_ptr = {0, 5, 5, 6}), "a tree without nodes");
    REFUSES(f.child_ptr.pop_back(), "child_ptr");
    REFUSES(f.child_ptr[0] = -1, "child_ptr");
    REFUSES(f.child_ptr[2] = 100000, "child_ptr");
    REFUSES(f.child_ptr[1] = f.child_ptr[2] + 1, "child_ptr");
    REFUSES(f.children.push_back(0), "child_ptr");
    REFUSES(f.block_ptr[2] = -1, "block_ptr");
    REFUSES(f.block_ptr.pop_back(), "block_ptr");
    REFUSES(f.shift.pop_back(), "block_ptr");
    REFUSES(f.record_ptr[1] = std::numeric_limits<int64_t>::max(), "record_ptr");
    REFUSES(f.record_ptr[1] = -1, "record_ptr");
    REFUSES(f.record_ptr[0] = 1, "record_ptr");
    REFUSES(f.records.pop_back(), "record_ptr");
    REFUSES(f.records.clear(), "record_ptr");
    REFUSES(f.record_ptr.push_back(f.record_ptr.back()), "record_ptr");
    REFUSES(f.bucket_ptr[3] = 0, "bucket_ptr");
    REFUSES(f.bucket_ptr[3] = f.bucket_ptr[4], "a block without buckets");
    REFUSES(f.buckets.push_back(0), "bucket_ptr");
    REFUSES(f.buckets.clear(), "bucket_ptr");
    REFUSES(f.bias.pop_back(), "bias and scale");
    REFUSES(f.scale.push_back(1), "bias and scale");
    REFUSES(f.shift[0] = 17, "shift");
}

void test_nodes() {
    REFUSES(f.children[0] = 0, "a child out of range");  // a child that is its own parent
    REFUSES(f.children[0] = -1, "a child out of range");
    REFUSES(f.children[1] = 5, "a child out of range");   // a node of the next tree
    REFUSES(f.children[2] = -1, "a child out of range");  // labels
    REFUSES(f.children[2] = kLabels, "a child out of range");
    REFUSES(f.children[0] = 2, "a node with two parents");
    REFUSES(f.children[0] = 4, "a node with two parents");
    REFUSES(f.children[2] = f.children[3], "a label in a tree twice");
    REFUSES(f.block_ptr[4] -= 1, "blocks that do not fit a node's children");
    const char* number = "a bias or scale that is no number";
    REFUSES(f.is_leaf[1] = 0, "a child out of range");
    CHECK_THROWS(use(changed([](OwnedForest& f) { f.bias[7] = NAN; })), number);
    CHECK_THROWS(use(changed([](OwnedForest& f) { f.bias[7] = -INFINITY; })), number);
    CHECK_THROWS(use(changed([](OwnedForest& f) { f.scale[500] = INFINITY; })), number);
    const OwnedForest forest = make_forest(1);
    CHECK_THROWS(Forest(forest.arrays(), kFeatures, kLabels - 1), "a child out of range");
    const Forest model(forest.arrays(), kFeatures, kLabels);
    CHECK(model.n_trees() == 2);
    CHECK(model.n_features() == kFeatures && model.n_labels() == kLabels);
}

// Where the parts of a record stand among all bytes, and its bucket among all.
struct Place {
    size_t bucket, begin, low, size, held, end;
};
// The first record, of those whose lower bits take so many bytes, with two features or more that have a size,
// one that has none, and the first of which is spread, or is not.
Place first_record(const OwnedForest& f, size_t low_bytes, bool spread) {
    for (size_t block = 0; block < f.shift.size(); ++block) {
        if ((f.shift[block] <= kByteShift ? 1 : 2) != low_bytes) continue;
        for (auto b = static_cast<size_t>(f.bucket_ptr[block]);
             b + 1 < static_cast<size_t>(f.bucket_ptr[block + 1]); ++b) {
            const size_t begin = static_cast<size_t>(f.record_ptr[block]) + f.buckets[b];
            const size_t end = begin + f.buckets[b + 1] - f.buckets[b];
            if (begin == end || f.records[begin + 1] < 2 || f.records[begin] == f.records[begin + 1])
                continue;
            const size_t size = begin + 2 + f.records[begin] * low_bytes;
            if ((f.records[size] > 2 * kMostListed) != spread) continue;
            return {b, begin, begin + 2, size, size + f.records[begin + 1], end};
        }
    }
    throw std::logic_error("no such record");
}

// What prediction bears and `verify` finds.
void test_contents() {
    constexpr size_t narrow = 1, wide = 2;  // bytes of lower bits
    const auto refuses = [](size_t low_bytes, auto change, const char* why, bool spread = false) {
        OwnedForest forest = make_forest(1);
        change(forest, first_record(forest, low_bytes, spread));
        use(forest, false);
        CHECK_THROWS(use(forest), why);
    };
    const auto everywhere = [&](auto change, const char* why) {
        for (const size_t low_bytes : {narrow, wide})
            for (const bool spread : {false, true}) refuses(low_bytes, change, why, spread);
    };
    const OwnedForest made = make_forest(1);
    using Arrays = OwnedForest;
    const char *order = "features out of order", *range = "a feature out of range";
    refuses(narrow, [](Arrays& f, Place p) { std::swap(f.records[p.low], f.records[p.low + 1]); }, order);
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.low + 1] = f.records[p.low]; }, order);
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.low] = 0xff; }, range);
    // the same feature with a size and without
    refuses(
        narrow, [](Arrays& f, Place p) { f.records[p.low + f.records[p.begin + 1]] = f.records[p.low]; },
        order);
    refuses(
        wide,
        [](Arrays& f, Place p) {
            std::swap_ranges(&f.records[p.low], &f.records[p.low + 2], &f.records[p.low + 2]);
        },
        order);
    refuses(
        wide, [](Arrays& f, Place p) { std::copy_n(&f.records[p.low], 2, &f.records[p.low + 2]); }, order);
    refuses(wide, [](Arrays& f, Place p) { f.records[p.low + 1] = 0xff; }, range);
    CHECK_THROWS(Forest(made.arrays(), kFeatures / 2, kLabels).verify(), range);

    const char* length = "the length of a record";
    everywhere([](Arrays& f, Place p) { f.records[p.begin] = 0; }, length);
    everywhere([](Arrays& f, Place p) { f.records[p.begin + 1] = 255; }, length);
    refuses(narrow, [](Arrays& f, Place p) { f.buckets[p.bucket + 1] = f.buckets[p.bucket] + 1; }, length);
    everywhere([](Arrays& f, Place p) { f.records[p.size] = 255; }, "the model is inconsistent");
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.size] -= 2; }, "the model is inconsistent");

    const char *child = "a weight of a child out of range", *fit = "features and weights that do not fit";
    everywhere([](Arrays& f, Place p) { f.records[p.end - 2] = 128; }, child);
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.held] = 128; }, child);
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.size] = 0; }, fit);
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.size] |= 1; }, fit);
    refuses(narrow, [](Arrays& f, Place p) { f.records[p.held] ^= 0xff; }, fit, true);

    everywhere([](Arrays& f, Place p) { f.buckets[p.bucket + 1] = 0xffffffff; }, "buckets");
    refuses(narrow, [](Arrays& f, Place) { f.buckets[0] = 1; }, "buckets");
    refuses(narrow, [](Arrays& f, Place) { f.buckets[1] = f.buckets[2] + 1; }, "buckets");
    refuses(narrow, [](Arrays& f, Place) { f.buckets.back() -= 1; }, "buckets");
    refuses(narrow, [](Arrays& f, Place) { f.buckets.back() += 1; }, "buckets");
}

// The weights of a feature of `with_block`: as many as its number says, from one to all.
size_t n_weights(size_t feature) {
    constexpr size_t some[] = {1, 2, 1, 3, 1, 8, 1, 9, 1, 4, 20, 1, 128};
    return some[feature % 13];
}

// A forest whose last block has the given features, each with weights that tell which it is.
OwnedForest with_block(const std::vector<uint32_t>& features) {
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
        weight.resize(child.size(), static_cast<StoredWeight>(static_cast<int>(feature % 200) - 100));
        ptr.push_back(static_cast<uint32_t>(child.size()));
    }
    f.add_block(features, ptr, child, weight);
    f.block_ptr.push_back(static_cast<int64_t>(f.shift.size()));
    return f;
}

// Every way to look a feature up gives what was put in. Returns the block's shift.
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
        good &= weights.n() == n && weights.spread() == (n > kMostListed);
        size_t w = 0;
        weights.for_each([&](size_t child, StoredWeight weight) {
            good &= child == ++w * kBlockChildren / n - 1;
            good &= weight == static_cast<int>(feature % 200) - 100;
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

// A record holds at most 255 features: where they crowd, buckets are narrower than their number asks for.
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

struct Input {
    explicit Input(uint64_t key) {
        Rng rng(key);
        rows = {.n_rows = 40, .n_features = kFeatures};
        rows.ptr.push_back(0);
        for (size_t i = 0; i < rows.n_rows; ++i) {
            const size_t keep = rng.below(kFeatures / 8);  // row 0 has none
            for (size_t f = 0; i > 0 && f < kFeatures; ++f) {
                if (rng.below(kFeatures) >= keep) continue;
                rows.index.push_back(static_cast<int32_t>(f));
                rows.value.push_back(static_cast<float>(rng.uniform() - 0.3));
            }
            rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
        }
    }
    Rows rows;
};

struct Found {
    std::vector<int32_t> ids;
    std::vector<float> scores;
};

// How a test asks a forest by itself.
struct Query {
    Loss loss;
    size_t beam_size;
    size_t k;
    bool normalize;
};

// A model of a forest that the caller keeps.
Model model_of(const Forest& forest, const Query& query) {
    return {std::shared_ptr<const Forest>(std::shared_ptr<void>(), &forest), nullptr, query.loss,
            query.normalize};
}

Found predict(const Forest& forest, const RowsView& rows, const Query& query, unsigned threads = 1) {
    Found found{std::vector<int32_t>(rows.n_rows * query.k, -9),
                std::vector<float>(rows.n_rows * query.k, 9.0f)};
    Control control;
    Pool pool(threads, control);
    const TopKParams params{.k = query.k, .beam_size = query.beam_size, .exact = false, .path_weight = 0};
    top_k(model_of(forest, query), rows, params, kernels(), pool, found.ids.data(), found.scores.data());
    CHECK(control.done == rows.n_rows);
    return found;
}

bool ids_in_range(const Found& found) {
    bool inside = true;
    for (const int32_t id : found.ids) inside &= id >= -1 && id < static_cast<int32_t>(kLabels);
    return inside;
}

void test_prediction() {
    const OwnedForest forest = make_forest(1);
    const Forest model(forest.arrays(), kFeatures, kLabels);
    const Input input(2);
    for (const size_t beam : {0u, 1u, 2u}) {
        const Query query{.loss = Loss::squared_hinge, .beam_size = beam, .k = kLabels, .normalize = true};
        const Found found = predict(model, input.rows.view(), query);
        CHECK(ids_in_range(found));
        CHECK(found.ids[0] == -1 && found.scores[0] == -INFINITY);
        for (size_t i = 1; i < input.rows.n_rows; ++i) {
            if (input.rows.ptr[i] == input.rows.ptr[i + 1]) continue;
            std::vector<int> seen(kLabels, 0);
            size_t n = 0;
            while (n < kLabels && found.ids[i * kLabels + n] >= 0) ++seen[found.ids[i * kLabels + n++]];
            for (size_t l = 600; l < kLabels; ++l)
                CHECK(seen[l] == 1);  // the second tree always reaches them
            CHECK(*std::max_element(seen.begin(), seen.end()) == 1);
            CHECK(beam == 1 ? n < kLabels : n == kLabels);  // no level has more than two nodes
            CHECK(std::is_sorted(found.scores.begin() + static_cast<int64_t>(i * kLabels),
                                 found.scores.begin() + static_cast<int64_t>((i + 1) * kLabels),
                                 std::greater<>()));
        }
        for (const unsigned threads : {2u, 4u}) {
            const Found again = predict(model, input.rows.view(), query, threads);
            CHECK(again.ids == found.ids && again.scores == found.scores);
        }
    }
}

void test_interrupt() {
    const OwnedForest forest = make_forest(1);
    const Forest model(forest.arrays(), kFeatures, kLabels);
    const Input input(2);
    std::vector<int32_t> ids(input.rows.n_rows);
    std::vector<float> scores(input.rows.n_rows);
    Control control;
    Pool pool(2, control);
    control.stop = true;
    const Query query{.loss = Loss::logistic, .beam_size = 1, .k = 1, .normalize = true};
    const TopKParams params{.k = 1, .beam_size = 1, .exact = false, .path_weight = 0};
    CHECK_THROWS(
        top_k(model_of(model, query), input.rows.view(), params, kernels(), pool, ids.data(), scores.data()),
        "interrupted");
}

void predict_every_way(const Forest& model, const Input& input, Rng& rng) {
    const Rows& rows = input.rows;
    for (const Loss loss : {Loss::squared_hinge, Loss::logistic}) {
        const Query query{.loss = loss,
                          .beam_size = rng.below(4),
                          .k = 1 + rng.below(kLabels),
                          .normalize = rng.below(2) == 1};
        CHECK(ids_in_range(predict(model, rows.view(), query)));
        // a single row: features are searched instead of tabled
        RowsView one = rows.view();
        one.n_rows = 1;
        one.ptr += 1 + rng.below(rows.n_rows - 1);
        CHECK(ids_in_range(predict(model, one, query)));
    }
}

template <class T>
void scramble(std::vector<T>& values, Rng& rng) {
    for (T& value : values) {
        const uint64_t word = rng.next();
        switch (rng.below(4)) {
            case 0:
                break;
            case 1:
                value = static_cast<T>(word);
                break;
            case 2:
                value = static_cast<T>(word % 64);
                break;
            default:
                value = std::numeric_limits<T>::max() - static_cast<T>(word % 3);
        }
    }
}

// The constructor does not look at these contents: whatever they are, nothing reads or writes beyond the
// arrays.
void test_garbage_contents() {
    Rng rng(12);
    const Input input(3);
    for (int round = 0; round < 90; ++round) {
        OwnedForest forest = make_forest(rng.next());
        if (round % 3 != 0) scramble(forest.buckets, rng);
        if (round % 3 != 1) scramble(forest.records, rng);
        if (round % 2 != 0)
            for (uint8_t& s : forest.shift) s = static_cast<uint8_t>(rng.below(kMaxShift + 1));
        const OwnedForest exact = forest;
        const Forest model(exact.arrays(), kFeatures, kLabels);
        predict_every_way(model, input, rng);
        for (size_t b = 0; b < exact.shift.size(); ++b) {
            const PackedBlock block = model.block(b);
            size_t n = 0, sum = 0;
            block.for_each_feature([&](size_t, const FeatureWeights& found) {
                ++n;
                found.for_each(
                    [&](size_t child, StoredWeight weight) { sum += child ^ static_cast<uint8_t>(weight); });
            });
            CHECK(n <= block.n_bytes() && sum <= 255 * block.n_bytes());
        }
        CHECK_THROWS(model.verify(), "the model is inconsistent");
    }
}

// A child named eight times by each feature: more than 32 bits hold. What comes out is of no use, but
// defined.
void test_sums_beyond_32_bits() {
    std::vector<uint32_t> features;
    for (uint32_t f = 5; f < kFeatures; f += 13) features.push_back(f);
    CHECK(n_weights(5) == kMostListed);
    OwnedForest forest = with_block(features);
    Forest(forest.arrays(), kFeatures, kLabels)
        .block(forest.shift.size() - 1)
        .for_each_feature([&](size_t, const FeatureWeights& found) {
            uint8_t* bytes = forest.records.data() + (found.bytes - forest.records.data());
            std::fill_n(bytes, kMostListed, uint8_t{0});
            std::fill_n(bytes + kMostListed, kMostListed, uint8_t{kWeightMax});
        });
    Rows rows{.n_rows = 1, .n_features = kFeatures};
    for (const uint32_t f : features) rows.index.push_back(static_cast<int32_t>(f));
    rows.value.assign(features.size(), 1.0f);
    rows.ptr = {0, static_cast<int64_t>(features.size())};
    const Forest model(forest.arrays(), kFeatures, kLabels);
    const Query query{.loss = Loss::squared_hinge, .beam_size = 0, .k = kLabels, .normalize = false};
    CHECK(ids_in_range(predict(model, rows.view(), query)));
}

template <class T>
void hit(std::vector<T>& values, Rng& rng) {
    if (values.empty()) return;
    T& value = values[rng.below(values.size())];
    const uint64_t word = rng.next();
    switch (rng.below(5)) {
        case 0:
            value = static_cast<T>(value + 1);
            break;
        case 1:
            value = static_cast<T>(value - 1);
            break;
        case 2:
            std::memcpy(&value, &word, sizeof value);
            break;
        case 3:
            value = std::numeric_limits<T>::max();
            break;
        default:
            value = std::numeric_limits<T>::lowest();
    }
}

// One number changed anywhere: the constructor refuses, or prediction is safe.
void test_one_number_changed() {
    Rng rng(13);
    const Input input(4);
    int refused = 0, accepted = 0;
    for (int round = 0; round < 600; ++round) {
        OwnedForest f = make_forest(round % 7);
        int number = 0;
        for_each_array(
            [&](const char*, auto& array) {
                if (number++ == round % 12) hit(array, rng);
            },
            f);
        const OwnedForest exact = f;
        try {
            const Forest model(exact.arrays(), kFeatures, kLabels);
            ++accepted;
            predict_every_way(model, input, rng);
            model.verify();
        } catch (const std::invalid_argument&) {
            ++refused;
        }
    }
    CHECK(refused > 100 && accepted > 100);
}

}  // namespace

int main() {
    test_structure();
    test_nodes();
    test_contents();
    for (const size_t n_features : {1u, 2u, 255u, 256u, 257u, 3000u, 70000u, 1500000u})
        for (const size_t n_used : {0u, 1u, 7u, 200u, 2900u, 20000u})
            if (n_used <= n_features) test_lookup(n_features, n_used);
    test_crowded_buckets();
    test_prediction();
    test_interrupt();
    test_garbage_contents();
    test_sums_beyond_32_bits();
    test_one_number_changed();
    return check::report("model");
}

#include "core/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "check.hpp"
#include "core/predict.hpp"
#include "core/random.hpp"

using namespace bonsai;

namespace {

constexpr size_t kFeatures = 3000;
constexpr size_t kLabels = 700;

// A copy's vectors are exactly as large as their contents, so that a sanitizer sees the first byte beyond.
ForestArrays view(const OwnedForest& f) {
    return {.tree_ptr = f.tree_ptr,
            .child_ptr = f.child_ptr,
            .children = f.children,
            .is_leaf = f.is_leaf,
            .bias = f.bias,
            .scale = f.scale,
            .block_ptr = f.block_ptr,
            .weight_ptr = f.weight_ptr,
            .bucket_ptr = f.bucket_ptr,
            .shift = f.shift,
            .low_base = f.low_base,
            .buckets = f.buckets,
            .low8 = f.low8,
            .low16 = f.low16,
            .weights = f.weights,
            .weight_child = f.weight_child};
}

void add_block(OwnedForest& f, size_t n_children, size_t n_used, Rng& rng) {
    f.open_block(n_used, kFeatures);
    std::vector<uint32_t> features = rng.sample(kFeatures, n_used);
    std::sort(features.begin(), features.end());
    for (const uint32_t feature : features) {
        std::vector<StoredWeight> weight;
        std::vector<uint8_t> child;
        for (size_t c = rng.below(n_children); child.empty() || c < n_children; c += 1 + rng.below(40)) {
            child.push_back(static_cast<uint8_t>(c));
            weight.push_back(static_cast<StoredWeight>(static_cast<int>(rng.below(255)) - 127));
        }
        f.add_feature(feature, weight, child);
    }
    f.close_block(kFeatures);
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
        add_block(f, std::min(kBlockChildren, children.size() - first), first == 0 ? 400 : 5, rng);
    f.block_ptr.push_back(static_cast<int64_t>(f.shift.size()));
}

// Two trees. The first: root 0 with children 1 (a leaf above the last level) and 2, whose children are the
// leaves 3 (400 labels: four blocks) and 4 (256: two). The second is one leaf.
OwnedForest make_forest(uint64_t key) {
    Rng rng(key);
    OwnedForest f;
    f.tree_ptr = f.child_ptr = f.block_ptr = f.weight_ptr = f.bucket_ptr = {0};
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
    const Forest model(view(exact), kFeatures, kLabels);
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
    REFUSES(f.weight_ptr[1] = std::numeric_limits<int64_t>::max(), "weight_ptr");
    REFUSES(f.weights.pop_back(), "weight_ptr");
    REFUSES(f.weight_ptr.push_back(f.weight_ptr.back()), "weight_ptr");
    REFUSES(f.bucket_ptr[3] = 0, "bucket_ptr");
    REFUSES(f.bucket_ptr[3] = f.bucket_ptr[4], "a block without buckets");
    REFUSES(f.buckets.push_back(0), "buckets");
    REFUSES(f.buckets.clear(), "bucket_ptr");
    REFUSES(f.weight_child.push_back(0), "buckets and weight_child");
    REFUSES(f.bias.pop_back(), "bias and scale");
    REFUSES(f.scale.push_back(1), "bias and scale");
    REFUSES(f.low_base.pop_back(), "low_base");
    REFUSES(f.low_base[3] = -1, "low_base");
    REFUSES(f.low_base[0] = static_cast<int64_t>(f.low8.size()), "low_base");
    REFUSES(f.low_base[0] = std::numeric_limits<int64_t>::max(), "low_base");
    REFUSES(f.low8.pop_back(), "low_base");
    REFUSES(f.low16.pop_back(), "low_base");
    REFUSES(f.shift[0] = 17, "shift");
    REFUSES(f.shift[0] = 16, "low_base");  // the lower bits would be looked for among those of two bytes
    REFUSES(f.buckets[2 * f.bucket_ptr[1] - 2] = 0xffffffff, "low_base");  // features of the first block
}

void test_nodes() {
    REFUSES(f.children[0] = 0, "a child out of range");  // a child that is its own parent
    REFUSES(f.children[0] = -1, "a child out of range");
    REFUSES(f.children[1] = 5, "a child out of range");   // a node of the next tree
    REFUSES(f.children[2] = -1, "a child out of range");  // labels
    REFUSES(f.children[2] = kLabels, "a child out of range");
    REFUSES(f.children[0] = 2, "a node with two parents");
    REFUSES(f.children[0] = 4, "a node with two parents");
    REFUSES(f.block_ptr[4] -= 1, "blocks that do not fit a node's children");
    const char* number = "a bias or scale that is no number";
    REFUSES(f.is_leaf[1] = 0, "a child out of range");
    CHECK_THROWS(use(changed([](OwnedForest& f) { f.bias[7] = NAN; })), number);
    CHECK_THROWS(use(changed([](OwnedForest& f) { f.bias[7] = -INFINITY; })), number);
    CHECK_THROWS(use(changed([](OwnedForest& f) { f.scale[500] = INFINITY; })), number);
    const OwnedForest forest = make_forest(1);
    CHECK_THROWS(Forest(view(forest), kFeatures, kLabels - 1), "a child out of range");
    const Forest model(view(forest), kFeatures, kLabels);
    CHECK(model.n_trees() == 2);
    CHECK(model.n_features() == kFeatures && model.n_labels() == kLabels);
}

// Among the last block's weights, the end of the first feature that has more than one.
size_t first_end(const OwnedForest& f) {
    for (auto w = static_cast<size_t>(f.weight_ptr[f.shift.size() - 1]);; ++w)
        if (!(f.weight_child[w] & kLastWeight) && f.weight_child[w + 1] & kLastWeight) return w + 1;
}

// What prediction bears and `verify` finds.
void test_contents() {
    const auto refuses = [](auto change, const char* why) {
        const OwnedForest forest = changed(change);
        use(forest, false);
        CHECK_THROWS(use(forest), why);
    };
    refuses([](OwnedForest& f) { std::swap(f.low8[0], f.low8[1]); }, "features out of order");
    refuses([](OwnedForest& f) { f.low8[1] = f.low8[0]; }, "features out of order");
    refuses([](OwnedForest& f) { f.low16.back() = 0xffff; }, "a feature out of range");
    refuses([](OwnedForest& f) { f.weight_child[0] = 2; }, "a weight of a child out of range");
    refuses([](OwnedForest& f) { f.weight_child.back() &= 0x7f; }, "a feature without an end");
    refuses([](OwnedForest& f) { f.buckets[0] = 1; }, "buckets");
    refuses([](OwnedForest& f) { f.buckets[1] = 1; }, "buckets");
    refuses([](OwnedForest& f) { f.buckets[3] += 1; }, "buckets");
    refuses([](OwnedForest& f) { f.buckets.back() -= 1; }, "buckets");
    // one end fewer, or one more, among the last block's weights than it has features
    refuses([](OwnedForest& f) { f.weight_child[first_end(f)] ^= kLastWeight; }, "buckets");
    refuses([](OwnedForest& f) { f.weight_child[first_end(f) - 1] ^= kLastWeight; }, "buckets");
}

constexpr uint8_t kThreeChildren[] = {0, 1, 2};

// A forest whose last block has the given features, each with one to three weights that tell which it is.
OwnedForest with_block(const std::vector<uint32_t>& features, size_t n_features) {
    OwnedForest f = make_forest(1);
    f.tree_ptr.push_back(7);
    f.children.insert(f.children.end(), {3, 4, 5});
    f.child_ptr.push_back(static_cast<int64_t>(f.children.size()));
    f.is_leaf.push_back(1);
    f.bias.resize(f.children.size(), 0.0f);
    f.scale.resize(f.children.size(), 1.0f);
    f.open_block(features.size(), n_features);
    for (const uint32_t feature : features) {
        const std::vector<StoredWeight> weight(1 + feature % 3, static_cast<StoredWeight>(feature % 100 + 1));
        f.add_feature(feature, weight, std::span(kThreeChildren).first(weight.size()));
    }
    f.close_block(n_features);
    f.block_ptr.push_back(static_cast<int64_t>(f.shift.size()));
    return f;
}

// Every way to look a feature up gives what was put in.
void test_lookup(size_t n_features, size_t n_used) {
    Rng rng(n_features + n_used);
    std::vector<uint32_t> features = rng.sample(n_features, n_used);
    std::sort(features.begin(), features.end());
    const OwnedForest f = with_block(features, n_features);
    const size_t block = f.shift.size() - 1;
    const StoredWeight* weights = f.weights.data() + f.weight_ptr[block];
    const Forest model(view(f), std::max(n_features, kFeatures), kLabels);
    model.verify();
    CHECK(model.n_features_of(block) == n_used);
    std::vector<uint32_t> starts, listed;
    model.weight_starts(block, starts);
    bool good = starts.size() == n_used + 1;
    model.for_each_feature(block, [&](size_t i, uint32_t feature) {
        good &= i == listed.size();
        listed.push_back(feature);
        good &= model.find(block, feature) == std::pair<size_t, size_t>(starts[i], starts[i + 1]);
        good &= starts[i + 1] - starts[i] == 1 + feature % 3;
        good &= weights[starts[i]] == static_cast<StoredWeight>(feature % 100 + 1);
    });
    CHECK(good);
    CHECK(listed == features);
    for (uint32_t feature = 0; feature < std::min<size_t>(n_features, 5000); ++feature) {
        const auto [first, end] = model.find(block, feature);
        good &= (first < end) == std::binary_search(features.begin(), features.end(), feature);
    }
    CHECK(good);
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

Found predict(const Forest& model, const RowsView& rows, const PredictParams& params, unsigned threads = 1) {
    Found found{std::vector<int32_t>(rows.n_rows * params.k, -9),
                std::vector<float>(rows.n_rows * params.k, 9.0f)};
    Control control;
    Pool pool(threads, control);
    predict_top_k(model, rows, params, pool, found.ids.data(), found.scores.data());
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
    const Forest model(view(forest), kFeatures, kLabels);
    const Input input(2);
    for (const size_t beam : {0u, 1u, 2u}) {
        const PredictParams params{
            .loss = Loss::squared_hinge, .beam = beam, .k = kLabels, .normalize = true};
        const Found found = predict(model, input.rows.view(), params);
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
            const Found again = predict(model, input.rows.view(), params, threads);
            CHECK(again.ids == found.ids && again.scores == found.scores);
        }
    }
}

void test_interrupt() {
    const OwnedForest forest = make_forest(1);
    const Forest model(view(forest), kFeatures, kLabels);
    const Input input(2);
    std::vector<int32_t> ids(input.rows.n_rows);
    std::vector<float> scores(input.rows.n_rows);
    Control control;
    Pool pool(2, control);
    control.stop = true;
    const PredictParams params{.loss = Loss::logistic, .beam = 1, .k = 1, .normalize = true};
    CHECK_THROWS(predict_top_k(model, input.rows.view(), params, pool, ids.data(), scores.data()),
                 "interrupted");
}

void predict_every_way(const Forest& model, const Input& input, Rng& rng) {
    const Rows& rows = input.rows;
    for (const Loss loss : {Loss::squared_hinge, Loss::logistic}) {
        const PredictParams params{
            .loss = loss, .beam = rng.below(4), .k = 1 + rng.below(kLabels), .normalize = rng.below(2) == 1};
        CHECK(ids_in_range(predict(model, rows.view(), params)));
        // a single row: features are searched instead of tabled
        RowsView one = rows.view();
        one.n_rows = 1;
        one.ptr += 1 + rng.below(rows.n_rows - 1);
        CHECK(ids_in_range(predict(model, one, params)));
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

// The constructor does not look at these contents: whatever they are, prediction stays inside its arrays.
void test_garbage_contents() {
    Rng rng(12);
    const Input input(3);
    for (int round = 0; round < 60; ++round) {
        OwnedForest forest = make_forest(rng.next());
        const OwnedForest before = forest;
        if (round % 5 != 0) scramble(forest.buckets, rng);
        if (round % 5 != 1) scramble(forest.low8, rng);
        if (round % 5 != 2) scramble(forest.low16, rng);
        if (round % 5 != 3) scramble(forest.weight_child, rng);
        if (round % 5 != 4) scramble(forest.weights, rng);
        for (size_t b = 0; b < forest.shift.size(); ++b) {  // each block's number of features is proven
            const auto last = static_cast<size_t>(2 * forest.bucket_ptr[b + 1] - 2);
            forest.buckets[last] = before.buckets[last];
        }
        const OwnedForest exact = forest;
        const Forest model(view(exact), kFeatures, kLabels);
        predict_every_way(model, input, rng);
    }
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
        switch (round % 16) {
            case 0:
                hit(f.tree_ptr, rng);
                break;
            case 1:
                hit(f.child_ptr, rng);
                break;
            case 2:
                hit(f.children, rng);
                break;
            case 3:
                hit(f.is_leaf, rng);
                break;
            case 4:
                hit(f.bias, rng);
                break;
            case 5:
                hit(f.scale, rng);
                break;
            case 6:
                hit(f.block_ptr, rng);
                break;
            case 7:
                hit(f.weight_ptr, rng);
                break;
            case 8:
                hit(f.bucket_ptr, rng);
                break;
            case 9:
                hit(f.shift, rng);
                break;
            case 10:
                hit(f.low_base, rng);
                break;
            case 11:
                hit(f.buckets, rng);
                break;
            case 12:
                hit(f.low8, rng);
                break;
            case 13:
                hit(f.low16, rng);
                break;
            case 14:
                hit(f.weights, rng);
                break;
            default:
                hit(f.weight_child, rng);
        }
        const OwnedForest exact = f;
        try {
            const Forest model(view(exact), kFeatures, kLabels);
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
    test_prediction();
    test_interrupt();
    test_garbage_contents();
    test_one_number_changed();
    return check::report("model");
}

// The label index compared with a plain reference: the contents of its lists, and the blocks found for a row.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/random.hpp"
#include "check.hpp"
#include "search/candidate_search.hpp"

using namespace bonsai;

namespace {

// Plain classifiers: weights by feature.
struct Plain {
    size_t n_features;
    std::vector<std::map<uint32_t, int>> weights;
    std::vector<float> scale, bias;

    void add(const std::map<uint32_t, int>& label, float its_scale, float its_bias) {
        weights.push_back(label);
        scale.push_back(its_scale);
        bias.push_back(its_bias);
    }
    OwnedForest forest() const {
        OwnedForest f;
        const auto n = static_cast<int64_t>(weights.size());
        f.tree_ptr = {0, 1};
        f.child_ptr = {0, n};
        f.is_leaf = {1};
        f.children.resize(weights.size());
        std::iota(f.children.begin(), f.children.end(), 0);
        f.scale = scale;
        f.bias = bias;
        f.bucket_ptr = f.record_ptr = {0};
        for (size_t from = 0; from < weights.size(); from += kBlockChildren) {
            std::map<uint32_t, std::map<uint8_t, int>> by_feature;
            for (size_t c = from; c < std::min(weights.size(), from + kBlockChildren); ++c)
                for (const auto& [feature, w] : weights[c])
                    by_feature[feature][static_cast<uint8_t>(c - from)] = w;
            std::vector<uint32_t> features, ptr = {0};
            std::vector<uint8_t> child;
            std::vector<StoredWeight> weight;
            for (const auto& [feature, children] : by_feature) {
                features.push_back(feature);
                for (const auto& [c, w] : children) {
                    child.push_back(c);
                    weight.push_back(static_cast<StoredWeight>(w));
                }
                ptr.push_back(static_cast<uint32_t>(child.size()));
            }
            f.add_block(features, ptr, child, weight);
        }
        f.block_ptr = {0, static_cast<int64_t>(f.shift.size())};
        return f;
    }
};

// Many labels with few weights, some frequent features, both signs, some labels without weights.
Plain random_labels(size_t n_labels, size_t n_features, uint64_t key, bool same_bias) {
    Rng rng(key);
    Plain plain{n_features, {}, {}, {}};
    for (size_t l = 0; l < n_labels; ++l) {
        std::map<uint32_t, int> label;
        const size_t n = rng.below(30);
        for (size_t i = 0; i < n; ++i) {
            const double u = rng.uniform();
            const int w = 1 + static_cast<int>(rng.below(127));
            label[static_cast<uint32_t>(u * u * static_cast<double>(n_features))] = rng.below(3) ? w : -w;
        }
        const float bias = same_bias && rng.below(50) ? -1.0f : static_cast<float>(rng.uniform() - 1);
        plain.add(label, static_cast<float>(0.002 + 0.02 * rng.uniform()), bias);
    }
    return plain;
}

struct Row {
    std::vector<uint32_t> features;
    std::vector<int16_t> values;
    float unit = 1.0f / 16384;
};

Row random_row(size_t n_features, size_t n, Rng& rng) {
    Row row;
    row.features = rng.sample(n_features, n);
    std::sort(row.features.begin(), row.features.end());
    for (size_t i = 0; i < n; ++i)
        row.values.push_back(
            static_cast<int16_t>((rng.below(4) ? 1 : -1) * static_cast<int>(1 + rng.below(8000))));
    return row;
}

OwnedLabelIndex build(const OwnedForest& f, size_t n_features, unsigned threads = 1) {
    Control control;
    Pool pool(threads, control);
    return build_label_index(Forest(f.arrays(), n_features, f.children.size()), pool);
}

// --- Lists ---

std::vector<std::pair<uint32_t, float>> listed(const LabelIndex& index, size_t list) {
    std::vector<std::pair<uint32_t, float>> all;
    const PostingList postings = index.list(list);
    for (size_t i = 0; i < postings.size(); ++i) {
        const uint32_t p = postings.data()[i];
        all.push_back({p & 0xffffff, index.levels()[p >> 25] * (p >> 24 & 1 ? -1.0f : 1.0f)});
    }
    return all;
}

void test_lists_by_hand() {
    Plain plain{4, {}, {}, {}};
    plain.add({{0, 100}, {2, -20}}, 0.01f, -1.0f);  // 20² is less than a quarter of the squares: dropped
    plain.add({{0, -60}, {2, 60}}, 0.01f, -1.0f);   // both needed for three quarters
    plain.add({{2, 127}}, 0.01f, -0.5f);            // another bias
    plain.add({}, 0.0f, -1.0f);
    const OwnedForest f = plain.forest();
    const OwnedLabelIndex owned = build(f, 4);
    const LabelIndex index(owned.arrays(), 4, 4);
    index.verify();
    const auto near = [](float a, float b) { return std::abs(a - b) <= 0.04f * std::abs(b); };
    const auto first = listed(index, 0);
    CHECK(first.size() == 2 && first[0].first == 0 && near(first[0].second, 1.0f));
    CHECK(first[1].first == 1 && near(first[1].second, -0.6f));
    const auto third = listed(index, 2);
    CHECK(third.size() == 2 && third[0].first == 2 && near(third[0].second, 1.27f));
    CHECK(third[1].first == 1 && near(third[1].second, 0.6f));
    CHECK(listed(index, 1).empty() && listed(index, 3).empty());
    const auto biases = listed(index, 4);
    CHECK(biases.size() == 1 && biases[0].first == 2 && near(biases[0].second, 0.5f));
}

// Each classifier keeps its largest weights, as few as hold three quarters of the squares, ties included.
void test_lists_hold_the_largest_weights() {
    const Plain plain = random_labels(700, 300, 1, true);
    const OwnedForest f = plain.forest();
    const OwnedLabelIndex owned = build(f, 300);
    const LabelIndex index(owned.arrays(), 300, 700);
    index.verify();
    std::vector<std::map<uint32_t, float>> kept(700);
    for (uint32_t list = 0; list < 300; ++list)
        for (const auto& [position, weight] : listed(index, list)) kept[position][list] = weight;
    bool right = true, is_long = false;
    for (size_t l = 0; l < 700; ++l) {
        std::vector<int> sizes;
        for (const auto& [feature, w] : plain.weights[l]) sizes.push_back(std::abs(w));
        std::sort(sizes.rbegin(), sizes.rend());
        double all = 0, part = 0;
        for (const int w : sizes) all += w * w;
        int smallest = 128;
        for (const int w : sizes)
            if (part < 0.75 * all) {
                part += w * w;
                smallest = w;
            }
        for (const auto& [feature, w] : plain.weights[l]) {
            const float weight = static_cast<float>(w) * plain.scale[l];
            const bool found = kept[l].contains(feature);
            right &= found == (std::abs(w) >= smallest);
            if (found) right &= std::abs(kept[l][feature] - weight) <= 0.04f * std::abs(weight);
        }
        right &= kept[l].size() <= plain.weights[l].size();
    }
    CHECK(right);
    for (size_t list = 0; list < 300; ++list) is_long |= !index.list(list).is_short();
    CHECK(is_long);  // otherwise headers are not tested
}

void test_built_the_same_by_any_number_of_threads() {
    const OwnedForest f = random_labels(2000, 500, 2, false).forest();
    const OwnedLabelIndex one = build(f, 500, 1), three = build(f, 500, 3);
    CHECK(one.postings == three.postings && one.list_ptr == three.list_ptr && one.levels == three.levels);
}

// --- Search ---

// The sums of a search without a budget.
std::vector<double> sums(const LabelIndex& index, const Row& row) {
    std::vector<double> all(index.n_positions(), 0.0);
    for (size_t i = 0; i < row.features.size(); ++i)
        for (const auto& [position, weight] : listed(index, row.features[i]))
            all[position] += double{weight} * row.values[i] * row.unit;
    for (const auto& [position, weight] : listed(index, index.n_features())) all[position] += weight;
    return all;
}

double largest_product(const LabelIndex& index, const Row& row) {
    double all = 0;
    for (size_t i = 0; i < row.features.size(); ++i)
        if (const auto list = listed(index, row.features[i]); !list.empty())
            all += std::abs(double{list[0].second} * row.values[i] * row.unit);
    if (const auto biases = listed(index, index.n_features()); !biases.empty())
        all += std::abs(double{biases[0].second});
    return all;
}

void test_blocks_are_those_of_the_largest_sums() {
    for (uint64_t key = 0; key < 20; ++key) {
        const size_t n_labels = key < 4 ? 100 * key + 1 : 3000 + 37 * key;
        const Plain plain = random_labels(n_labels, 400, 10 + key, key % 2 == 0);
        const OwnedForest f = plain.forest();
        const OwnedLabelIndex owned = build(f, 400);
        const LabelIndex index(owned.arrays(), 400, n_labels);
        CandidateSearch search(index);
        const size_t n_blocks = (n_labels + kBlockChildren - 1) / kBlockChildren;
        Rng rng(key);
        for (size_t r = 0; r < 10; ++r) {
            const Row row = random_row(400, 1 + rng.below(60), rng);
            const auto sum = sums(index, row);
            std::vector<double> largest(n_blocks, 0.0);
            for (size_t b = 0; b < n_blocks; ++b) {
                const auto begin = sum.begin() + static_cast<int64_t>(b * kBlockChildren);
                const auto end =
                    sum.begin() + static_cast<int64_t>(std::min(n_labels, (b + 1) * kBlockChildren));
                largest[b] = *std::max_element(begin, end);
                if (n_labels < (b + 1) * kBlockChildren) largest[b] = std::max(largest[b], 0.0);
            }
            const size_t n_probe = 1 + rng.below(n_blocks + 2);
            const auto found = search.find_blocks(row.features, row.values, row.unit, n_probe);
            const std::set<uint32_t> blocks(found.begin(), found.end());
            CHECK(blocks.size() == found.size() && found.size() == std::min(n_probe, n_blocks));
            CHECK(blocks.empty() || *blocks.rbegin() < n_blocks);
            if (search.n_postings() == 0) continue;
            std::vector<double> sorted = largest;
            std::sort(sorted.rbegin(), sorted.rend());
            // each product is rounded down to a 32,000th of the maximum sum
            const double error = 2.0 * static_cast<double>(row.features.size() + 1) *
                                 (largest_product(index, row) / 32000 + 1e-6);
            double least = 1e9;
            for (const uint32_t b : blocks) least = std::min(least, largest[b]);
            if (n_probe * 1280 >= 60 * 1000) CHECK(least >= sorted[found.size() - 1] - error);
        }
    }
}

// A budget selects the largest products first: the only label with large weights is found with a small
// budget.
void test_the_budget_goes_to_the_largest_products() {
    Plain plain{8, {}, {}, {}};
    for (size_t l = 0; l < 40'000; ++l) {
        std::map<uint32_t, int> label;
        for (uint32_t feature = 0; feature < 8; ++feature) label[feature] = 100;
        plain.add(label, l == 12'345 ? 0.01f : 0.001f, -1.0f);
    }
    const OwnedForest f = plain.forest();
    const OwnedLabelIndex owned = build(f, 8);
    const LabelIndex index(owned.arrays(), 8, 40'000);
    CandidateSearch search(index);
    Row row;
    for (uint32_t feature = 0; feature < 8; ++feature) {
        row.features.push_back(feature);
        row.values.push_back(5000);
    }
    const auto found = search.find_blocks(row.features, row.values, row.unit, 1);
    CHECK(found.size() == 1 && found[0] == 12'345 / kBlockChildren);
    CHECK(search.n_postings() == 8);
    // the next row begins with sums of zero
    row.features = {3};
    row.values = {-5000};
    const auto next = search.find_blocks(row.features, row.values, row.unit, 313);
    CHECK(next.size() == 313 && search.n_postings() == 40'000);
}

void test_rows_that_meet_nothing() {
    const OwnedForest f = random_labels(1000, 50, 3, true).forest();
    const OwnedLabelIndex owned = build(f, 60);
    const LabelIndex index(owned.arrays(), 60, 1000);
    CandidateSearch search(index);
    const auto none = search.find_blocks({}, {}, 0.0f, 3);
    CHECK(none.size() == 3);
    const Row unknown{{55, 59}, {100, 200}};
    CHECK(search.find_blocks(unknown.features, unknown.values, unknown.unit, 100).size() == 8);
    const OwnedForest nothing = Plain{5, {{}}, {0.0f}, {-1.0f}}.forest();
    const OwnedLabelIndex empty = build(nothing, 5);
    const LabelIndex empty_index(empty.arrays(), 5, 1);
    CandidateSearch empty_search(empty_index);
    CHECK(empty_search
              .find_blocks(unknown.features.size() ? std::vector<uint32_t>{2} : unknown.features,
                           std::vector<int16_t>{7}, 1.0f, 2)
              .size() == 1);
}

// An index of hashed features: lists for features that occur, and the same blocks.
void test_lists_of_the_features_that_occur() {
    constexpr uint32_t n_features = (uint32_t{1} << 31) - 1, step = n_features / 50;
    const Plain plain = random_labels(1000, 50, 3, true);
    Plain hashed{n_features, {}, plain.scale, plain.bias};
    for (const auto& label : plain.weights) {
        hashed.weights.emplace_back();
        for (const auto& [feature, w] : label) hashed.weights.back()[feature * step] = w;
    }
    const OwnedForest f = plain.forest(), g = hashed.forest();
    const OwnedLabelIndex one = build(f, 50), other = build(g, n_features);
    CHECK(one.features.empty() && other.features.size() <= 50 && !other.features.empty());
    CHECK(one.postings == other.postings && one.levels == other.levels);
    const LabelIndex index(one.arrays(), 50, 1000), sparse(other.arrays(), n_features, 1000);
    sparse.verify();
    CHECK(sparse.list(1).size() == 0 && sparse.list(n_features - 1).size() == 0);
    CandidateSearch search(index), in_sparse(sparse);
    Rng rng(4);
    for (size_t r = 0; r < 20; ++r) {
        Row row = random_row(50, 12, rng);
        const auto blocks = search.find_blocks(row.features, row.values, row.unit, 3);
        const std::vector<uint32_t> expected(blocks.begin(), blocks.end());
        for (uint32_t& feature : row.features) feature *= step;
        CHECK(std::ranges::equal(in_sparse.find_blocks(row.features, row.values, row.unit, 3), expected));
    }
    const auto with = [&](auto&& change) {
        OwnedLabelIndex bad = other;
        change(bad);
        LabelIndex(bad.arrays(), n_features, 1000);
    };
    CHECK_THROWS(with([](auto& i) { i.features.back() = n_features; }), "features that do not ascend");
    CHECK_THROWS(with([](auto& i) { i.features[1] = i.features[0]; }), "features that do not ascend");
    CHECK_THROWS(with([](auto& i) { i.features.clear(); }), "a list_ptr of a wrong length");
}

// Finite scales times weights can exceed the largest float; levels stay finite, and no product is lost.
void test_scales_near_the_largest_float() {
    Plain plain{4, {}, {}, {}};
    plain.add({{0, 100}, {2, -20}}, 3e38f, -1.0f);
    plain.add({{0, -60}, {2, 60}}, 3e38f, 3e38f);
    plain.add({{1, 60}}, 1.0f, -3e38f);
    const OwnedForest f = plain.forest();
    const OwnedLabelIndex owned = build(f, 4);
    for (const float level : owned.levels) CHECK(std::isfinite(level));
    const LabelIndex index(owned.arrays(), 4, 3);
    index.verify();
    CandidateSearch search(index);
    const Row row{{0, 1, 2}, {32767, 32767, -32767}};
    CHECK(search.find_blocks(row.features, row.values, 1e34f, 2).size() == 1);
}

// --- What does not fit ---

void test_errors() {
    const OwnedForest f = random_labels(300, 80, 4, true).forest();
    const OwnedLabelIndex good = build(f, 80);
    const auto with = [&](auto&& change) {
        OwnedLabelIndex bad = good;
        change(bad);
        LabelIndex(bad.arrays(), 80, 300).verify();
    };
    with([](OwnedLabelIndex&) {});
    CHECK_THROWS(with([](auto& i) { i.list_ptr.pop_back(); }), "a list_ptr of a wrong length");
    CHECK_THROWS(with([](auto& i) { i.postings.push_back(0); }),
                 "a list_ptr that does not span the postings");
    CHECK_THROWS(with([](auto& i) { i.list_ptr[0] = 1; }), "a list_ptr that does not span the postings");
    CHECK_THROWS(with([](auto& i) { i.list_ptr[3] = i.list_ptr[2] - 1; }), "a list_ptr that descends");
    CHECK_THROWS(with([](auto& i) { i.levels.pop_back(); }), "levels of a wrong length");
    CHECK_THROWS(with([](auto& i) { i.levels[5] = NAN; }), "levels that are not descending magnitudes");
    CHECK_THROWS(with([](auto& i) { i.levels[5] = i.levels[4] * 2; }),
                 "levels that are not descending magnitudes");
    CHECK_THROWS(with([](auto& i) { i.postings.back() |= 0xffffff; }), "a position out of range");
    CHECK_THROWS(with([](auto& i) {
                     const size_t list = i.list_ptr.size() - 2;
                     std::swap(i.postings[i.list_ptr[list]], i.postings[i.list_ptr[list] + 1]);
                 }),
                 "postings that do not ascend");
    CHECK_THROWS(LabelIndex(good.arrays(), 80, kMaxPositions + 1), "more classifiers than there can be");
    const auto with_header = [&] {
        const OwnedForest many = random_labels(3000, 20, 5, true).forest();
        OwnedLabelIndex bad = build(many, 20);
        LabelIndex(bad.arrays(), 20, 3000).verify();
        --bad.postings[kGroups - 1];
        LabelIndex(bad.arrays(), 20, 3000).verify();
    };
    CHECK_THROWS(with_header(), "a header that does not fit its postings");
}

// For any words, no access is out of bounds (checked by sanitizers), and blocks are in range.
void test_damaged_words() {
    const OwnedForest f = random_labels(3000, 60, 6, false).forest();
    const OwnedLabelIndex good = build(f, 60);
    for (uint64_t key = 0; key < 50; ++key) {
        Rng rng(key);
        OwnedLabelIndex bad = good;
        for (uint32_t& word : bad.postings)
            if (rng.below(key + 1) == 0) word = static_cast<uint32_t>(rng.next());
        const LabelIndex index(bad.arrays(), 60, 3000);
        CandidateSearch search(index);
        bool in_range = true;
        for (size_t r = 0; r < 5; ++r) {
            const Row row = random_row(60, 30, rng);
            for (const uint32_t b : search.find_blocks(row.features, row.values, row.unit, 1 + rng.below(30)))
                in_range &= b < 24;
        }
        CHECK(in_range);
    }
}

}  // namespace

int main() {
    test_lists_by_hand();
    test_lists_hold_the_largest_weights();
    test_built_the_same_by_any_number_of_threads();
    test_blocks_are_those_of_the_largest_sums();
    test_the_budget_goes_to_the_largest_products();
    test_rows_that_meet_nothing();
    test_lists_of_the_features_that_occur();
    test_scales_near_the_largest_float();
    test_errors();
    test_damaged_words();
    return check::report("search");
}

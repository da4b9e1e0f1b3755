// Prediction with damaged model files: it stays within bounds for any bytes.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>

#include "check.hpp"
#include "forests.hpp"
#include "kernels/kernels.hpp"
#include "predict/model.hpp"
#include "predict/reasons.hpp"
#include "predict/top_k.hpp"

using namespace bonsai;
using namespace forests;

namespace {

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

// Reads a forest without a model.
struct Query {
    Loss loss;
    size_t beam_size;
    size_t k;
    bool normalize;
    bool strict_beam = false;
};

// A model of a forest that the caller keeps alive.
Model model_of(const Forest& forest, const Query& query) {
    return {std::shared_ptr<const Forest>(std::shared_ptr<void>(), &forest),
            nullptr,
            query.loss,
            query.normalize,
            {},
            nullptr,
            query.strict_beam};
}

Found predict(const Forest& forest, const RowsView& rows, const Query& query, unsigned threads = 1,
              const Kernels& kernels = bonsai::kernels()) {
    Found found{std::vector<int32_t>(rows.n_rows * query.k, -9),
                std::vector<float>(rows.n_rows * query.k, 9.0f)};
    Control control;
    Pool pool(threads, control);
    const TopKParams params{.k = query.k, .beam_size = query.beam_size, .exact = false, .n_probe = 0};
    top_k(model_of(forest, query), rows, params, kernels, pool, found.ids.data(), found.scores.data());
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
        const Query query{.loss = SquaredHinge{}, .beam_size = beam, .k = kLabels, .normalize = true};
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

// With a strict beam, a leaf has at most as many labels as the beam has nodes, and a tree at most as many
// leaves.
void test_strict_beam() {
    const OwnedForest forest = make_forest(1);
    const Forest weights(forest.arrays(), kFeatures, kLabels);
    const auto residual = std::make_shared<const Forest>(forest.arrays(), kFeatures, kLabels);
    const Forest model(forest.arrays(), kFeatures, kLabels, nullptr, residual);
    const Input input(2);
    for (const size_t beam : {1u, 2u, 5u}) {
        const Query query{
            .loss = SquaredHinge{}, .beam_size = beam, .k = kLabels, .normalize = true, .strict_beam = true};
        const Found found = predict(model, input.rows.view(), query);
        for (size_t i = 0; i < input.rows.n_rows; ++i) {
            const auto row = found.ids.begin() + static_cast<int64_t>(i * kLabels);
            const auto n = std::count_if(row, row + kLabels, [](int32_t id) { return id >= 0; });
            CHECK(static_cast<size_t>(n) <= weights.n_trees() * beam * beam);
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
    const Query query{.loss = Logistic{}, .beam_size = 1, .k = 1, .normalize = true};
    const TopKParams params{.k = 1, .beam_size = 1, .exact = false, .n_probe = 0};
    CHECK_THROWS(
        top_k(model_of(model, query), input.rows.view(), params, kernels(), pool, ids.data(), scores.data()),
        "interrupted");
}

// In a valid forest, the products of a row add up to its margin; in any forest, they are within bounds.
void explain_some(const Forest& forest, const RowsView& row, const Query& query, Rng& rng) {
    const Model model = model_of(forest, query);
    const Reasons reasons(model, row, kernels());
    const size_t n_children = forest.arrays().children.size();
    for (int i = 0; i < 20; ++i) {
        const size_t child = rng.below(n_children);
        const Reasons::Decision d = reasons.decide(forest, child, 0);
        CHECK(d.weights.size() == reasons.features().size());
        CHECK(d.score <= 0 && std::isfinite(d.score));
        uint32_t sum = 0;
        for (size_t e = 0; e < d.weights.size(); ++e)
            sum += static_cast<uint32_t>(int32_t{reasons.values()[e]} * d.weights[e]);
        CHECK(d.sum == static_cast<int32_t>(sum));
        size_t n = 0;
        forest.for_each_weight_of(forest.classifier(child),
                                  [&](size_t f, StoredWeight) { n += f < kFeatures; });
        CHECK(n <= forest.block(forest.classifier(child).block).n_bytes());
    }
    CHECK_THROWS(reasons.decide(forest, n_children, 0), "no such child");
    for (const auto& kept : reasons.search(query.beam_size))
        CHECK(kept.node < forest.arrays().is_leaf.size() && kept.score <= 0);
}

void predict_every_way(const Forest& model, const Input& input, Rng& rng) {
    const Rows& rows = input.rows;
    for (const Loss loss : {Loss(SquaredHinge{}), Loss(Logistic{})}) {
        const Query query{.loss = loss,
                          .beam_size = rng.below(4),
                          .k = 1 + rng.below(kLabels),
                          .normalize = rng.below(2) == 1,
                          .strict_beam = rng.below(2) == 1};
        CHECK(ids_in_range(predict(model, rows.view(), query)));
        // a single row: features are searched instead of tabled
        RowsView one = rows.view();
        one.n_rows = 1;
        one.ptr += 1 + rng.below(rows.n_rows - 1);
        CHECK(ids_in_range(predict(model, one, query)));
        explain_some(model, one, query, rng);
    }
}

template <class T, class Allocator>
void scramble(std::vector<T, Allocator>& values, Rng& rng) {
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

// The constructor does not check these contents: for any values, no read or write is out of bounds.
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
        const auto residual = std::make_shared<const Forest>(exact.arrays(), kFeatures, kLabels);
        predict_every_way(Forest(exact.arrays(), kFeatures, kLabels, nullptr, residual), input, rng);
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

// Each feature lists a child eight times, so that sums exceed 32 bits. The result is meaningless but defined.
void test_sums_beyond_32_bits() {
    std::vector<uint32_t> features;
    for (uint32_t f = 5; f < kFeatures; f += 13) features.push_back(f);
    CHECK(n_weights(5) == kMaxListed);
    OwnedForest forest = with_block(features);
    Forest(forest.arrays(), kFeatures, kLabels)
        .block(forest.shift.size() - 1)
        .for_each_feature([&](size_t, const FeatureWeights& found) {
            uint8_t* bytes = forest.records.data() + (found.bytes - forest.records.data());
            std::fill_n(bytes, kMaxListed, uint8_t{0});
            std::fill_n(bytes + kMaxListed, kMaxListed, uint8_t{kWeightMax});
        });
    Rows rows{.n_rows = 1, .n_features = kFeatures};
    for (const uint32_t f : features) rows.index.push_back(static_cast<int32_t>(f));
    rows.value.assign(features.size(), 1.0f);
    rows.ptr = {0, static_cast<int64_t>(features.size())};
    const Forest model(forest.arrays(), kFeatures, kLabels);
    const Query query{.loss = SquaredHinge{}, .beam_size = 0, .k = kLabels, .normalize = false};
    CHECK(ids_in_range(predict(model, rows.view(), query)));
}

// Weights of -128, which the format forbids: the sum of a long row overflows 32 bits. It wraps around,
// whether the block is unpacked for many rows or not, on every machine.
void test_sums_of_forbidden_weights() {
    std::vector<uint32_t> features(kFeatures);
    for (uint32_t f = 0; f < kFeatures; ++f) features[f] = f;
    OwnedForest forest = with_block(features);  // the last child has a weight for each feature
    Forest(forest.arrays(), kFeatures, kLabels)
        .block(forest.shift.size() - 1)
        .for_each_feature([&](size_t, const FeatureWeights& found) {
            uint8_t* end = forest.records.data() + (found.bytes - forest.records.data()) + found.size;
            std::fill_n(end - found.n(), found.n(), uint8_t{0x80});
        });
    const Forest model(forest.arrays(), kFeatures, kLabels);
    constexpr size_t n_rows = 40;
    Rows rows{.n_rows = n_rows, .n_features = kFeatures};
    rows.ptr.push_back(0);
    for (size_t i = 0; i < n_rows; ++i) {
        for (const uint32_t f : features) rows.index.push_back(static_cast<int32_t>(f));
        rows.value.resize(rows.index.size(), 1.3757f);  // so that values are as large as 32 bits allow
        rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
    }
    RowsView one = rows.view();
    one.n_rows = 1;
    const Query query{.loss = SquaredHinge{}, .beam_size = 0, .k = kLabels, .normalize = false};
    const Found expected = predict(model, one, query);
    for (const char* name : {"portable", "avx2", "avx512", "avx512vnni"}) {
        const Kernels* kernels = nullptr;
        try {
            kernels = &kernels_named(name);
        } catch (const std::invalid_argument&) {
            continue;  // this machine cannot run them
        }
        const Found single = predict(model, one, query, 1, *kernels);
        const Found batch = predict(model, rows.view(), query, 2, *kernels);
        CHECK(single.ids == expected.ids && single.scores == expected.scores);
        for (size_t i = 0; i < n_rows; ++i)
            CHECK(std::equal(expected.ids.begin(), expected.ids.end(),
                             batch.ids.begin() + static_cast<int64_t>(i * kLabels)));
    }
}

template <class T, class Allocator>
void hit(std::vector<T, Allocator>& values, Rng& rng) {
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

// One changed number anywhere: the constructor rejects it, or prediction is safe.
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
    test_prediction();
    test_strict_beam();
    test_interrupt();
    test_garbage_contents();
    test_sums_beyond_32_bits();
    test_sums_of_forbidden_weights();
    test_one_number_changed();
    return check::report("damaged_models");
}

#include "one_vs_rest/train_one_vs_rest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/random.hpp"
#include "check.hpp"
#include "fixtures.hpp"

using namespace bonsai;

namespace {

// --- scan_quantised ---

// Rows in fixed point, and a panel whose row 0 is zero: bytes, two to a word.
struct FixedRows {
    std::vector<int64_t> ptr = {0};
    std::vector<int32_t> index;
    std::vector<int16_t> value;
    std::vector<uint32_t> place;
    std::vector<int16_t> panel = std::vector<int16_t>(kLanePairs, 0);
    std::vector<float> threshold = std::vector<float>(kMaxLanes, 0.0f);
    std::vector<float> factor;
    std::vector<int16_t> leeway;  // empty: none

    void add_row(const std::vector<int32_t>& features, const std::vector<int16_t>& values, float row_factor) {
        index.insert(index.end(), features.begin(), features.end());
        value.insert(value.end(), values.begin(), values.end());
        ptr.push_back(static_cast<int64_t>(index.size()));
        factor.push_back(row_factor);
    }
    // A row of the panel for the feature.
    void add_place(size_t feature, const std::vector<int8_t>& lanes) {
        place.resize(std::max(place.size(), feature + 1), 0);
        place[feature] = static_cast<uint32_t>(panel.size() / kLanePairs);
        for (size_t l = 0; l < kLanePairs; ++l)
            panel.push_back(static_cast<int16_t>(256 * lanes[kLanePairs + l] + lanes[l]));
    }
    // A lane's weight times 256: the lower byte with its sign, or the whole word.
    int64_t weight(int32_t feature, size_t l) const {
        const int64_t word = panel[place[feature] * kLanePairs + l % kLanePairs];
        return l < kLanePairs ? ((word + 32768 + 128) % 256 - 128) * 256 : word;
    }
    QuantisedScan pass() const {
        return {.ptr = ptr.data(),
                .index = index.data(),
                .value = value.data(),
                .panel_row = place.data(),
                .panel = panel.data(),
                .threshold = threshold.data(),
                .factor = factor.data(),
                .tolerance = leeway.empty() ? nullptr : leeway.data()};
    }
    // The sum of row i in lane l; `least` and `most` take the ends that its parts reach.
    int64_t sum(size_t i, size_t l, int64_t& least, int64_t& most) const {
        int64_t total = 0;
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) {
            const int64_t product = int64_t{value[e]} * weight(index[e], l);
            total += static_cast<int64_t>(std::floor(static_cast<double>(product) / 32768 + 0.5));
            least = std::min(least, total);
            most = std::max(most, total);
        }
        return total;
    }
    std::vector<uint64_t> above(const Kernels& k, const std::vector<uint32_t>& rows) const {
        std::vector<uint64_t> out(rows.size() + 1, 77);  // the last one stays
        k.scan_quantised(pass(), rows.data(), rows.size(), out.data());
        CHECK(out.back() == 77);
        out.pop_back();
        return out;
    }
};

void test_rows_above_by_hand(const Kernels& k) {
    FixedRows rows;
    std::vector<int8_t> first(kMaxLanes, 0), second(kMaxLanes, 0);
    first[0] = 50;
    first[1] = -50;
    first[63] = 127;
    second[0] = 1;
    second[17] = 127;
    second[49] = -1;  // in a word with lane 17, which makes it -129 / 256
    rows.add_place(2, first);
    rows.add_place(0, second);
    rows.place.resize(5, 0);  // features 1, 3 and 4 have no place
    constexpr int16_t unit = 128, half = 64;
    rows.add_row({2}, {unit}, 1.0f);                         // 50, -50, 127
    rows.add_row({}, {}, 0.0f);                              // nothing
    rows.add_row({1, 3, 4}, {32767, -32767, 5}, 1.0f);       // nothing that has a place
    rows.add_row({0, 1, 2}, {3 * half, unit, -unit}, 1.0f);  // lane 0: 1.5 -> 2 and -50; 17: 190.5 -> 191
    rows.add_row({0}, {3 * unit}, 1.0f);                     // 3, 381; lane 49: -387 / 256 -> -2

    const auto lanes = [](std::initializer_list<unsigned> list) {
        uint64_t bits = 0;
        for (const unsigned l : list) bits |= uint64_t{1} << l;
        return bits;
    };
    const std::vector<uint32_t> all = {0, 1, 2, 3, 4};
    // Above 0, where most lanes are exactly 0.
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lanes({0, 63}), 0, 0, lanes({1, 17}), lanes({0, 17})});
    // In any order, and more than once.
    CHECK(rows.above(k, {4, 0, 4, 1}) ==
          std::vector<uint64_t>{lanes({0, 17}), lanes({0, 63}), lanes({0, 17}), 0});
    CHECK(rows.above(k, {}).empty());
    // Equality is not above; fractions of a bar count only once they are reached.
    rows.threshold[63] = 127.0f;
    rows.threshold[17] = 190.0f;
    rows.threshold[0] = 3.0f;
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lanes({0}), 0, 0, lanes({1, 17}), lanes({17})});
    rows.threshold[63] = 126.9f;
    rows.threshold[0] = 2.9f;
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lanes({0, 63}), 0, 0, lanes({1, 17}), lanes({0, 17})});
    // The factor is the row's: 2.9 * 17 is below 50, 2.9 * 17.5 is above; 0 leaves a bar of 0.
    rows.factor = {17.0f, 17.5f, 17.5f, 0.0f, 17.5f};
    CHECK(rows.above(k, {0}) == std::vector<uint64_t>{lanes({0})});
    rows.factor[0] = 17.5f;
    CHECK(rows.above(k, all) == std::vector<uint64_t>{0, 0, 0, lanes({1, 17}), 0});
    // Lanes that are not in use have a bar that nothing reaches, not even the largest sum.
    rows.add_row({0, 2}, {32767, 32767}, 1.0f);  // 32511 in lanes 17 and 63
    rows.factor[3] = 0.5f;
    rows.threshold.assign(kMaxLanes, std::numeric_limits<float>::max());
    CHECK(rows.above(k, {0, 1, 2, 3, 4, 5}) == std::vector<uint64_t>(6, 0));
    rows.threshold[17] = 32510.0f;
    CHECK(rows.above(k, {5}) == std::vector<uint64_t>{lanes({17})});
    rows.threshold[17] = 32511.0f;
    CHECK(rows.above(k, {5}) == std::vector<uint64_t>{0});
    // The leeway is the row's, and takes a bar below 0.
    rows.factor.assign(6, 1.0f);
    rows.threshold[0] = 50.0f;
    rows.threshold[1] = 0.0f;
    CHECK(rows.above(k, {0}) == std::vector<uint64_t>{0});
    rows.leeway = {1, 0, 0, 98, 47, 0};
    CHECK(rows.above(k, {0, 1, 3, 4}) == std::vector<uint64_t>{lanes({0}), 0, lanes({1}), lanes({1})});
    rows.leeway = {50, 1, 0, 99, 48, 0};
    CHECK(rows.above(k, {0, 1, 3, 4}) ==
          std::vector<uint64_t>{lanes({0}), lanes({1}), lanes({0, 1}), lanes({0, 1})});
    rows.leeway[0] = 51;
    CHECK(rows.above(k, {0}) == std::vector<uint64_t>{lanes({0, 1})});
}

void test_rows_above_at_the_ends(const Kernels& k) {
    // 32767, the largest sum, and -32768, the least: one entry more on the way there and back. Features 0 and
    // 1 for the lower bytes, 2 and 3 for the upper ones.
    FixedRows rows;
    for (const size_t first : {size_t{0}, kLanePairs})
        for (const int8_t weight : {127, 1}) {
            std::vector<int8_t> lanes(kMaxLanes, 0);
            std::fill_n(lanes.begin() + static_cast<ptrdiff_t>(first), kLanePairs, weight);
            rows.add_place(rows.place.size(), lanes);
        }
    constexpr int16_t one = 32767, minus = -32767;
    for (const int32_t f : {0, 2}) {
        rows.add_row({f, f + 1}, {one, one}, 1.0f);                   // 32511 + 256
        rows.add_row({f, f + 1, f + 1}, {minus, minus, -128}, 1.0f);  // -32511 - 256 - 1
        rows.add_row({f, f + 1, f, f}, {one, one, minus, minus}, 1.0f);
    }
    int64_t least = 0, most = 0;
    for (const size_t l : {size_t{5}, kLanePairs + 5}) {
        const size_t first = l < kLanePairs ? 0 : 3;
        CHECK(rows.sum(first, l, least, most) == 32767);
        CHECK(rows.sum(first + 1, l, least, most) == -32768);
        CHECK(rows.sum(first + 2, l, least, most) == -32255);
    }
    const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5};
    constexpr uint64_t lower = 0xffffffff, upper = lower << 32;
    rows.threshold.assign(kMaxLanes, 32766.0f);
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lower, 0, 0, upper, 0, 0});
    rows.threshold.assign(kMaxLanes, 32767.0f);
    CHECK(rows.above(k, all) == std::vector<uint64_t>(6, 0));
    rows.threshold.assign(kMaxLanes, 128.0f);  // what the lower bytes add to the upper lanes
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lower, 0, 0, upper, 0, 0});
    rows.threshold.assign(kMaxLanes, 127.0f);
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lower | upper, 0, 0, upper, 0, 0});
}

// Random rows of any length beside a plain loop; the sums fill the range, and bars lie on them and beside.
void test_rows_above_at_random(const Kernels& k) {
    size_t n_above = 0, n_equal = 0;
    int64_t least = 0, most = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        Rng rng(seed);
        const size_t n_features = 60, n_rows = 30;
        const auto draw = [&](int most_of) { return static_cast<int>(rng.below(2 * most_of + 1)) - most_of; };
        FixedRows rows;
        for (size_t f = 0; f < n_features; ++f) {
            if (rng.uniform() < 0.3) continue;
            std::vector<int8_t> lanes(kMaxLanes, 0);
            for (size_t l = 0; l < kMaxLanes; ++l)
                if (rng.uniform() < 0.5) lanes[l] = static_cast<int8_t>(draw(seed % 2 ? 2 : 127));
            rows.add_place(f, lanes);
        }
        rows.place.resize(n_features, 0);
        for (size_t i = 0; i < n_rows; ++i) {
            std::vector<int32_t> features;
            std::vector<int16_t> values;
            const double density = i == 3 ? 0.0 : rng.uniform();
            for (size_t f = 0; f < n_features; ++f)
                if (rng.uniform() < density) {
                    features.push_back(static_cast<int32_t>(f));
                    values.push_back(static_cast<int16_t>(draw(seed % 2 ? 32767 : 4000)));
                }
            rows.add_row(features, values, i % 5 == 0 ? 0.0f : static_cast<float>(rng.uniform() * 2));
        }
        rows.factor[7] = 1.0f;
        if (seed % 3 == 0)
            for (size_t i = 0; i < n_rows; ++i) rows.leeway.push_back(static_cast<int16_t>(rng.below(300)));
        for (size_t l = 0; l < kMaxLanes; ++l) {  // the bar of row 7 is a sum that occurs
            const int64_t sum = rows.sum(7, l, least, most);
            rows.threshold[l] = static_cast<float>(std::abs(sum)) + (l % 3 == 0 ? 0.5f : 0.0f);
        }
        std::vector<uint32_t> some;
        for (size_t i = 0; i < n_rows; ++i)
            if (i == 3 || i == 7 || rng.uniform() < 0.8) some.push_back(static_cast<uint32_t>(i));
        const std::vector<uint64_t> out = rows.above(k, some);
        bool good = true;
        for (size_t r = 0; r < some.size(); ++r)
            for (size_t l = 0; l < kMaxLanes; ++l) {
                const int64_t sum =
                    rows.sum(some[r], l, least, most) + (rows.leeway.empty() ? 0 : rows.leeway[some[r]]);
                const float bar = rows.threshold[l] * rows.factor[some[r]];
                good &= (out[r] >> l & 1) == (static_cast<double>(sum) > double{bar});
                n_above += out[r] >> l & 1;
                n_equal += static_cast<double>(sum) == double{bar} && sum != 0;
            }
        CHECK(good);
    }
    CHECK(least >= -32768 && most <= 32767);  // else the cases are not what the kernel is for
    CHECK(most > 20000 && least < -20000);
    CHECK(n_above > 5000 && n_equal > 200);
}

// --- training ---

// Rows of a few topics, some twice, one without features; the last label is on all rows, the one before on
// one.
struct Topics {
    Topics(size_t n, size_t d, size_t n_labels, uint64_t seed) : n_labels(n_labels) {
        Rng rng(seed);
        x = {.n_rows = n, .n_features = d};
        x.ptr.push_back(0);
        label_ptr.push_back(0);
        for (size_t i = 0; i < n; ++i) {
            const size_t label = rng.below(n_labels - 2);
            for (size_t f = 0; f < d; ++f) {
                const bool own = f % (n_labels - 2) == label;
                if (i == 4 || rng.uniform() > (own ? 0.9 : 0.15)) continue;
                x.index.push_back(static_cast<int32_t>(f));
                x.value.push_back(static_cast<float>(rng.uniform() - (own ? 0.0 : 0.5)));
            }
            x.ptr.push_back(static_cast<int64_t>(x.index.size()));
            labels.push_back(static_cast<int32_t>(label));
            if (i == n / 2) labels.push_back(static_cast<int32_t>(n_labels - 2));
            labels.push_back(static_cast<int32_t>(n_labels - 1));
            label_ptr.push_back(static_cast<int64_t>(labels.size()));
        }
    }
    Topics(const Topics&) = delete;

    OwnedForest train(const LinearParams& params, const Kernels& k, unsigned threads, TrainReport& report,
                      uint64_t seed = 5) const {
        const Dataset data(x.view(), label_ptr, labels, n_labels, {}, true);
        std::vector<uint32_t> order(n_labels);
        for (size_t l = 0; l < n_labels; ++l) order[l] = static_cast<uint32_t>(n_labels - 1 - l);
        Control control;
        Pool pool(threads, control);
        OwnedForest forest = train_one_vs_rest(data, order, {}, 1.0, seed, params, k, pool, report);
        CHECK(control.done == control.total && control.total > 0);
        return forest;
    }

    size_t n_labels;
    Rows x;
    std::vector<int64_t> label_ptr;
    std::vector<int32_t> labels;
};

LinearParams usual(float bias = -1.0f) {
    return {.loss = Loss::squared_hinge,
            .solver = Solver::dual,
            .c = 1.0,
            .tol = 0.01,
            .max_iter = 100,
            .learn_bias = false,
            .fixed_bias = bias,
            .prune = 0.0f};
}

bool same(const OwnedForest& a, const OwnedForest& b) {
    return a.children == b.children && a.bias == b.bias && a.scale == b.scale && a.block_ptr == b.block_ptr &&
           a.bucket_ptr == b.bucket_ptr && a.record_ptr == b.record_ptr && a.shift == b.shift &&
           a.buckets == b.buckets && a.records == b.records;
}

// Some weights of all kinds among zeros; the places of those that are not 0 in order, and nothing left.
void test_drain(const Kernels& k) {
    Rng rng(11);
    for (const size_t n : {0, 16, 32, 400})
        for (const double density : {0.0, 0.03, 0.5, 1.0}) {
            std::vector<float> w(n, 0.0f), wanted;
            std::vector<uint32_t> places;
            for (size_t f = 0; f < n; ++f) {
                if (rng.uniform() >= density) continue;
                w[f] = static_cast<float>(rng.uniform() - 0.5) * (f % 3 ? 1.0f : 1e-30f);
                if (w[f] == 0) continue;
                wanted.push_back(w[f]);
                places.push_back(static_cast<uint32_t>(f));
            }
            std::vector<uint32_t> index(n + 17, 77);
            std::vector<float> value(n + 17, 77.0f);
            const size_t found = k.drain_nonzeros(w.data(), n, index.data(), value.data());
            CHECK(found == wanted.size() && w == std::vector<float>(n, 0.0f));
            CHECK(index.back() == 77 && value.back() == 77.0f);
            index.resize(found);
            value.resize(found);
            CHECK(index == places && value == wanted);
        }
}

void test_same_for_any_threads_and_kernels() {
    const Topics topics(700, 90, 150, 3);
    TrainReport report;
    const OwnedForest first = topics.train(usual(), *all_kernels()[0], 1, report);
    CHECK(report.n_classifiers == 150 && report.n_unconverged == 0 && report.max_iter > 4);
    CHECK(first.children.front() == 149 && first.children.back() == 0);
    CHECK(first.tree_ptr == (std::vector<int64_t>{0, 1}) && first.is_leaf == std::vector<uint8_t>{1});
    CHECK(first.child_ptr == (std::vector<int64_t>{0, 150}) && first.shift.size() == 2);
    CHECK(first.bias == std::vector<float>(150, -1.0f));
    for (const Kernels* k : all_kernels())
        for (const unsigned threads : {1, 2, 5}) {
            TrainReport again;
            CHECK(same(topics.train(usual(), *k, threads, again), first));
            CHECK(again.max_iter == report.max_iter && again.n_unconverged == 0);
        }
    TrainReport other;
    CHECK(!same(topics.train(usual(), *all_kernels()[0], 1, other, 6), first));
}

void test_what_other_solvers_take_over() {
    const Topics topics(120, 30, 12, 4);
    LinearParams learnt = usual();
    learnt.learn_bias = true;
    LinearParams logistic = usual();
    logistic.loss = Loss::logistic;
    LinearParams newton = usual();
    newton.solver = Solver::newton;
    for (const LinearParams& params : {learnt, logistic, newton, usual(-0.5f), usual(-2.0f)}) {
        TrainReport report;
        const OwnedForest forest = topics.train(params, kernels_named(""), 2, report);
        CHECK(report.n_classifiers == 12 && forest.is_leaf == std::vector<uint8_t>{1});
        CHECK(forest.children.front() == 11 && forest.children.back() == 0);
        const ForestArrays arrays{forest.tree_ptr,   forest.child_ptr, forest.children,  forest.is_leaf,
                                  forest.bias,       forest.scale,     forest.block_ptr, forest.bucket_ptr,
                                  forest.record_ptr, forest.shift,     forest.buckets,   forest.records};
        const Forest model(arrays, 30, 12);
        model.verify();
        CHECK(model.is_one_leaf() && model.position(11) == 0 && model.position(0) == 11);
    }
}

void test_interrupt() {
    const Topics topics(120, 30, 12, 4);
    const Dataset data(topics.x.view(), topics.label_ptr, topics.labels, 12, {}, true);
    Control control;
    control.stop = true;
    Pool pool(2, control);
    TrainReport report;
    const std::vector<uint32_t> order = {3, 1};
    CHECK_THROWS(train_one_vs_rest(data, order, {}, 1.0, 1, usual(), kernels_named(""), pool, report),
                 "interrupted");
}

}  // namespace

int main() {
    for (const Kernels* k : all_kernels()) {
        test_rows_above_by_hand(*k);
        test_rows_above_at_the_ends(*k);
        test_rows_above_at_random(*k);
        test_drain(*k);
    }
    test_same_for_any_threads_and_kernels();
    test_what_other_solvers_take_over();
    test_interrupt();
    return check::report("one_vs_rest");
}

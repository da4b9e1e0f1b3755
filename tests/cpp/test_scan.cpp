// The kernels of one-vs-rest training.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "check.hpp"
#include "fixtures.hpp"
#include "kernels/kernels.hpp"

using namespace bonsai;

namespace {

// Rows of int16 values, and a panel whose row 0 is zero: int8 weights, two to a word.
struct ScanCase {
    std::vector<int64_t> ptr = {0};
    std::vector<int32_t> index;
    std::vector<int16_t> value;
    std::vector<uint32_t> panel_row;
    std::vector<int16_t> panel = std::vector<int16_t>(kLanePairs, 0);
    std::vector<float> threshold = std::vector<float>(kMaxLanes, 0.0f);
    std::vector<float> factor;
    std::vector<int16_t> tolerance;  // empty: none

    void add_row(const std::vector<int32_t>& features, const std::vector<int16_t>& values, float row_factor) {
        index.insert(index.end(), features.begin(), features.end());
        value.insert(value.end(), values.begin(), values.end());
        ptr.push_back(static_cast<int64_t>(index.size()));
        factor.push_back(row_factor);
    }
    // A row of the panel for the feature.
    void add_panel_row(size_t feature, const std::vector<int8_t>& lanes) {
        panel_row.resize(std::max(panel_row.size(), feature + 1), 0);
        panel_row[feature] = static_cast<uint32_t>(panel.size() / kLanePairs);
        for (size_t l = 0; l < kLanePairs; ++l)
            panel.push_back(static_cast<int16_t>(256 * lanes[kLanePairs + l] + lanes[l]));
    }
    // A lane's weight times 256: the lower byte with its sign, or the whole word.
    int64_t weight(int32_t feature, size_t l) const {
        const int64_t word = panel[panel_row[feature] * kLanePairs + l % kLanePairs];
        return l < kLanePairs ? ((word + 32768 + 128) % 256 - 128) * 256 : word;
    }
    QuantisedScan pass() const {
        return {.ptr = ptr.data(),
                .index = index.data(),
                .value = value.data(),
                .panel_row = panel_row.data(),
                .panel = panel.data(),
                .threshold = threshold.data(),
                .factor = factor.data(),
                .tolerance = tolerance.empty() ? nullptr : tolerance.data()};
    }
    // The sum of row i in lane l; `least` and `most` receive the extremes of its partial sums.
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

void test_scan_by_hand(const Kernels& k) {
    ScanCase rows;
    std::vector<int8_t> first(kMaxLanes, 0), second(kMaxLanes, 0);
    first[0] = 50;
    first[1] = -50;
    first[63] = 127;
    second[0] = 1;
    second[17] = 127;
    second[49] = -1;  // in a word with lane 17, which makes it -129 / 256
    rows.add_panel_row(2, first);
    rows.add_panel_row(0, second);
    rows.panel_row.resize(5, 0);  // features 1, 3 and 4 have no weights
    constexpr int16_t unit = 128, half = 64;
    rows.add_row({2}, {unit}, 1.0f);                         // 50, -50, 127
    rows.add_row({}, {}, 0.0f);                              // nothing
    rows.add_row({1, 3, 4}, {32767, -32767, 5}, 1.0f);       // nothing with weights
    rows.add_row({0, 1, 2}, {3 * half, unit, -unit}, 1.0f);  // lane 0: 1.5 -> 2 and -50; 17: 190.5 -> 191
    rows.add_row({0}, {3 * unit}, 1.0f);                     // 3, 381; lane 49: -387 / 256 -> -2

    const auto lanes = [](std::initializer_list<unsigned> list) {
        uint64_t bits = 0;
        for (const unsigned l : list) bits |= uint64_t{1} << l;
        return bits;
    };
    const std::vector<uint32_t> all = {0, 1, 2, 3, 4};
    // Above 0, with most lanes exactly 0.
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lanes({0, 63}), 0, 0, lanes({1, 17}), lanes({0, 17})});
    // In any order, and more than once.
    CHECK(rows.above(k, {4, 0, 4, 1}) ==
          std::vector<uint64_t>{lanes({0, 17}), lanes({0, 63}), lanes({0, 17}), 0});
    CHECK(rows.above(k, {}).empty());
    // An equal sum is not above; fractions of a threshold are truncated.
    rows.threshold[63] = 127.0f;
    rows.threshold[17] = 190.0f;
    rows.threshold[0] = 3.0f;
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lanes({0}), 0, 0, lanes({1, 17}), lanes({17})});
    rows.threshold[63] = 126.9f;
    rows.threshold[0] = 2.9f;
    CHECK(rows.above(k, all) == std::vector<uint64_t>{lanes({0, 63}), 0, 0, lanes({1, 17}), lanes({0, 17})});
    // The factor is the row's: 2.9 * 17 is below 50, 2.9 * 17.5 is above; 0 gives a threshold of 0.
    rows.factor = {17.0f, 17.5f, 17.5f, 0.0f, 17.5f};
    CHECK(rows.above(k, {0}) == std::vector<uint64_t>{lanes({0})});
    rows.factor[0] = 17.5f;
    CHECK(rows.above(k, all) == std::vector<uint64_t>{0, 0, 0, lanes({1, 17}), 0});
    // Unused lanes have a threshold that no sum can reach.
    rows.add_row({0, 2}, {32767, 32767}, 1.0f);  // 32511 in lanes 17 and 63
    rows.factor[3] = 0.5f;
    rows.threshold.assign(kMaxLanes, std::numeric_limits<float>::max());
    CHECK(rows.above(k, {0, 1, 2, 3, 4, 5}) == std::vector<uint64_t>(6, 0));
    rows.threshold[17] = 32510.0f;
    CHECK(rows.above(k, {5}) == std::vector<uint64_t>{lanes({17})});
    rows.threshold[17] = 32511.0f;
    CHECK(rows.above(k, {5}) == std::vector<uint64_t>{0});
    // The tolerance is the row's, and can make a threshold negative.
    rows.factor.assign(6, 1.0f);
    rows.threshold[0] = 50.0f;
    rows.threshold[1] = 0.0f;
    CHECK(rows.above(k, {0}) == std::vector<uint64_t>{0});
    rows.tolerance = {1, 0, 0, 98, 47, 0};
    CHECK(rows.above(k, {0, 1, 3, 4}) == std::vector<uint64_t>{lanes({0}), 0, lanes({1}), lanes({1})});
    rows.tolerance = {50, 1, 0, 99, 48, 0};
    CHECK(rows.above(k, {0, 1, 3, 4}) ==
          std::vector<uint64_t>{lanes({0}), lanes({1}), lanes({0, 1}), lanes({0, 1})});
    rows.tolerance[0] = 51;
    CHECK(rows.above(k, {0}) == std::vector<uint64_t>{lanes({0, 1})});
}

void test_scan_at_the_ends(const Kernels& k) {
    // 32767, the largest sum, and -32768, the least: one entry more on the way there and back. Features 0 and
    // 1 for the lower bytes, 2 and 3 for the upper ones.
    ScanCase rows;
    for (const size_t first : {size_t{0}, kLanePairs})
        for (const int8_t weight : {127, 1}) {
            std::vector<int8_t> lanes(kMaxLanes, 0);
            std::fill_n(lanes.begin() + static_cast<ptrdiff_t>(first), kLanePairs, weight);
            rows.add_panel_row(rows.panel_row.size(), lanes);
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

// Random rows of any length compared with a plain loop; sums fill the range, and thresholds are equal or
// close to some of them.
void test_scan_at_random(const Kernels& k) {
    size_t n_above = 0, n_equal = 0;
    int64_t least = 0, most = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        Rng rng(seed);
        const size_t n_features = 60, n_rows = 30;
        const auto draw = [&](int most_of) { return static_cast<int>(rng.below(2 * most_of + 1)) - most_of; };
        ScanCase rows;
        for (size_t f = 0; f < n_features; ++f) {
            if (rng.uniform() < 0.3) continue;
            std::vector<int8_t> lanes(kMaxLanes, 0);
            for (size_t l = 0; l < kMaxLanes; ++l)
                if (rng.uniform() < 0.5) lanes[l] = static_cast<int8_t>(draw(seed % 2 ? 2 : 127));
            rows.add_panel_row(f, lanes);
        }
        rows.panel_row.resize(n_features, 0);
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
            for (size_t i = 0; i < n_rows; ++i)
                rows.tolerance.push_back(static_cast<int16_t>(rng.below(300)));
        for (size_t l = 0; l < kMaxLanes; ++l) {  // the threshold of row 7 is a sum that occurs
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
                const int64_t sum = rows.sum(some[r], l, least, most) +
                                    (rows.tolerance.empty() ? 0 : rows.tolerance[some[r]]);
                const float scaled = rows.threshold[l] * rows.factor[some[r]];
                good &= (out[r] >> l & 1) == (static_cast<double>(sum) > double{scaled});
                n_above += out[r] >> l & 1;
                n_equal += static_cast<double>(sum) == double{scaled} && sum != 0;
            }
        CHECK(good);
    }
    CHECK(least >= -32768 && most <= 32767);  // the range that the kernel is made for
    CHECK(most > 20000 && least < -20000);
    CHECK(n_above > 5000 && n_equal > 200);
}

// Weights of all magnitudes among zeros; the positions of the non-zeros in order, and zeros left behind.
void test_drain_nonzeros(const Kernels& k) {
    Rng rng(11);
    for (const size_t n : {0, 16, 32, 400})
        for (const double density : {0.0, 0.03, 0.5, 1.0}) {
            std::vector<float> w(n, 0.0f), wanted;
            std::vector<uint32_t> positions;
            for (size_t f = 0; f < n; ++f) {
                if (rng.uniform() >= density) continue;
                w[f] = static_cast<float>(rng.uniform() - 0.5) * (f % 3 ? 1.0f : 1e-30f);
                if (w[f] == 0) continue;
                wanted.push_back(w[f]);
                positions.push_back(static_cast<uint32_t>(f));
            }
            std::vector<uint32_t> index(n + 17, 77);
            std::vector<float> value(n + 17, 77.0f);
            const size_t found = k.drain_nonzeros(w.data(), n, index.data(), value.data());
            CHECK(found == wanted.size() && w == std::vector<float>(n, 0.0f));
            CHECK(index.back() == 77 && value.back() == 77.0f);
            index.resize(found);
            value.resize(found);
            CHECK(index == positions && value == wanted);
        }
}

}  // namespace

int main() {
    for (const Kernels* k : all_kernels()) {
        test_scan_by_hand(*k);
        test_scan_at_the_ends(*k);
        test_scan_at_random(*k);
        test_drain_nonzeros(*k);
    }
    return check::report("scan");
}

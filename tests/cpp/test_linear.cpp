#include "linear/solve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/random.hpp"
#include "check.hpp"

using namespace bonsai;

namespace {

constexpr size_t kWidths[] = {16, 32, 48, 64};

std::vector<const Kernels*> all_kernels() {
    std::vector<const Kernels*> found;
    for (const char* name : {"portable", "avx2", "avx512", "avx512vnni"}) try {
            found.push_back(&kernels_named(name));
            CHECK(std::string(found.back()->name) == name);
        } catch (const std::invalid_argument&) {  // not on this machine
        }
    return found;
}

double normal(Rng& rng) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += rng.uniform();
    return sum - 6;
}

std::vector<float> random_panel(size_t n, Rng& rng) {
    std::vector<float> panel(n);
    for (auto& v : panel) v = static_cast<float>(normal(rng));
    return panel;
}

// The same rows twice: sparse, and dense behind `row_ids` and `scale`.
struct TestRows {
    TestRows(size_t n, size_t d, double density, Rng& rng) {
        sparse = {.n_rows = n, .n_features = d};
        sparse.ptr.push_back(0);
        values.assign(n * d, 0.0f);
        for (size_t i = 0; i < n; ++i) {
            row_ids.push_back(static_cast<uint32_t>(n - 1 - i));
            scale.push_back(i % 2 ? 0.5f : 2.0f);
            for (size_t f = 0; f < d; ++f) {
                if (i == 1 || rng.uniform() >= density) continue;  // row 1 has no features
                const auto v = static_cast<float>(normal(rng));
                sparse.index.push_back(static_cast<int32_t>(f));
                sparse.value.push_back(v);
                values[row_ids[i] * d + f] = v / scale[i];
            }
            sparse.ptr.push_back(static_cast<int64_t>(sparse.index.size()));
        }
        dense = {.n_rows = n, .n_features = d};
        dense.dense = values.data();
        dense.row_ids = row_ids.data();
        dense.scale = scale.data();
    }
    TestRows(const TestRows&) = delete;

    std::vector<RowsView> views() const { return {sparse.view(), dense}; }
    double at(size_t i, size_t f) const {
        return double{values[row_ids[i] * sparse.n_features + f]} * double{scale[i]};
    }

    Rows sparse;
    std::vector<float> values, scale;
    std::vector<uint32_t> row_ids;
    RowsView dense;
};

bool close(double a, double b, double tol = 2e-5) {
    return std::abs(a - b) <= tol * std::max({1.0, std::abs(a), std::abs(b)});
}

void test_names() {
    CHECK_THROWS(kernels_named("sse9"), "BONSAI_ISA=sse9 is not one of");
    CHECK(std::string(kernels_named("portable").name) == "portable");
    CHECK(std::string(kernels_named("").name) == all_kernels().back()->name);
    for (size_t n = 1; n <= 64; ++n) {
        CHECK(panel_width(n) >= n && panel_width(n) < n + kLaneStep && panel_width(n) % kLaneStep == 0);
    }
    CHECK(panel_width(65) == 64 && panel_width(0) == 0);
}

void test_margins_and_scatter(const Kernels& k, size_t width) {
    Rng rng(width);
    const size_t n = 9, d = 23, stride = width + 5;
    const TestRows rows(n, d, 0.6, rng);
    const auto w = random_panel(d * width, rng), coef = random_panel(n * width, rng);
    for (const RowsView& view : rows.views()) {
        std::vector<float> out(5 * stride, -77.0f);
        k.margins(view, 2, 7, w.data(), width, out.data(), stride);
        bool good = true, untouched = true;
        for (size_t i = 2; i < 7; ++i) {
            for (size_t l = 0; l < width; ++l) {
                double sum = 0;
                for (size_t f = 0; f < d; ++f) sum += rows.at(i, f) * w[f * width + l];
                good &= close(out[(i - 2) * stride + l], sum);
            }
            for (size_t l = width; l < stride; ++l) untouched &= out[(i - 2) * stride + l] == -77.0f;
        }
        CHECK(good);
        CHECK(untouched);

        auto panel = w;
        k.scatter(view, coef.data(), width, panel.data());
        good = true;
        for (size_t f = 0; f < d; ++f)
            for (size_t l = 0; l < width; ++l) {
                double sum = w[f * width + l];
                for (size_t i = 0; i < n; ++i) sum += rows.at(i, f) * coef[i * width + l];
                good &= close(panel[f * width + l], sum);
            }
        CHECK(good);
        panel = w;
        k.scatter(view, std::vector<float>(n * width, 0.0f).data(), width, panel.data());
        CHECK(panel == w);
    }
}

// Rows to bytes and back; up to 128 lanes.
void test_bytes(const Kernels& k, size_t width) {
    Rng rng(width + 2);
    const size_t n = 23;
    auto rows = random_panel(n * width, rng);
    const auto factor = random_panel(width, rng);
    std::fill_n(rows.begin(), width, 0.0f);
    std::vector<int8_t> bytes(n * width, 99);
    bool good = true;
    for (size_t r = 0; r < n; ++r) {
        const float scale = k.quantise_int8(&rows[r * width], factor.data(), width, &bytes[r * width]);
        int most = 0;
        for (size_t c = 0; c < width; ++c) {
            const double exact = double{rows[r * width + c]} * factor[c];
            good &= std::abs(exact - double{scale} * bytes[r * width + c]) <= 0.5001 * scale + 1e-7;
            most = std::max(most, std::abs(int{bytes[r * width + c]}));
        }
        good &= r == 0 ? scale == 0 && most == 0 : scale > 0 && most == 127;
    }
    CHECK(good);
}

// Sums over rows of bytes, from rows with all their bytes and from rows of a map and the bytes it tells of.
void test_whole_numbers(const Kernels& k, size_t width, size_t used, bool negative) {
    constexpr size_t most = 128;
    Rng rng(width + used);
    const size_t n = 23;
    std::vector<int8_t> bytes(n * width, 0);
    std::vector<uint8_t> spread(n * kBitmapReadable, 0x5a);  // what is read along may be anything
    for (size_t r = 0; r < n; ++r) {
        uint8_t* map = &spread[r * kBitmapReadable];
        uint8_t* next = map + most / 8;
        std::fill(map, next, uint8_t{0});
        for (size_t c = 0; c < width; ++c) {
            if (rng.below(n) > r) continue;  // more and more of them; in the last row nearly all
            bytes[r * width + c] = static_cast<int8_t>(static_cast<int>(rng.below(255)) - 127);
            map[c / 8] |= static_cast<uint8_t>(1 << (c % 8));
            *next++ = static_cast<uint8_t>(bytes[r * width + c]);
        }
        std::vector<int8_t> row(width, 99);
        k.expand_bitmap(map, width, row.data());
        CHECK(std::equal(row.begin(), row.end(), &bytes[r * width]));
    }
    std::vector<uint32_t> place(used);
    std::vector<int16_t> value(used);
    std::vector<BitmapWeights> rows(used);
    std::vector<int32_t> exact(most, 7), sums = exact, spread_sums = exact;
    for (size_t i = 0; i < used; ++i) {
        place[i] = static_cast<uint32_t>(rng.below(n));
        value[i] = static_cast<int16_t>(static_cast<int>(rng.below(65535)) - 32767);
        if (!negative) value[i] = static_cast<int16_t>(std::abs(value[i]));
        rows[i] = {&spread[place[i] * kBitmapReadable], value[i], 0};
        for (size_t c = 0; c < width; ++c) exact[c] += value[i] * bytes[place[i] * width + c];
    }
    k.accumulate_int8(bytes.data(), width, place.data(), value.data(), used, sums.data());
    CHECK(sums == exact);
    k.accumulate_bitmap(rows.data(), used, spread_sums.data());
    CHECK(spread_sums == exact);
}

// Sums become margins in steps that are rounded one by one, without a fused multiply-add.
void test_margins_of_sums(const Kernels& k, size_t width) {
    Rng rng(width + 5);
    std::vector<int32_t> sum(width);
    auto scale = random_panel(width, rng), bias = random_panel(width, rng);
    for (auto& s : sum) s = static_cast<int32_t>(rng.next());
    const float unit = 0.3e-6f, infinity = std::numeric_limits<float>::infinity();
    const auto check = [&] {
        std::vector<float> out(width, 99.0f);
        const float largest =
            k.dequantise_margins(sum.data(), width, unit, scale.data(), bias.data(), out.data());
        float expected = -infinity;
        bool same = true;
        for (size_t c = 0; c < width; ++c) {
            const volatile float factor = unit * scale[c], product = static_cast<float>(sum[c]) * factor;
            float margin = product + bias[c];
            margin = margin > -1e15f ? std::min(margin, 1e15f) : -1e15f;
            same &= out[c] == margin;
            expected = std::max(expected, margin);
        }
        CHECK(same && largest == expected);
    };
    for (int repeat = 0; repeat < 20; ++repeat) {
        for (size_t c = 0; c < width; ++c) bias[c] = -static_cast<float>(sum[c]) * unit * scale[c] * 1.001f;
        for (auto& s : sum) s = static_cast<int32_t>(rng.next());
        check();
    }
    scale[1] = infinity;  // what is no number is as low as can be
    sum[1] = 0;
    bias[2] = -infinity;
    check();
    bias[0] = infinity;
    scale[width - 1] = 1e30f;
    check();
}

void test_find(const Kernels& k, size_t n) {
    Rng rng(n);
    const size_t n_keys = 500;
    std::vector<uint32_t> table(n_keys), bits(n_keys / 32 + 1), key(n), places, marked;
    std::vector<int32_t> signed_key;
    std::vector<int16_t> value(n), values;
    for (auto& place : table) place = rng.below(3) ? static_cast<uint32_t>(rng.next() >> 40) : 0;
    for (auto& word : bits) word = static_cast<uint32_t>(rng.next() & rng.next());
    for (size_t i = 0; i < n; ++i) {
        key[i] = static_cast<uint32_t>(rng.below(n_keys));
        signed_key.push_back(static_cast<int32_t>(key[i]));
        value[i] = static_cast<int16_t>(rng.next());
        if (table[key[i]] != 0) {
            places.push_back(table[key[i]]);
            values.push_back(value[i]);
        }
        if (bits[key[i] / 32] >> (key[i] % 32) & 1) marked.push_back(static_cast<uint32_t>(i));
    }
    std::vector<uint32_t> place(n + 16), where(n + 16);
    std::vector<int16_t> found(n + 16);
    const size_t n_places =
        k.gather_nonzero(table.data(), key.data(), value.data(), n, place.data(), found.data());
    place.resize(n_places);
    found.resize(n_places);
    CHECK(place == places && found == values);
    where.resize(k.find_in_bitset(bits.data(), signed_key.data(), n, where.data()));
    CHECK(where == marked);

    const auto numbers = random_panel(n, rng);
    for (const float least : {-INFINITY, 0.0f, n > 0 ? numbers[n / 2] : 1.0f, 2.0f, INFINITY}) {
        std::vector<uint32_t> reaching;
        for (size_t i = 0; i < n; ++i)
            if (numbers[i] >= least) reaching.push_back(static_cast<uint32_t>(i));
        where.assign(n + 16, 0);
        where.resize(k.find_at_least(numbers.data(), n, least, where.data()));
        CHECK(where == reaching);
    }
}

void test_lane_loops(const Kernels& k, size_t width) {
    Rng rng(width + 1);
    const size_t n = 37;
    const auto a = random_panel(n * width, rng), b = random_panel(n * width, rng);
    const auto scale = random_panel(width, rng), step = random_panel(width, rng);
    std::vector<double> dots(width, 9.0);
    k.lane_dots(a.data(), b.data(), n, width, dots.data());
    auto y = a;
    k.lane_axpy(y.data(), b.data(), n, width, scale.data(), step.data());
    bool good = true;
    for (size_t l = 0; l < width; ++l) {
        double dot = 0;
        for (size_t f = 0; f < n; ++f) {
            dot += double{a[f * width + l]} * b[f * width + l];
            good &= close(y[f * width + l],
                          double{scale[l]} * a[f * width + l] + double{step[l]} * b[f * width + l]);
        }
        good &= close(dots[l], dot, 1e-12);
    }
    CHECK(good);

    std::vector<float> row(width);
    for (const float threshold : {0.5f, 0.0f, -1.0f}) {
        uint64_t expected = 0;
        for (size_t l = 0; l < width; ++l) {
            const float values[] = {0.5f, -0.5f, 0.50001f, -0.50001f, 0.0f, -0.0f, 3.0f, 1e-30f};
            row[l] = values[rng.below(8)];
            if (std::abs(row[l]) > threshold) expected |= uint64_t{1} << l;
        }
        CHECK(k.lanes_above(row.data(), width, threshold) == expected);
    }
}

// One panel in the state that a pass begins with, and the same pass by plain loops in double.
struct PassState {
    PassState(const TestRows& rows, size_t width, bool logistic, bool learn_bias, Rng& rng)
        : rows(rows),
          width(width),
          n(rows.sparse.n_rows),
          d(rows.sparse.n_features),
          logistic(logistic),
          learn_bias(learn_bias) {
        w.assign(d * width, 0.0f);
        alpha.assign(n * width, 0.0f);
        bias.assign(width, learn_bias ? 0.0f : 0.25f);
        for (size_t i = 0; i < n; ++i) {
            order.push_back(static_cast<uint32_t>(i));
            positive.push_back(rng.next() & rng.next());
            double q = learn_bias ? 1 : 1e-12;
            for (size_t f = 0; f < d; ++f) q += rows.at(i, f) * rows.at(i, f);
            const double cost = 0.5 + rng.uniform();
            diagonal.push_back(static_cast<float>(logistic ? cost : 0.5 / cost));
            inv_q.push_back(static_cast<float>(1 / (logistic ? q : q + 0.5 / cost)));
            if (!logistic) continue;
            for (size_t l = 0; l < width; ++l) move(i, l, 0.01 * cost);
        }
    }

    double sign(size_t i, size_t l) const { return positive[i] >> l & 1 ? 1.0 : -1.0; }

    void move(size_t i, size_t l, double to) {
        const double by = (to - alpha[i * width + l]) * sign(i, l);
        alpha[i * width + l] = static_cast<float>(to);
        for (size_t f = 0; f < d; ++f) w[f * width + l] += static_cast<float>(by * rows.at(i, f));
        if (learn_bias && logistic) bias[l] += static_cast<float>(by);
    }

    void run(const Kernels& k, const RowsView& view) {
        high.assign(width, 99.0f);
        low.assign(width, 99.0f);
        alpha_sum.assign(width, 0.0f);
        support.assign(width, 0.0f);
        const DualPass pass{.rows = view,
                            .order = order.data(),
                            .positive = positive.data(),
                            .inv_q = inv_q.data(),
                            .diagonal = diagonal.data(),
                            .active = active,
                            .width = width,
                            .learn_bias = learn_bias,
                            .still = still,
                            .w = w.data(),
                            .bias = bias.data(),
                            .alpha = alpha.data(),
                            .gradient_max = high.data(),
                            .gradient_min = low.data(),
                            .alpha_sum = alpha_sum.data(),
                            .support = support.data()};
        (logistic ? k.dual_logistic : k.dual_squared_hinge)(pass);
    }

    // The zero of the derivative of one logistic variable, by halving.
    static double logistic_optimum(double start, double c, double q, double b) {
        double low = 0, high = c;
        for (int halving = 0; halving < 200; ++halving) {
            const double z = 0.5 * (low + high);
            (q * (z - start) + b + std::log(z / (c - z)) < 0 ? low : high) = z;
        }
        return 0.5 * (low + high);
    }

    void run_plainly() {
        for (size_t l = 0; l < width; ++l) {
            double most = 0, least = 0;
            for (const uint32_t i : order) {
                double margin = bias[l];
                for (size_t f = 0; f < d; ++f) margin += rows.at(i, f) * w[f * width + l];
                const double a = alpha[i * width + l], z = sign(i, l) * margin;
                if (logistic) {
                    if (!(active >> l & 1)) continue;
                    most = std::max(most, std::abs(z + std::log(a / (diagonal[i] - a))));
                    move(i, l, logistic_optimum(a, diagonal[i], 1.0 / inv_q[i], z));
                    continue;
                }
                const double g = z - 1 + a * diagonal[i], projected = a == 0 ? std::min(g, 0.0) : g;
                most = std::max(most, projected);
                least = std::min(least, projected);
                if (std::abs(projected) > still && active >> l & 1)
                    move(i, l, std::max(a - g * inv_q[i], 0.0));
            }
            high[l] = static_cast<float>(most);
            low[l] = static_cast<float>(least);
            double sum = 0, weight = 0;
            for (size_t i = 0; i < n && !logistic; ++i) {
                sum += sign(i, l) * alpha[i * width + l];
                weight += alpha[i * width + l] > 0 ? inv_q[i] : 0.0;
            }
            alpha_sum[l] = static_cast<float>(sum);
            support[l] = static_cast<float>(weight);
        }
    }

    const TestRows& rows;
    size_t width, n, d;
    bool logistic, learn_bias;
    float still = 0;
    uint64_t active = ~uint64_t{0};
    std::vector<uint32_t> order;
    std::vector<uint64_t> positive;
    std::vector<float> inv_q, diagonal, w, bias, alpha, high, low, alpha_sum, support;
};

bool all_close(const std::vector<float>& a, const std::vector<float>& b, double tol) {
    bool good = a.size() == b.size();
    for (size_t i = 0; good && i < a.size(); ++i) good = close(a[i], b[i], tol);
    return good;
}

// One pass by the kernel, which must agree with the plain one; returns what the plain one gives.
PassState run_both(const Kernels& k, const RowsView& view, PassState& state, size_t width) {
    PassState expected = state;
    expected.high = expected.low = expected.alpha_sum = expected.support = std::vector<float>(width);
    expected.run_plainly();
    state.run(k, view);
    CHECK(all_close(state.alpha, expected.alpha, 3e-4));
    CHECK(all_close(state.w, expected.w, 3e-4));
    CHECK(all_close(state.bias, expected.bias, 3e-4));
    CHECK(all_close(state.high, expected.high, 2e-3));
    CHECK(all_close(state.low, expected.low, 2e-3));
    CHECK(all_close(state.alpha_sum, expected.alpha_sum, 2e-3));
    CHECK(all_close(state.support, expected.support, 2e-3));
    return expected;
}

void test_dual_pass(const Kernels& k, size_t width, bool logistic, bool learn_bias) {
    Rng rng(width + 2 * logistic + learn_bias);
    const TestRows rows(30, 12, 0.5, rng);
    const uint64_t only_some = 0x5a5a'f00f'1234'8001;
    for (const RowsView& view : rows.views()) {
        PassState state(rows, width, logistic, learn_bias, rng);
        for (int repeat = 0; repeat < 4; ++repeat) {
            rng.shuffle(state.order);
            state.active = repeat == 2 ? only_some : ~uint64_t{0};
            const PassState before = state;
            run_both(k, view, state, width);
            bool still = true, moved = true;
            for (size_t l = 0; l < width; ++l) {
                const bool changed = state.alpha[3 * width + l] != before.alpha[3 * width + l] ||
                                     state.w[2 * width + l] != before.w[2 * width + l];
                (state.active >> l & 1 ? moved : still) &= (state.active >> l & 1) == changed;
            }
            CHECK(still);
            CHECK(moved);
        }
    }
}

// Rows within `still` of their optimum stay, to the bit, and with them the weights of lanes that have no
// other.
void test_still_rows(const Kernels& k, size_t width) {
    Rng rng(width);
    const TestRows rows(30, 12, 0.5, rng);
    for (const RowsView& view : rows.views()) {
        PassState state(rows, width, false, false, rng);
        for (const float still : {0.0f, 0.4f, 1e9f}) {
            state.still = still;
            const PassState before = state;
            const PassState expected = run_both(k, view, state, width);
            size_t n_still = 0;
            for (size_t a = 0; a < state.alpha.size(); ++a) {
                CHECK((state.alpha[a] == before.alpha[a]) == (expected.alpha[a] == before.alpha[a]));
                n_still += state.alpha[a] == before.alpha[a] && before.alpha[a] > 0;
            }
            CHECK((n_still > 0) == (still > 0));
            if (still == 1e9f) CHECK(state.w == before.w);
        }
    }
}

// Lanes never mix: a panel that is wider than needed, with anything in the other lanes, gives the same bits.
void test_wider_panel(const Kernels& k, bool logistic) {
    for (const bool learn_bias : {false, true}) {
        Rng rng(5);
        const TestRows rows(25, 10, 0.5, rng);
        PassState narrow(rows, 16, logistic, learn_bias, rng);
        for (const RowsView& view : rows.views()) {
            for (const size_t width : kWidths) {
                Rng filling(width);
                PassState wide(rows, width, logistic, learn_bias, filling);
                wide.inv_q = narrow.inv_q;
                wide.diagonal = narrow.diagonal;
                PassState state = narrow;
                const auto spread = [&](const std::vector<float>& from, std::vector<float>& to) {
                    for (size_t at = 0; at < from.size(); ++at) to[at / 16 * width + at % 16] = from[at];
                };
                spread(state.w, wide.w);
                spread(state.alpha, wide.alpha);
                spread(state.bias, wide.bias);
                for (size_t i = 0; i < wide.n; ++i)
                    wide.positive[i] = (wide.positive[i] & ~uint64_t{0xffff}) | (state.positive[i] & 0xffff);
                state.active = 0xfff7;
                wide.active = ~uint64_t{8};
                for (int repeat = 0; repeat < 3; ++repeat) {
                    state.run(k, view);
                    wide.run(k, view);
                }
                bool same = true;
                for (size_t at = 0; at < state.w.size(); ++at)
                    same &= state.w[at] == wide.w[at / 16 * width + at % 16];
                for (size_t at = 0; at < state.alpha.size(); ++at)
                    same &= state.alpha[at] == wide.alpha[at / 16 * width + at % 16];
                for (size_t l = 0; l < 16; ++l)
                    same &= state.bias[l] == wide.bias[l] && state.high[l] == wide.high[l] &&
                            state.low[l] == wide.low[l];
                CHECK(same);
            }
        }
    }
}

struct TestProblem {
    TestProblem(size_t n, size_t d, size_t n_classes, bool dense, uint64_t key)
        : rng(key), rows(n, d, 0.4, rng) {
        problem.rows = dense ? rows.dense : rows.sparse.view();
        problem.n_classes = n_classes;
        problem.key = key;
        problem.class_ptr.push_back(0);
        for (size_t i = 0; i < n; ++i) {
            double norm2 = 0;
            for (size_t f = 0; f < d; ++f) norm2 += rows.at(i, f) * rows.at(i, f);
            problem.norm2.push_back(static_cast<float>(norm2));
            problem.weight.push_back(i % 3 ? 1.0f : 2.0f);
            for (uint32_t c = 0; c < n_classes; ++c)
                if (rng.uniform() < 0.02 + 0.5 * c / static_cast<double>(n_classes))
                    problem.classes.push_back(c);
            problem.class_ptr.push_back(static_cast<int64_t>(problem.classes.size()));
        }
    }
    Rng rng;
    TestRows rows;
    Problem problem;
};

constexpr LinearParams kParams{.loss = Loss::squared_hinge,
                               .solver = Solver::dual,
                               .c = 1,
                               .tol = 1e-3,
                               .max_iter = 3000,
                               .learn_bias = true,
                               .fixed_bias = 0,
                               .prune = -1};

// weights[class * d + feature]; each of the panel's classes once for each feature, since nothing is pruned
std::vector<float> spelled_out(const Solution& s, size_t first, size_t n, size_t d) {
    std::vector<float> w(n * d, 0.0f);
    std::vector<int> seen(n * d, 0);
    for (const Weight& e : s.weights) {
        w[(e.cls - first) * d + e.feature] = e.value;
        ++seen[(e.cls - first) * d + e.feature];
    }
    CHECK(seen == std::vector<int>(n * d, 1));
    return w;
}

void test_panels(const Kernels& k, Loss loss, Solver solver, bool dense) {
    const Control control;
    const size_t n = 40, d = 15, n_classes = 80;
    const TestProblem test(n, d, n_classes, dense, 11);
    LinearParams params = kParams;
    params.loss = loss;
    params.solver = solver;
    std::vector<float> w, bias;
    std::vector<int32_t> n_iter;
    for (const size_t first : {0u, 64u}) {
        const size_t size = std::min<size_t>(64, n_classes - first);
        const Solution s = solve_panel(test.problem, first, size, params, k, control);
        const auto part = spelled_out(s, first, size, d);
        w.insert(w.end(), part.begin(), part.end());
        bias.insert(bias.end(), s.bias.begin(), s.bias.end());
        n_iter.insert(n_iter.end(), s.n_iter.begin(), s.n_iter.end());
        CHECK(std::count(s.converged.begin(), s.converged.end(), 1) == static_cast<int64_t>(size));
    }
    CHECK(*std::max_element(n_iter.begin(), n_iter.end()) > *std::min_element(n_iter.begin(), n_iter.end()));
    for (const auto& [first, size] :
         {std::pair<size_t, size_t>{0, 1}, {3, 20}, {30, 33}, {60, 17}, {79, 1}}) {
        const Solution s = solve_panel(test.problem, first, size, params, k, control);
        const auto part = spelled_out(s, first, size, d);
        CHECK(std::equal(part.begin(), part.end(), w.begin() + static_cast<int64_t>(first * d)));
        CHECK(std::equal(s.bias.begin(), s.bias.end(), bias.begin() + static_cast<int64_t>(first)));
        CHECK(std::equal(s.n_iter.begin(), s.n_iter.end(), n_iter.begin() + static_cast<int64_t>(first)));
    }
    // pruning leaves out exactly what it says
    params.prune = 0.3f;
    const Solution pruned = solve_panel(test.problem, 0, 64, params, k, control);
    const auto above =
        std::count_if(w.begin(), w.begin() + 64 * d, [](float v) { return std::abs(v) > 0.3f; });
    CHECK(static_cast<int64_t>(pruned.weights.size()) == above && above > 0);
    // one pass is not enough
    params.max_iter = 1;
    params.tol = 1e-9;
    const Solution hasty = solve_panel(test.problem, 0, 20, params, k, control);
    CHECK(std::count(hasty.converged.begin(), hasty.converged.end(), 0) == 20);
    CHECK(hasty.n_iter == std::vector<int32_t>(20, 1));
}

// Entries that lie apart change nothing: the same classifiers as with all entries in the rows.
void test_singleton_features(const Kernels& k, bool learn_bias) {
    const size_t n = 40, n_classes = 20;
    TestProblem test(n, 15, n_classes, false, 7);
    Rows rows{.n_rows = n, .n_features = 15};
    rows.ptr.push_back(0);
    for (size_t i = 0; i < n; ++i) {
        for_each_entry(test.problem.rows, i, [&](uint32_t f, float v) {
            rows.index.push_back(static_cast<int32_t>(f));
            rows.value.push_back(v);
        });
        for (size_t e = 0; e < i % 3; ++e) {  // row 1 has nothing else
            rows.index.push_back(static_cast<int32_t>(rows.n_features++));
            rows.value.push_back(e == 0 ? 0.7f : -1.5f);
        }
        rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
    }
    std::vector<uint32_t> ids(n);
    for (size_t i = 0; i < n; ++i) ids[i] = static_cast<uint32_t>(i);
    LinearParams params = kParams;
    params.learn_bias = learn_bias;
    params.tol = 1e-4;
    params.max_iter = 10000;
    std::vector<std::vector<float>> w, bias;
    for (const bool apart : {false, true}) {
        Slice::Scratch scratch;
        const Slice slice(rows.view(), ids, {}, scratch, Control(), apart);
        Problem problem = test.problem;
        problem.rows = slice.rows();
        if (apart) problem.singletons = &slice.singletons();
        for (size_t i = 0; i < n; ++i)
            problem.norm2[i] = static_cast<float>(row_norm(rows.view(), i) * row_norm(rows.view(), i));
        CHECK(slice.rows().n_features == (apart ? 15 : rows.n_features));
        for (const float prune : {-1.0f, 0.2f}) {
            params.prune = prune;
            const Solution s = solve_panel(problem, 0, n_classes, params, k, Control());
            CHECK(std::count(s.converged.begin(), s.converged.end(), 1) == int64_t{n_classes});
            if (prune < 0) CHECK(s.weights.size() == rows.n_features * n_classes);
            w.emplace_back(rows.n_features * n_classes, 0.0f);
            for (const Weight& e : s.weights) {
                CHECK(std::abs(e.value) > prune);
                w.back()[e.cls * rows.n_features + slice.features()[e.feature]] = e.value;
            }
            bias.push_back(s.bias);
        }
    }
    CHECK(all_close(w[2], w[0], 1e-3));
    CHECK(all_close(bias[2], bias[0], 1e-3));
    size_t n_pruned = 0;
    for (size_t e = 0; e < w[2].size(); ++e) {
        CHECK(w[3][e] == (std::abs(w[2][e]) > 0.2f ? w[2][e] : 0.0f));
        n_pruned += e % rows.n_features >= 15 && w[2][e] != 0 && w[3][e] == 0;
    }
    CHECK(n_pruned > 0);
}

// Gradient of the objective at the solution, by plain loops: zero up to the tolerance.
void test_optimum(const Kernels& k, Loss loss, Solver solver, bool learn_bias) {
    const size_t n = 50, d = 12, n_classes = 20;
    const TestProblem test(n, d, n_classes, false, 3);
    LinearParams params = kParams;
    params.loss = loss;
    params.solver = solver;
    params.c = 0.7;
    params.tol = 1e-5;
    params.max_iter = 5000;
    params.learn_bias = learn_bias;
    params.fixed_bias = -0.3f;
    const Solution s = solve_panel(test.problem, 0, n_classes, params, k, Control());
    const auto w = spelled_out(s, 0, n_classes, d);
    double largest = 0;
    for (size_t c = 0; c < n_classes; ++c) {
        std::vector<double> gradient(w.begin() + static_cast<int64_t>(c * d),
                                     w.begin() + static_cast<int64_t>((c + 1) * d));
        gradient.push_back(s.bias[c]);
        CHECK(learn_bias || s.bias[c] == -0.3f);
        for (size_t i = 0; i < n; ++i) {
            const auto* begin = test.problem.classes.data() + test.problem.class_ptr[i];
            const auto* end = test.problem.classes.data() + test.problem.class_ptr[i + 1];
            const double y = std::find(begin, end, c) != end ? 1.0 : -1.0;
            double z = s.bias[c];
            for (size_t f = 0; f < d; ++f) z += test.rows.at(i, f) * w[c * d + f];
            z *= y;
            const double slope =
                loss == Loss::squared_hinge ? -2 * std::max(0.0, 1 - z) : -1 / (1 + std::exp(z));
            const double step = params.c * (i % 3 ? 1 : 2) * slope * y;
            for (size_t f = 0; f < d; ++f) gradient[f] += step * test.rows.at(i, f);
            gradient[d] += step;
        }
        if (!learn_bias) gradient.pop_back();
        for (const double g : gradient) largest = std::max(largest, std::abs(g));
    }
    CHECK(largest < 2e-3);
}

void test_corners(const Kernels& k, Loss loss, Solver solver) {
    LinearParams params = kParams;
    params.loss = loss;
    params.solver = solver;
    Problem empty;
    empty.class_ptr = {0};
    empty.n_classes = 3;
    const Rows none{.n_rows = 0, .n_features = 4, .ptr = {0}};
    empty.rows = none.view();
    const Solution nothing = solve_panel(empty, 0, 3, params, k, Control());
    CHECK(nothing.bias == std::vector<float>(3, 0.0f) &&
          std::count(nothing.converged.begin(), nothing.converged.end(), 1) == 3);

    // rows without features, bias held: no weight, and it ends
    Problem bare;
    const Rows zeros{.n_rows = 5, .n_features = 2, .ptr = std::vector<int64_t>(6, 0)};
    bare.rows = zeros.view();
    bare.norm2.assign(5, 0.0f);
    bare.class_ptr = {0, 1, 1, 1, 1, 1};
    bare.classes = {0};
    bare.n_classes = 1;
    params.learn_bias = false;
    params.fixed_bias = 0.5f;
    const Solution still = solve_panel(bare, 0, 1, params, k, Control());
    CHECK(still.bias == std::vector<float>{0.5f});
    for (const Weight& w : still.weights) CHECK(w.value == 0.0f);

    Control stopped;
    stopped.stop = true;
    const TestProblem test(20, 5, 3, false, 3);
    CHECK_THROWS(solve_panel(test.problem, 0, 3, params, k, stopped), "interrupted");
}

}  // namespace

int main() {
    test_names();
    for (const Kernels* k : all_kernels()) {
        for (const size_t n : {0u, 5u, 16u, 77u, 320u}) test_find(*k, n);
        for (const size_t width : kWidths) {
            test_margins_and_scatter(*k, width);
            test_lane_loops(*k, width);
            test_margins_of_sums(*k, width);
            test_bytes(*k, width);
            test_bytes(*k, width + 64);
            for (const size_t used : {0u, 1u, 2u, 31u, 200u})
                for (const bool negative : {false, true}) {
                    test_whole_numbers(*k, width, used, negative);
                    test_whole_numbers(*k, width + 64, used, negative);
                }
            for (const bool logistic : {false, true})
                for (const bool learn_bias : {false, true}) test_dual_pass(*k, width, logistic, learn_bias);
            test_still_rows(*k, width);
        }
        for (const bool logistic : {false, true}) test_wider_panel(*k, logistic);
        for (const bool learn_bias : {false, true}) test_singleton_features(*k, learn_bias);
        for (const Loss loss : {Loss::squared_hinge, Loss::logistic})
            for (const Solver solver : {Solver::dual, Solver::newton}) {
                for (const bool flag : {false, true}) {
                    test_panels(*k, loss, solver, flag);
                    test_optimum(*k, loss, solver, flag);
                }
                test_corners(*k, loss, solver);
            }
    }
    return check::report("linear");
}

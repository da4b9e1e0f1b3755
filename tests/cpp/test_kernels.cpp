#include "kernels/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/random.hpp"
#include "check.hpp"
#include "fixtures.hpp"

using namespace bonsai;

namespace {

constexpr size_t kWidths[] = {16, 32, 48, 64};

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
        k.scatter(view, 0, 4, coef.data(), width, panel.data());
        k.scatter(view, 4, n, coef.data(), width, panel.data());
        good = true;
        for (size_t f = 0; f < d; ++f)
            for (size_t l = 0; l < width; ++l) {
                double sum = w[f * width + l];
                for (size_t i = 0; i < n; ++i) sum += rows.at(i, f) * coef[i * width + l];
                good &= close(panel[f * width + l], sum);
            }
        CHECK(good);
        panel = w;
        k.scatter(view, 0, n, std::vector<float>(n * width, 0.0f).data(), width, panel.data());
        CHECK(panel == w);
    }
}

// Rows to int8 and back; up to 128 lanes.
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

// Sums over rows of int8 weights: dense ones, and bitmaps with packed weights.
void test_int8_sums(const Kernels& k, size_t width, size_t used, bool negative) {
    constexpr size_t most = 128;
    Rng rng(width + used);
    const size_t n = 23;
    std::vector<int8_t> bytes(n * width, 0);
    std::vector<uint8_t> spread(n * kBitmapReadable, 0x5a);  // bytes after the weights are arbitrary
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
    scale[1] = infinity;  // NaN becomes the lowest value
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

void test_columns(const Kernels& k, size_t n) {
    Rng rng(n + 3);
    const auto a = random_panel(n, rng), b = random_panel(n, rng);
    auto y = random_panel(n, rng);
    const auto before = y;
    double dot = 0, squares = 0, size = 0;
    for (size_t i = 0; i < n; ++i) {
        dot += double{a[i]} * b[i];
        squares += double{a[i]} * a[i] * b[i];
        size += std::abs(a[i] * b[i]) + std::abs(a[i] * a[i] * b[i]);
    }
    CHECK(std::abs(k.dot(a.data(), b.data(), n) - dot) <= 1e-6 * size);
    CHECK(std::abs(k.dot_squares(a.data(), b.data(), n) - squares) <= 1e-6 * size);
    k.add_product(y.data(), a.data(), b.data(), -0.75f, n);
    bool good = true;
    for (size_t i = 0; i < n; ++i) good &= close(y[i], before[i] - 0.75 * a[i] * b[i]);
    CHECK(good);
}

void test_logistic_rows(const Kernels& k, size_t n) {
    Rng rng(n + 4);
    const auto random = random_panel(2 * n, rng);
    std::vector<float> sign(n), cost(n), margin(n), direction(n), residual(n + 1, 9), curvature(n + 1, 9);
    double loss = 0;
    bool good = true;
    for (size_t i = 0; i < n; ++i) {
        sign[i] = rng.below(2) ? 1.0f : -1.0f;
        cost[i] = i == 7 ? 1e-37f : 0.5f + static_cast<float>(rng.below(3));
        margin[i] = i == 11 ? -60.0f : i == 12 ? 60.0f : 5 * random[i];
        direction[i] = random[n + i];
    }
    const LogisticRows rows{sign.data(), cost.data(), margin.data(), direction.data(), n, 1e-12f};
    const double found = k.logistic_rows(rows, 0.5f, residual.data(), curvature.data());
    for (size_t i = 0; i < n; ++i) {
        const double z = sign[i] * (margin[i] + 0.5 * direction[i]), wrong = 1 / (1 + std::exp(z));
        loss += cost[i] * (std::log1p(std::exp(-std::abs(z))) + std::max(0.0, -z));
        const double rounding = 3e-7 * (1 + std::abs(z)) * wrong * cost[i] + 1e-44;
        const double of_loss = z < 0 ? (wrong - 0.5) / -z : wrong * (1 - wrong);
        const double curve = std::max({cost[i] * of_loss, 1e-12 * cost[i], 1.17549435e-38});
        good &= std::abs(residual[i] + double{cost[i]} * sign[i] * wrong) <= rounding;
        good &= curvature[i] > 0 && std::abs(curvature[i] - curve) <= 1e-5 * cost[i];
    }
    CHECK(good && residual[n] == 9 && curvature[n] == 9);
    CHECK(std::abs(found - loss) <= 1e-6 * loss);
}

// A panel in the initial state of a pass, and the same pass as plain loops in double.
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
        }
    }

    double sign(size_t i, size_t l) const { return positive[i] >> l & 1 ? 1.0 : -1.0; }

    void move(size_t i, size_t l, double to) {
        const double by = (to - alpha[i * width + l]) * sign(i, l);
        alpha[i * width + l] = static_cast<float>(to);
        for (size_t f = 0; f < d; ++f) w[f * width + l] += static_cast<float>(by * rows.at(i, f));
        if (learn_bias && logistic) bias[l] += static_cast<float>(by);
    }

    // Runs the pass in parts of this many rows.
    void run(const Kernels& k, const RowsView& view, size_t part = 1000) {
        for (auto* sums : {&high, &low, &residual, &alpha_sum, &support}) sums->assign(width, 0.0f);
        for (size_t begin = 0; begin < n; begin += part) run_part(k, view, begin, std::min(part, n - begin));
    }

    void run_part(const Kernels& k, const RowsView& view, size_t begin, size_t n_part) {
        const DualPass pass{.rows = view,
                            .order = order.data() + begin,
                            .n = n_part,
                            .positive = positive.data(),
                            .inv_q = inv_q.data(),
                            .diagonal = diagonal.data(),
                            .active = active,
                            .width = width,
                            .learn_bias = learn_bias,
                            .min_gradient = min_gradient,
                            .w = w.data(),
                            .bias = bias.data(),
                            .alpha = alpha.data(),
                            .gradient_max = high.data(),
                            .gradient_min = low.data(),
                            .residual = residual.data(),
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
            double most = 0, least = 0, misfit = 0;
            for (const uint32_t i : order) {
                double margin = bias[l];
                for (size_t f = 0; f < d; ++f) margin += rows.at(i, f) * w[f * width + l];
                const double a = alpha[i * width + l], z = sign(i, l) * margin;
                if (logistic) {
                    misfit += std::abs(diagonal[i] / (1 + std::exp(z)) - a);
                    if (!(active >> l & 1)) continue;
                    move(i, l, logistic_optimum(a, diagonal[i], 1.0 / inv_q[i], z));
                    continue;
                }
                const double g = z - 1 + a * diagonal[i], projected = a == 0 ? std::min(g, 0.0) : g;
                most = std::max(most, projected);
                least = std::min(least, projected);
                if (std::abs(projected) > min_gradient && active >> l & 1)
                    move(i, l, std::max(a - g * inv_q[i], 0.0));
            }
            high[l] = static_cast<float>(most);
            low[l] = static_cast<float>(least);
            residual[l] = static_cast<float>(misfit);
            double sum = 0, weight = 0;
            for (size_t i = 0; i < n; ++i) {
                sum += (logistic ? 1 : sign(i, l)) * alpha[i * width + l];
                weight += !logistic && alpha[i * width + l] > 0 ? inv_q[i] : 0.0;
            }
            alpha_sum[l] = static_cast<float>(sum);
            support[l] = static_cast<float>(weight);
        }
    }

    const TestRows& rows;
    size_t width, n, d;
    bool logistic, learn_bias;
    float min_gradient = 0;
    uint64_t active = ~uint64_t{0};
    std::vector<uint32_t> order;
    std::vector<uint64_t> positive;
    std::vector<float> inv_q, diagonal, w, bias, alpha, high, low, residual, alpha_sum, support;
};

// One pass by the kernel, which must agree with the plain pass; returns the result of the plain pass.
PassState run_both(const Kernels& k, const RowsView& view, PassState& state, size_t width) {
    PassState expected = state;
    expected.high = expected.low = expected.residual = expected.alpha_sum = expected.support =
        std::vector<float>(width);
    expected.run_plainly();
    state.run(k, view);
    CHECK(all_close(state.alpha, expected.alpha, 3e-4));
    CHECK(all_close(state.w, expected.w, 3e-4));
    CHECK(all_close(state.bias, expected.bias, 3e-4));
    CHECK(all_close(state.high, expected.high, 2e-3));
    CHECK(all_close(state.low, expected.low, 2e-3));
    CHECK(all_close(state.residual, expected.residual, 2e-3));
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
            bool untouched = true, moved = true;
            for (size_t l = 0; l < width; ++l) {
                const bool changed = state.alpha[3 * width + l] != before.alpha[3 * width + l] ||
                                     state.w[2 * width + l] != before.w[2 * width + l];
                (state.active >> l & 1 ? moved : untouched) &= (state.active >> l & 1) == changed;
            }
            CHECK(untouched);
            CHECK(moved);
        }
    }
}

// Variables with a projected gradient up to min_gradient keep their bits, and so do the weights of lanes
// without an update.
void test_min_gradient(const Kernels& k, size_t width) {
    Rng rng(width);
    const TestRows rows(30, 12, 0.5, rng);
    for (const RowsView& view : rows.views()) {
        PassState state(rows, width, false, false, rng);
        for (const float min_gradient : {0.0f, 0.4f, 1e9f}) {
            state.min_gradient = min_gradient;
            const PassState before = state;
            const PassState expected = run_both(k, view, state, width);
            size_t n_kept = 0;
            for (size_t a = 0; a < state.alpha.size(); ++a) {
                CHECK((state.alpha[a] == before.alpha[a]) == (expected.alpha[a] == before.alpha[a]));
                n_kept += state.alpha[a] == before.alpha[a] && before.alpha[a] > 0;
            }
            CHECK((n_kept > 0) == (min_gradient > 0));
            if (min_gradient == 1e9f) CHECK(state.w == before.w);
        }
    }
}

// A pass in parts gives the same bits as in one.
void test_pass_in_parts(const Kernels& k, bool logistic) {
    Rng rng(6);
    const TestRows rows(30, 12, 0.5, rng);
    for (const RowsView& view : rows.views()) {
        PassState whole(rows, 32, logistic, true, rng);
        rng.shuffle(whole.order);
        PassState parts = whole;
        for (int repeat = 0; repeat < 3; ++repeat) {
            whole.run(k, view);
            parts.run(k, view, 7);
            CHECK(whole.w == parts.w && whole.alpha == parts.alpha && whole.bias == parts.bias);
            CHECK(whole.high == parts.high && whole.low == parts.low && whole.residual == parts.residual);
            CHECK(whole.alpha_sum == parts.alpha_sum && whole.support == parts.support);
        }
    }
}

// Lanes never mix: a wider panel with arbitrary contents in the other lanes gives the same bits.
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
                            state.low[l] == wide.low[l] && state.residual[l] == wide.residual[l];
                CHECK(same);
            }
        }
    }
}

}  // namespace

int main() {
    test_names();
    for (const Kernels* k : all_kernels()) {
        for (const size_t n : {0u, 5u, 16u, 77u, 320u}) {
            test_find(*k, n);
            test_columns(*k, n);
            test_logistic_rows(*k, n);
        }
        for (const size_t width : kWidths) {
            test_margins_and_scatter(*k, width);
            test_lane_loops(*k, width);
            test_margins_of_sums(*k, width);
            test_bytes(*k, width);
            test_bytes(*k, width + 64);
            for (const size_t used : {0u, 1u, 2u, 31u, 200u})
                for (const bool negative : {false, true}) {
                    test_int8_sums(*k, width, used, negative);
                    test_int8_sums(*k, width + 64, used, negative);
                }
            for (const bool logistic : {false, true})
                for (const bool learn_bias : {false, true}) test_dual_pass(*k, width, logistic, learn_bias);
            test_min_gradient(*k, width);
        }
        for (const bool logistic : {false, true}) {
            test_wider_panel(*k, logistic);
            test_pass_in_parts(*k, logistic);
        }
    }
    return check::report("kernels");
}

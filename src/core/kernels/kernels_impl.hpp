// The kernels, written once over the compiler's vector types and compiled once for each instruction set.
// Everything is in an anonymous namespace: no symbol compiled for AVX may be picked by the linker for plain
// code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels/kernels.hpp"

namespace bonsai {
namespace {

#if defined(__AVX512F__)
constexpr size_t kVector = 16;
#elif defined(__AVX2__)
constexpr size_t kVector = 8;
#else
constexpr size_t kVector = 4;
#endif

typedef float Vec __attribute__((vector_size(kVector * 4)));
typedef int32_t Mask __attribute__((vector_size(kVector * 4)));

Vec load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
void store(float* p, Vec v) {
    std::memcpy(p, &v, sizeof v);
}
Vec broadcast(float x) {
    return x - Vec{};  // x - 0 is x for every x, -0.0 included, as x + 0 is not
}

// -1 in the lanes whose bit is set.
Mask lanes_of(uint64_t bits) {
    Mask lane;
    for (size_t l = 0; l < kVector; ++l) lane[l] = 1 << l;
    return ((static_cast<int32_t>(bits & ((1u << kVector) - 1)) - Mask{}) & lane) != 0;
}
bool any(Mask m) {
    typedef int64_t Wide __attribute__((vector_size(kVector * 4)));
    const Wide wide = reinterpret_cast<Wide>(m);
    int64_t all = 0;
    for (size_t l = 0; l < kVector / 2; ++l) all |= wide[l];
    return all != 0;
}

// Bit l: lane l of the mask is set.
uint64_t bits_of(Mask m) {
#if defined(__AVX512F__)
    return _mm512_movepi32_mask(reinterpret_cast<__m512i>(m));
#elif defined(__AVX2__)
    return static_cast<uint64_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(m)));
#else
    uint64_t bits = 0;
    for (size_t l = 0; l < kVector; ++l) bits |= uint64_t(m[l] & 1) << l;
    return bits;
#endif
}

// Into L2, where it waits for its turn.
void prefetch(const float* row, size_t width) {
    for (size_t l = 0; l < width; l += kLaneStep) __builtin_prefetch(row + l, 0, 2);
}

template <size_t NV>
void sparse_dot(const RowsView& rows, int64_t begin, int64_t end, const float* w, Vec (&acc)[NV]) {
    constexpr size_t B = NV * kVector;
    // Copies: the compiler keeps them in registers, as nothing else can point to them.
    const int32_t* index = rows.index;
    const float* value = rows.value;
    Vec sum[NV];
    for (size_t j = 0; j < NV; ++j) sum[j] = acc[j];
    for (int64_t e = begin; e < end; ++e) {
        const Vec v = broadcast(value[e]);
        const float* p = w + size_t(index[e]) * B;
        for (size_t j = 0; j < NV; ++j) sum[j] += v * load(p + j * kVector);
    }
    for (size_t j = 0; j < NV; ++j) acc[j] = sum[j];
}

template <size_t NV>
void dense_dot(const RowsView& rows, size_t i, const float* w, Vec (&acc)[NV]) {
    constexpr size_t B = NV * kVector;
    const float* x = rows.dense_row(i);
    Vec sum[NV] = {};
    for (size_t f = 0; f < rows.n_features; ++f) {
        const Vec v = broadcast(x[f]);
        for (size_t j = 0; j < NV; ++j) sum[j] += v * load(w + f * B + j * kVector);
    }
    const Vec scale = broadcast(rows.dense_scale(i));
    for (size_t j = 0; j < NV; ++j) acc[j] += scale * sum[j];
}

template <size_t NV>
void dot(const RowsView& rows, size_t i, const float* w, Vec (&acc)[NV]) {
    if (rows.is_dense())
        dense_dot<NV>(rows, i, w, acc);
    else
        sparse_dot<NV>(rows, rows.ptr[i], rows.ptr[i + 1], w, acc);
}

// A panel beyond this does not live in L2: while one row is added, the panel rows of the next are fetched.
constexpr size_t kFarBytes = 1 << 20;

// Where the groups of kLaneStep lanes begin in a panel row, and the vectors of each.
constexpr size_t kGroups[] = {0, kLaneStep, 2 * kLaneStep, 3 * kLaneStep};
constexpr size_t kUnit = kLaneStep / kVector;

// w += step x row i, in the NV vectors of the groups that begin at group[0], group[1], ... Row `next` comes
// after it.
template <size_t NV>
void add_row(const RowsView& rows, size_t i, const Vec* step, const size_t* group, float* w, size_t width,
             size_t next) {
    float* lane[NV / kUnit];
    for (size_t g = 0; g < NV / kUnit; ++g) lane[g] = w + group[g];
    Vec mine[NV];
    for (size_t j = 0; j < NV; ++j)
        mine[j] = rows.is_dense() ? step[j] * broadcast(rows.dense_scale(i)) : step[j];
    const auto add = [&](size_t f, float x) {
        const Vec v = broadcast(x);
        for (size_t j = 0; j < NV; ++j) {
            float* p = lane[j / kUnit] + f * width + j % kUnit * kVector;
            store(p, load(p) + v * mine[j]);
        }
    };
    if (rows.is_dense()) {
        const float* x = rows.dense_row(i);
        for (size_t f = 0; f < rows.n_features; ++f) add(f, x[f]);
        return;
    }
    const int32_t* index = rows.index;
    const float* value = rows.value;
    const bool far = rows.n_features * width * sizeof(float) > kFarBytes;
    int64_t fetch = rows.ptr[next];
    const int64_t fetch_end = far ? rows.ptr[next + 1] : fetch;
    for (int64_t e = rows.ptr[i], end = rows.ptr[i + 1]; e < end; ++e) {
        if (fetch < fetch_end) prefetch(w + size_t(index[fetch++]) * width, width);
        add(size_t(index[e]), value[e]);
    }
}

// The panel's width decides the template: fn.operator()<NV>().
template <class Fn>
void for_width(size_t width, Fn&& fn) {
    switch (width / kLaneStep) {
        case 1:
            return fn.template operator()<1 * kUnit>();
        case 2:
            return fn.template operator()<2 * kUnit>();
        case 3:
            return fn.template operator()<3 * kUnit>();
        default:
            return fn.template operator()<4 * kUnit>();
    }
}

// What the next row of a pass needs, asked for while this one is worked on: rows come in random order.
void fetch_row(const DualPass& pass, size_t i) {
    prefetch(pass.alpha + i * pass.width, pass.width);
    __builtin_prefetch(pass.positive + i);
    __builtin_prefetch(pass.diagonal + i);
    __builtin_prefetch(pass.inv_q + i);
    if (pass.rows.is_dense()) return;
    constexpr int64_t line = 16;
    for (int64_t e = pass.rows.ptr[i]; e < pass.rows.ptr[i + 1]; e += line) {
        __builtin_prefetch(pass.rows.index + e);
        __builtin_prefetch(pass.rows.value + e);
    }
}

// Algorithm 1 of Hsieh et al., "A dual coordinate descent method for large-scale linear SVM" (ICML 2008), L2
// loss, without shrinking, in lockstep for all lanes. Nearly all moves are tiny, those of rows that have
// little to do with a class: such a row is left as it is, and groups of lanes of which no one moves are not
// written to.
template <size_t NV>
void dual_squared_hinge(const DualPass& pass) {
    constexpr size_t B = NV * kVector;
    const Vec zero = {}, one = broadcast(1.0f), still = broadcast(pass.still);
    Vec bias[NV], high[NV], low[NV], alpha_sum[NV] = {}, support[NV] = {};
    Mask active[NV];
    for (size_t j = 0; j < NV; ++j) {
        bias[j] = load(pass.bias + j * kVector);
        high[j] = low[j] = zero;  // what they should be
        active[j] = lanes_of(pass.active >> (j * kVector));
    }
    for (size_t t = 0; t < pass.rows.n_rows; ++t) {
        const size_t i = pass.order[t], next = pass.order[std::min(t + 1, pass.rows.n_rows - 1)];
        fetch_row(pass, next);
        Vec acc[NV];
        for (size_t j = 0; j < NV; ++j) acc[j] = bias[j];
        dot<NV>(pass.rows, i, pass.w, acc);
        float* alpha = pass.alpha + i * B;
        const Vec diagonal = broadcast(pass.diagonal[i]), inv_q = broadcast(pass.inv_q[i]);
        Vec step[NV];  // of the groups that move
        size_t group[NV / kUnit], n_moved = 0;
        for (size_t g = 0; g < NV / kUnit; ++g) {
            Mask moved = {};
            for (size_t u = 0; u < kUnit; ++u) {
                const size_t j = g * kUnit + u;
                const Vec sign = lanes_of(pass.positive[i] >> (j * kVector)) ? one : -one;
                const Vec a = load(alpha + j * kVector);
                const Vec gradient = sign * acc[j] - one + a * diagonal;
                const Vec projected = (a == zero) & (gradient > zero) ? zero : gradient;
                high[j] = projected > high[j] ? projected : high[j];
                low[j] = projected < low[j] ? projected : low[j];
                const Mask moves = active[j] & ((projected > still) | (projected < -still));
                Vec next = a - gradient * inv_q;
                next = next > zero ? next : zero;
                next = moves ? next : a;
                store(alpha + j * kVector, next);
                alpha_sum[j] += sign * next;
                support[j] += next > zero ? inv_q : zero;
                step[n_moved * kUnit + u] = (next - a) * sign;
                moved |= moves;
            }
            if (any(moved)) group[n_moved++] = kGroups[g];
        }
        if (n_moved == 0) continue;
        for_width(n_moved * kLaneStep,
                  [&]<size_t N>() { add_row<N>(pass.rows, i, step, group, pass.w, B, next); });
    }
    for (size_t j = 0; j < NV; ++j) {
        store(pass.alpha_sum + j * kVector, alpha_sum[j]);
        store(pass.support + j * kVector, support[j]);
        store(pass.gradient_max + j * kVector, high[j]);
        store(pass.gradient_min + j * kVector, low[j]);
    }
}

// One variable of the logistic dual: min over 0 < z < C of z log z + (C - z) log(C - z) + a/2 (z - z0)^2 + b
// (z - z0), by Newton steps on z or on C - z, whichever is further from its bound (Yu, Huang and Lin, "Dual
// coordinate descent methods for logistic regression and maximum entropy models", 2011, Algorithm 4). Returns
// the new z; *gradient is the derivative at z0.
inline double logistic_step(double z0, double c, double a, double b, double* gradient) {
    // From whichever end is nearer to the solution, so that logarithms keep their precision.
    const bool from_top = 0.5 * a * (c - 2 * z0) + b < 0;
    double z = from_top ? c - z0 : z0;
    const double start = z, sign = from_top ? -1.0 : 1.0;
    if (c - z < 0.5 * c) z *= 0.1;
    double derivative = a * (z - start) + sign * b + std::log(z / (c - z));
    *gradient = sign * b + std::log(start / (c - start));
    for (int inner = 0; inner < 100 && std::abs(derivative) >= 1e-12; ++inner) {
        const double curvature = a + c / ((c - z) * z);
        const double next = z - derivative / curvature;
        z = next <= 0 ? z * 0.1 : next;
        if (z >= c) z = c * (1 - 1e-15);
        derivative = a * (z - start) + sign * b + std::log(z / (c - z));
    }
    return from_top ? c - z : z;
}

template <size_t NV>
void dual_logistic(const DualPass& pass) {
    constexpr size_t B = NV * kVector;
    for (size_t l = 0; l < B; ++l) {
        pass.gradient_max[l] = 0;
        pass.gradient_min[l] = 0;
    }
    for (size_t t = 0; t < pass.rows.n_rows; ++t) {
        const size_t i = pass.order[t], next = pass.order[std::min(t + 1, pass.rows.n_rows - 1)];
        fetch_row(pass, next);
        Vec acc[NV];
        for (size_t j = 0; j < NV; ++j) acc[j] = load(pass.bias + j * kVector);
        dot<NV>(pass.rows, i, pass.w, acc);
        const double c = pass.diagonal[i], q = 1.0 / pass.inv_q[i];
        alignas(64) float margin[B], delta[B];
        for (size_t j = 0; j < NV; ++j) store(margin + j * kVector, acc[j]);
        for (size_t l = 0; l < B; ++l) {
            delta[l] = 0;
            if (!(pass.active >> l & 1)) continue;
            const float sign = pass.positive[i] >> l & 1 ? 1.0f : -1.0f;
            float& alpha = pass.alpha[i * B + l];
            double gradient;
            const double next = logistic_step(alpha, c, q, double{sign} * margin[l], &gradient);
            pass.gradient_max[l] = std::max(pass.gradient_max[l], static_cast<float>(std::abs(gradient)));
            // Float keeps alpha strictly inside (0, C): the logarithms of the next pass need it.
            const float inside = std::clamp(static_cast<float>(next), static_cast<float>(c * 1e-30),
                                            std::nextafter(static_cast<float>(c), 0.0f));
            delta[l] = (inside - alpha) * sign;
            alpha = inside;
        }
        Vec step[NV];
        for (size_t j = 0; j < NV; ++j) step[j] = load(delta + j * kVector);
        add_row<NV>(pass.rows, i, step, kGroups, pass.w, B, next);
        if (pass.learn_bias)
            for (size_t l = 0; l < B; ++l) pass.bias[l] += delta[l];
    }
}

template <size_t NV>
void margins(const RowsView& rows, size_t begin, size_t end, const float* w, float* out, size_t stride) {
    for (size_t i = begin; i < end; ++i) {
        Vec acc[NV] = {};
        dot<NV>(rows, i, w, acc);
        for (size_t j = 0; j < NV; ++j) store(out + (i - begin) * stride + j * kVector, acc[j]);
    }
}

template <size_t NV>
void scatter(const RowsView& rows, const float* coef, float* w) {
    for (size_t i = 0; i < rows.n_rows; ++i) {
        Vec step[NV];
        Mask moved = {};
        for (size_t j = 0; j < NV; ++j) {
            step[j] = load(coef + (i * NV + j) * kVector);
            moved |= step[j] != Vec{};
        }
        if (any(moved))
            add_row<NV>(rows, i, step, kGroups, w, NV * kVector, std::min(i + 1, rows.n_rows - 1));
    }
}

template <size_t NV>
void lane_dots(const float* a, const float* b, size_t n, double* out) {
    constexpr size_t B = NV * kVector;
    typedef double Doubles __attribute__((vector_size(kVector * 8)));
    Doubles sum[NV] = {};
    for (size_t e = 0; e < n * B; e += B)
        for (size_t j = 0; j < NV; ++j)
            sum[j] += __builtin_convertvector(load(a + e + j * kVector), Doubles) *
                      __builtin_convertvector(load(b + e + j * kVector), Doubles);
    std::memcpy(out, sum, sizeof sum);
}

void lane_axpy(float* y, const float* x, size_t n, size_t width, const float* scale, const float* step) {
    for (size_t f = 0; f < n; ++f)
        for (size_t l = 0; l < width; l += kVector) {
            float* p = y + f * width + l;
            store(p, load(scale + l) * load(p) + load(step + l) * load(x + f * width + l));
        }
}

float quantise_int8(const float* row, const float* factor, size_t width, int8_t* out) {
    Vec most = {};
    for (size_t l = 0; l < width; l += kVector) {
        const Vec v = load(row + l) * load(factor + l), size = v < Vec{} ? -v : v;
        most = size > most ? size : most;
    }
    float largest = 0;
    for (size_t l = 0; l < kVector; ++l) largest = std::max(largest, most[l]);
    const float scale = largest / 127;
    if (!(1 / scale < INFINITY)) {  // zero, or too small to divide by
        std::fill_n(out, width, int8_t{0});
        return 0;
    }
    constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, in the low bits
    for (size_t l = 0; l < width; l += kVector) {
        const Vec rounded = load(row + l) * load(factor + l) * broadcast(1 / scale) + broadcast(shift);
        int32_t whole[kVector];
        std::memcpy(whole, &rounded, sizeof whole);
        for (size_t m = 0; m < kVector; ++m) out[l + m] = static_cast<int8_t>(whole[m]);
    }
    return scale;
}

// 16-bit lanes, twice as many in a register.
typedef int16_t Shorts __attribute__((vector_size(kVector * 4)));

Shorts load(const int16_t* p) {
    Shorts v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
// round(a * b / 2^15), and sums that stop at the ends of the range.
Shorts multiply(Shorts a, Shorts b) {
#if defined(__AVX512F__)
    return reinterpret_cast<Shorts>(
        _mm512_mulhrs_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<Shorts>(
        _mm256_mulhrs_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
    Shorts v;
    for (size_t l = 0; l < 2 * kVector; ++l) v[l] = static_cast<int16_t>((a[l] * b[l] + 0x4000) >> 15);
    return v;
#endif
}

#if defined(__AVX2__)
// For each map of eight: where each of its lanes finds its byte; nowhere, which gives 0, if its bit is not
// set.
struct Places {
    constexpr Places() : of{} {
        for (size_t map = 0; map < 256; ++map)
            for (uint8_t l = 0, n = 0; l < 8; ++l) of[map][l] = map >> l & 1 ? n++ : 0x80;
    }
    uint8_t of[256][8];
};
constexpr Places kPlaces;

// The bytes of a map's eight lanes, in their places, 0 in the others.
__m128i expand_eight(uint64_t map, const uint8_t* bytes) {
    return _mm_shuffle_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)),
                            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kPlaces.of[map & 0xff])));
}
#endif

// The signed bytes of a map's lanes, in their places, 0 in the others.
#if defined(__AVX512F__)
__m512i expand(uint64_t map, const uint8_t* bytes) {
    return _mm512_maskz_expand_epi32(
        static_cast<__mmask16>(map),
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
}
#elif defined(__AVX2__)
__m256i expand(uint64_t map, const uint8_t* bytes) {
    return _mm256_cvtepi8_epi32(expand_eight(map, bytes));
}
#endif

void expand_bitmap(const uint8_t* bytes, size_t width, int8_t* out) {
    constexpr size_t map_bytes = 16;
    const uint8_t* next = bytes + map_bytes;
#if defined(__AVX512VBMI2__)
    for (size_t c = 0; c < width; c += 64, bytes += 8) {
        uint64_t map;
        std::memcpy(&map, bytes, sizeof map);
        const uint64_t lanes = width - c < 64 ? ~uint64_t{0} >> (64 - (width - c)) : ~uint64_t{0};
        _mm512_mask_storeu_epi8(out + c, lanes, _mm512_maskz_expand_epi8(map, _mm512_loadu_si512(next)));
        next += __builtin_popcountll(map);
    }
    return;
#endif
    for (size_t c = 0; c < width / 8; ++c, out += 8) {
#if defined(__AVX2__)
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out), expand_eight(bytes[c], next));
        next += __builtin_popcount(bytes[c]);
#else
        for (size_t l = 0; l < 8; ++l) out[l] = bytes[c] >> l & 1 ? static_cast<int8_t>(*next++) : int8_t{0};
#endif
    }
}

#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__)
// Features four by four: one instruction multiplies four bytes of weights with four of values, and adds them
// up. Values have two bytes, both of which are taken as unsigned: a negative value becomes a positive one of
// negative weights.
struct Quad {
    const int8_t* row[4];
    __m512i low, high;  // bytes of the values
    uint64_t negative;  // bits 15, 31, ...

    Quad(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value) {
        for (size_t f = 0; f < 4; ++f) row[f] = panel + size_t{place[f]} * width;
        __m128i values = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(value));
        negative = static_cast<uint64_t>(_mm_cvtsi128_si64(values)) & 0x8000800080008000;
        if (negative) values = _mm_abs_epi16(values);
        const __m128i bytes =
            _mm_shuffle_epi8(values, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1));
        low = _mm512_broadcastd_epi32(bytes);
        high = _mm512_broadcastd_epi32(_mm_srli_epi64(bytes, 32));
    }
    __m512i lanes64(size_t f, size_t at) const {
        const __m512i bytes = _mm512_loadu_si512(row[f] + at);
        return negative >> (16 * f + 15) & 1 ? _mm512_sub_epi8(__m512i{}, bytes) : bytes;
    }
    __m128i lanes16(size_t f, size_t at) const {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[f] + at));
        return negative >> (16 * f + 15) & 1 ? _mm_sub_epi8(__m128i{}, bytes) : bytes;
    }
};
struct Sums {
    __m512i low = {}, high = {};  // 16 each: of low bytes, and of high ones
    void add(__m512i weights, const Quad& quad) {
        low = _mm512_dpbusd_epi32(low, quad.low, weights);
        high = _mm512_dpbusd_epi32(high, quad.high, weights);
    }
    __m512i all() const { return (__m512i)((Mask)low + ((Mask)high << 8)); }
};
void add_to(int32_t* out, __m512i sums) {
    _mm512_storeu_si512(out, _mm512_add_epi32(_mm512_loadu_si512(out), sums));
}

template <class Fn>
void for_each_quad(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value, size_t n,
                   Fn&& fn) {
    constexpr size_t ahead = 8;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        if (i + ahead + 4 <= n)
            for (size_t f = 0; f < 4; ++f) {
                const int8_t* later = panel + size_t{place[i + ahead + f]} * width;
                __builtin_prefetch(later);
                if (width > 64) __builtin_prefetch(later + 64);
            }
        fn(Quad(panel, width, place + i, value + i));
    }
    if (i == n) return;
    uint32_t last_place[4] = {};
    int16_t last_value[4] = {};
    std::copy(place + i, place + n, last_place);
    std::copy(value + i, value + n, last_value);
    fn(Quad(panel, width, last_place, last_value));
}

template <size_t N64>
void sum_lanes64(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value, size_t n,
                 int32_t* out) {
    Sums sums[N64][4];
    for_each_quad(panel, width, place, value, n, [&](const Quad& quad) {
        for (size_t j = 0; j < N64; ++j) {
            const __m512i a = quad.lanes64(0, 64 * j), b = quad.lanes64(1, 64 * j);
            const __m512i c = quad.lanes64(2, 64 * j), d = quad.lanes64(3, 64 * j);
            const __m512i ab0 = _mm512_unpacklo_epi8(a, b), ab1 = _mm512_unpackhi_epi8(a, b);
            const __m512i cd0 = _mm512_unpacklo_epi8(c, d), cd1 = _mm512_unpackhi_epi8(c, d);
            sums[j][0].add(_mm512_unpacklo_epi16(ab0, cd0), quad);
            sums[j][1].add(_mm512_unpackhi_epi16(ab0, cd0), quad);
            sums[j][2].add(_mm512_unpacklo_epi16(ab1, cd1), quad);
            sums[j][3].add(_mm512_unpackhi_epi16(ab1, cd1), quad);
        }
    });
    // The q-th of them holds lanes 4 q ... 4 q + 3 of each group of 16.
    for (size_t j = 0; j < N64; ++j)
        for (size_t q = 0; q < 4; ++q) {
            int32_t lanes[16];
            _mm512_storeu_si512(lanes, sums[j][q].all());
            for (size_t l = 0; l < 16; ++l) out[64 * j + l / 4 * 16 + 4 * q + l % 4] += lanes[l];
        }
}

template <size_t N16>
void sum_lanes16(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value, size_t n,
                 int32_t* out) {
    alignas(64) static constexpr struct Order {  // lane by lane what comes feature by feature
        constexpr Order() : at{} {
            for (uint8_t b = 0; b < 64; ++b) at[b] = static_cast<uint8_t>(b % 4 * 16 + b / 4);
        }
        uint8_t at[64];
    } order;
    const __m512i by_lane = _mm512_load_si512(order.at);
    Sums sums[N16];
    for_each_quad(panel, width, place, value, n, [&](const Quad& quad) {
        for (size_t j = 0; j < N16; ++j) {
            __m512i four = _mm512_castsi128_si512(quad.lanes16(0, 16 * j));
            four = _mm512_inserti32x4(four, quad.lanes16(1, 16 * j), 1);
            four = _mm512_inserti32x4(four, quad.lanes16(2, 16 * j), 2);
            four = _mm512_inserti32x4(four, quad.lanes16(3, 16 * j), 3);
            sums[j].add(_mm512_permutexvar_epi8(by_lane, four), quad);
        }
    });
    for (size_t j = 0; j < N16; ++j) add_to(out + 16 * j, sums[j].all());
}
#else
// Features two by two: the bytes of both side by side, widened, times both values, and their sum are then few
// instructions.
template <size_t N16>
void sum_lanes16(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value, size_t n,
                 int32_t* out) {
#if defined(__AVX2__)
    constexpr size_t ahead = 8;
    alignas(16) static constexpr int8_t nothing[16 * N16] = {};
    typedef int32_t Eight __attribute__((vector_size(32)));
    Eight sum[2 * N16];
    std::memcpy(sum, out, sizeof sum);
    const auto add = [&](const int8_t* a, const int8_t* b, uint16_t first, uint32_t second) {
        const __m256i both = _mm256_set1_epi32(static_cast<int32_t>(first | second << 16));
        for (size_t j = 0; j < N16; ++j) {
            const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + 16 * j));
            const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 16 * j));
            sum[2 * j] += (Eight)_mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y)), both);
            sum[2 * j + 1] += (Eight)_mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y)), both);
        }
    };
    const auto row = [&](size_t i) { return panel + size_t{place[i]} * width; };
    size_t i = 0;
    for (; i + 2 <= n; i += 2) {
        if (i + ahead + 2 <= n) {
            __builtin_prefetch(row(i + ahead));
            __builtin_prefetch(row(i + ahead + 1));
        }
        add(row(i), row(i + 1), static_cast<uint16_t>(value[i]), static_cast<uint16_t>(value[i + 1]));
    }
    if (i < n) add(row(i), nothing, static_cast<uint16_t>(value[i]), 0);
    std::memcpy(out, sum, sizeof sum);
#else
    for (size_t i = 0; i < n; ++i)
        for (size_t c = 0; c < 16 * N16; ++c) out[c] += value[i] * panel[size_t{place[i]} * width + c];
#endif
}

template <size_t N64>
void sum_lanes64(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value, size_t n,
                 int32_t* out) {
    for (size_t c = 0; c < 64 * N64; c += 64) sum_lanes16<4>(panel + c, width, place, value, n, out + c);
}
#endif

void accumulate_int8(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value, size_t n,
                     int32_t* out) {
    if (width >= 128)
        sum_lanes64<2>(panel, width, place, value, n, out);
    else if (width >= 64)
        sum_lanes64<1>(panel, width, place, value, n, out);
    const size_t c = width / 64 * 64;
    if (width - c == 48)
        sum_lanes16<3>(panel + c, width, place, value, n, out + c);
    else if (width - c == 32)
        sum_lanes16<2>(panel + c, width, place, value, n, out + c);
    else if (width - c == 16)
        sum_lanes16<1>(panel + c, width, place, value, n, out + c);
}

#if !defined(__AVX2__)
// Sums that damaged files let overflow must not be undefined.
void wrapping_add(int32_t product, int32_t& sum) {
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(product));
}
#endif

void accumulate_bitmap(const BitmapWeights* rows, size_t n, int32_t* out) {
    constexpr size_t map_bytes = 16;
#if defined(__AVX2__)
    constexpr size_t sums = 8, words = sums * kVector / 64;  // as many sums as there are registers for
    for (size_t first = 0; first < 2; first += words, out += sums * kVector) {
        Mask sum[sums];
        std::memcpy(sum, out, sizeof sum);
        for (size_t i = 0; i < n; ++i) {
            uint64_t map[2];
            std::memcpy(map, rows[i].bytes, sizeof map);
            const uint8_t* next = rows[i].bytes + map_bytes;
            if (first > 0) next += __builtin_popcountll(map[0]);
            // Products of 16 bits, added in pairs; the upper factor of each pair is 0.
            const Mask factor = (rows[i].factor & 0xffff) - Mask{};
            for (size_t j = 0; j < sums; ++j) {
                const uint64_t lanes = map[first + j * kVector / 64] >> (j * kVector % 64);
#if defined(__AVX512F__)
                sum[j] += (Mask)_mm512_madd_epi16(expand(lanes, next), (__m512i)factor);
#else
                sum[j] += (Mask)_mm256_madd_epi16(expand(lanes, next), (__m256i)factor);
#endif
                next += __builtin_popcountll(lanes & ((uint64_t{1} << kVector) - 1));
            }
        }
        std::memcpy(out, sum, sizeof sum);
    }
#else
    for (size_t i = 0; i < n; ++i) {
        const uint8_t* next = rows[i].bytes + map_bytes;
        for (size_t c = 0; c < map_bytes; ++c)
            for (unsigned map = rows[i].bytes[c]; map; map &= map - 1)
                wrapping_add(rows[i].factor * static_cast<int8_t>(*next++),
                             out[c * 8 + static_cast<size_t>(__builtin_ctz(map))]);
    }
#endif
}

size_t gather_nonzero(const uint32_t* table, const uint32_t* key, const int16_t* value, size_t n,
                      uint32_t* place, int16_t* found_value) {
    size_t found = 0, i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        const __m512i at = _mm512_i32gather_epi32(_mm512_loadu_si512(key + i), table, 4);
        const __m512i values =
            _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(value + i)));
        const __mmask16 hit = _mm512_test_epi32_mask(at, at);
        _mm512_storeu_si512(place + found, _mm512_maskz_compress_epi32(hit, at));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(found_value + found),
                            _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(hit, values)));
        found += static_cast<size_t>(__builtin_popcount(hit));
    }
#endif
    for (; i < n; ++i) {  // without a branch: what is not wanted is written over
        place[found] = table[key[i]];
        found_value[found] = value[i];
        found += place[found] != 0;
    }
    return found;
}

#if defined(__AVX512F__)
// Appends first + l, for each bit l of `hit`, to the `found` numbers of a list; returns how many there are
// then.
size_t append_places(__mmask16 hit, size_t first, uint32_t* where, size_t found) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)), lane);
    _mm512_storeu_si512(where + found, _mm512_maskz_compress_epi32(hit, at));
    return found + static_cast<size_t>(__builtin_popcount(hit));
}
#endif

size_t find_in_bitset(const uint32_t* bits, const int32_t* key, size_t n, uint32_t* where) {
    size_t found = 0, i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        const __m512i keys = _mm512_loadu_si512(key + i);
        const __m512i words = _mm512_i32gather_epi32(_mm512_srli_epi32(keys, 5), bits, 4);
        const __m512i bit =
            _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_epi32(keys, _mm512_set1_epi32(31)));
        const __mmask16 hit = _mm512_test_epi32_mask(words, bit);
        if (hit) found = append_places(hit, i, where, found);
    }
#endif
    for (; i < n; ++i) {
        where[found] = static_cast<uint32_t>(i);
        found += bits[static_cast<uint32_t>(key[i]) / 32] >> (key[i] % 32) & 1;
    }
    return found;
}

// The product on its own, not fused with the sum that comes next.
Vec rounded(Vec product) {
#if defined(__AVX512F__)
    asm("" : "+v"(product));
#elif defined(__x86_64__)
    asm("" : "+x"(product));
#elif defined(__aarch64__)
    asm("" : "+w"(product));
#else
    asm("" : "+m"(product));
#endif
    return product;
}

float dequantise_margins(const int32_t* sum, size_t width, float unit, const float* scale, const float* bias,
                         float* out) {
    const Vec huge = broadcast(1e15f);
    Vec largest = -huge;
    for (size_t c = 0; c < width; c += kVector) {
        Mask whole;
        std::memcpy(&whole, sum + c, sizeof whole);
        const Vec product = __builtin_convertvector(whole, Vec) * (broadcast(unit) * load(scale + c));
        Vec margin = rounded(product) + load(bias + c);
        margin = margin > -huge ? margin : -huge;  // what is not a number as well
        margin = margin < huge ? margin : huge;
        largest = margin > largest ? margin : largest;
        store(out + c, margin);
    }
    float most = largest[0];
    for (size_t l = 1; l < kVector; ++l) most = std::max(most, largest[l]);
    return most;
}

// Thresholds times factor, without their fractions, at most 32767.
Shorts bars(const float* threshold, float factor) {
    typedef int16_t Half __attribute__((vector_size(kVector * 2)));
    Half half[2];
    for (size_t h = 0; h < 2; ++h) {
        const Vec bar = load(threshold + h * kVector) * broadcast(factor), most = broadcast(32767.0f);
        half[h] = __builtin_convertvector(__builtin_convertvector(bar < most ? bar : most, Mask), Half);
    }
    Shorts v;
    std::memcpy(&v, half, sizeof v);
    return v;
}

void scan_quantised(const QuantisedScan& pass, const uint32_t* rows, size_t n, uint64_t* out) {
    constexpr size_t lanes = 2 * kVector, NV = kPairs / lanes, ahead = 48;
    const int32_t* index = pass.index;
    const int16_t* value = pass.value;
    const uint32_t* place = pass.place;
    const int16_t* panel = pass.panel;
    for (size_t r = 0; r < n; ++r) {
        const size_t i = rows[r];
        Shorts sum[2 * NV] = {};
        const int64_t last = pass.ptr[i + 1];
        // Into the next row, if that is where the loop goes.
        const int64_t fetched = r + 1 < n && rows[r + 1] == i + 1 ? pass.ptr[i + 2] : last;
        for (int64_t e = pass.ptr[i]; e < last; ++e) {
            if (e + int64_t{ahead} < fetched)
                __builtin_prefetch(panel + size_t(place[index[e + int64_t{ahead}]]) * kPairs);
            const int16_t* row = panel + size_t(place[index[e]]) * kPairs;
            const Shorts v = value[e] - Shorts{};
            for (size_t j = 0; j < NV; ++j) {
                const Shorts both = load(row + j * lanes);
                sum[j] += multiply(both << 8, v);
                sum[NV + j] += multiply(both, v);
            }
        }
        uint64_t bits = 0;
        const float factor = pass.factor[i];
        const int16_t below = pass.leeway ? pass.leeway[i] : int16_t{0};
        const Shorts leeway = below - Shorts{};
        for (size_t j = 0; j < 2 * NV; ++j) {
            const Shorts bar = bars(pass.threshold + j * lanes, factor) - leeway;
#if defined(__AVX512F__)
            const __m512i sums = reinterpret_cast<__m512i>(sum[j]);
            bits |= uint64_t{_mm512_cmpgt_epi16_mask(sums, reinterpret_cast<__m512i>(bar))} << (j * lanes);
#else
            const Shorts over = sum[j] > bar;
            if (!any(reinterpret_cast<Mask>(over))) continue;
            for (size_t l = 0; l < lanes; ++l) bits |= uint64_t(over[l] & 1) << (j * lanes + l);
#endif
        }
        out[r] = bits;
    }
}

size_t find_at_least(const float* numbers, size_t n, float least, uint32_t* where) {
    size_t found = 0, i = 0;
    for (; i + kVector <= n; i += kVector) {
        const Vec v = load(numbers + i);
#if defined(__AVX512F__)
        const __mmask16 hit = _mm512_cmp_ps_mask(v, broadcast(least), _CMP_GE_OQ);
        if (hit) found = append_places(hit, i, where, found);
#else
        const Mask hit = v >= broadcast(least);
        if (!any(hit)) continue;
        for (size_t l = 0; l < kVector; ++l) {  // without a branch: what is not wanted is written over
            where[found] = static_cast<uint32_t>(i + l);
            found += hit[l] & 1;
        }
#endif
    }
    for (; i < n; ++i) {
        where[found] = static_cast<uint32_t>(i);
        found += numbers[i] >= least;
    }
    return found;
}

size_t drain_nonzeros(float* w, size_t n, uint32_t* index, float* value) {
    size_t found = 0;
    for (size_t f = 0; f < n; f += kVector) {
        const Vec v = load(w + f);
#if defined(__AVX512F__)
        const __mmask16 hit = _mm512_cmp_ps_mask(v, Vec{}, _CMP_NEQ_UQ);
        if (!hit) continue;
        _mm512_storeu_ps(value + found, _mm512_maskz_compress_ps(hit, v));
        found = append_places(hit, f, index, found);
#else
        const Mask hit = v != Vec{};
        if (!any(hit)) continue;
        for (size_t l = 0; l < kVector; ++l) {  // without a branch: what is 0 is written over
            index[found] = static_cast<uint32_t>(f + l);
            value[found] = v[l];
            found += hit[l] & 1;
        }
#endif
        store(w + f, Vec{});
    }
    return found;
}

uint64_t lanes_above(const float* w, size_t width, float threshold) {
    uint64_t bits = 0;
    for (size_t l = 0; l < width; l += kVector) {
        const Vec v = load(w + l);
        const Mask hit = (v > broadcast(threshold)) | (v < broadcast(-threshold));
        bits |= bits_of(hit) << l;
    }
    return bits;
}

}  // namespace

extern const Kernels BONSAI_KERNELS;
const Kernels BONSAI_KERNELS = {
    .name = BONSAI_KERNELS_NAME,
    .dual_squared_hinge =
        [](const DualPass& pass) {
            for_width(pass.width, [&]<size_t NV>() { dual_squared_hinge<NV>(pass); });
        },
    .dual_logistic =
        [](const DualPass& pass) { for_width(pass.width, [&]<size_t NV>() { dual_logistic<NV>(pass); }); },
    .margins =
        [](const RowsView& rows, size_t begin, size_t end, const float* w, size_t width, float* out,
           size_t stride) {
            for_width(width, [&]<size_t NV>() { margins<NV>(rows, begin, end, w, out, stride); });
        },
    .scatter = [](const RowsView& rows, const float* coef, size_t width,
                  float* w) { for_width(width, [&]<size_t NV>() { scatter<NV>(rows, coef, w); }); },
    .lane_dots = [](const float* a, const float* b, size_t n, size_t width,
                    double* out) { for_width(width, [&]<size_t NV>() { lane_dots<NV>(a, b, n, out); }); },
    .lane_axpy = lane_axpy,
    .accumulate_int8 = accumulate_int8,
    .gather_nonzero = gather_nonzero,
    .find_in_bitset = find_in_bitset,
    .find_at_least = find_at_least,
    .accumulate_bitmap = accumulate_bitmap,
    .dequantise_margins = dequantise_margins,
    .expand_bitmap = expand_bitmap,
    .quantise_int8 = quantise_int8,
    .scan_quantised = scan_quantised,
    .drain_nonzeros = drain_nonzeros,
    .lanes_above = lanes_above,
};

}  // namespace bonsai

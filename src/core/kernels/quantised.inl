// Sums over panels of int8 weights, for k-means and prediction. Included by table.inl inside an anonymous
// namespace.

// Unsigned sums wrap around: damaged files may cause overflow, which must not be undefined behaviour.
inline void wrapping_add(int32_t product, int32_t& sum) {
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(product));
}

float quantise_int8(const float* row, const float* factor, size_t width, int8_t* out) {
    Vec most = {};
    for (size_t l = 0; l < width; l += kVector) {
        const Vec v = load(row + l) * load(factor + l), magnitude = v < Vec{} ? -v : v;
        most = magnitude > most ? magnitude : most;
    }
    float largest = 0;
    for (size_t l = 0; l < kVector; ++l) largest = std::max(largest, most[l]);
    const float scale = largest / 127;
    if (!(1 / scale < INFINITY)) {  // zero, or too small to divide by
        std::fill_n(out, width, int8_t{0});
        return 0;
    }
    constexpr float shift = 0x1.8p23f;  // adding it rounds to an integer, which is then in the low bits
    for (size_t l = 0; l < width; l += kVector) {
        const Vec rounded = load(row + l) * load(factor + l) * broadcast(1 / scale) + broadcast(shift);
        int32_t integers[kVector];
        std::memcpy(integers, &rounded, sizeof integers);
        for (size_t m = 0; m < kVector; ++m) out[l + m] = static_cast<int8_t>(integers[m]);
    }
    return scale;
}

#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__)
// Four panel rows at a time: one instruction multiplies four signed weights with four unsigned bytes of
// values, and adds up the products. Values are split into two bytes; for a negative value, the value and its
// weights change sign.
struct Quad {
    const int8_t* weights[4];
    __m512i low, high;  // bytes of the values
    uint64_t negative;  // bits 15, 31, 47 and 63

    Quad(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value) {
        for (size_t f = 0; f < 4; ++f) weights[f] = panel + size_t{row[f]} * width;
        __m128i values = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(value));
        negative = static_cast<uint64_t>(_mm_cvtsi128_si64(values)) & 0x8000800080008000;
        if (negative) values = _mm_abs_epi16(values);
        const __m128i bytes =
            _mm_shuffle_epi8(values, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1));
        low = _mm512_broadcastd_epi32(bytes);
        high = _mm512_broadcastd_epi32(_mm_srli_epi64(bytes, 32));
    }
    __m512i lanes64(size_t f, size_t at) const {
        const __m512i bytes = _mm512_loadu_si512(weights[f] + at);
        return negative >> (16 * f + 15) & 1 ? _mm512_sub_epi8(__m512i{}, bytes) : bytes;
    }
    __m128i lanes16(size_t f, size_t at) const {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights[f] + at));
        return negative >> (16 * f + 15) & 1 ? _mm_sub_epi8(__m128i{}, bytes) : bytes;
    }
};
struct Sums {
    __m512i low = {}, high = {};  // 16 sums each, over low bytes and over high bytes
    void add(__m512i weights, const Quad& quad) {
        low = _mm512_dpbusd_epi32(low, quad.low, weights);
        high = _mm512_dpbusd_epi32(high, quad.high, weights);
    }
    __m512i all() const { return _mm512_add_epi32(low, _mm512_slli_epi32(high, 8)); }
};
void add_to(int32_t* out, __m512i sums) {
    _mm512_storeu_si512(out, _mm512_add_epi32(_mm512_loadu_si512(out), sums));
}

template <class Fn>
void for_each_quad(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value, size_t n,
                   Fn&& fn) {
    constexpr size_t ahead = 8;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        if (i + ahead + 4 <= n)
            for (size_t f = 0; f < 4; ++f) {
                const int8_t* later = panel + size_t{row[i + ahead + f]} * width;
                __builtin_prefetch(later);
                if (width > 64) __builtin_prefetch(later + 64);
            }
        fn(Quad(panel, width, row + i, value + i));
    }
    if (i == n) return;
    uint32_t last_row[4] = {};
    int16_t last_value[4] = {};
    std::copy(row + i, row + n, last_row);
    std::copy(value + i, value + n, last_value);
    fn(Quad(panel, width, last_row, last_value));
}

template <size_t N64>
void sum_lanes64(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value, size_t n,
                 int32_t* out) {
    Sums sums[N64][4];
    for_each_quad(panel, width, row, value, n, [&](const Quad& quad) {
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
    // sums[j][q] holds lanes 4 q … 4 q + 3 of each group of 16.
    for (size_t j = 0; j < N64; ++j)
        for (size_t q = 0; q < 4; ++q) {
            int32_t lanes[16];
            _mm512_storeu_si512(lanes, sums[j][q].all());
            for (size_t l = 0; l < 16; ++l) wrapping_add(lanes[l], out[64 * j + l / 4 * 16 + 4 * q + l % 4]);
        }
}

template <size_t N16>
void sum_lanes16(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value, size_t n,
                 int32_t* out) {
    alignas(64) static constexpr struct Order {  // from four rows of 16 lanes to 16 lanes of four rows
        constexpr Order() : at{} {
            for (uint8_t b = 0; b < 64; ++b) at[b] = static_cast<uint8_t>(b % 4 * 16 + b / 4);
        }
        uint8_t at[64];
    } order;
    const __m512i by_lane = _mm512_load_si512(order.at);
    Sums sums[N16];
    for_each_quad(panel, width, row, value, n, [&](const Quad& quad) {
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
// Two panel rows at a time: their weights are interleaved, widened and multiplied with both values, and the
// products added, in few instructions.
template <size_t N16>
void sum_lanes16(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value, size_t n,
                 int32_t* out) {
#if defined(__AVX2__)
    constexpr size_t ahead = 8;
    alignas(16) static constexpr int8_t zeros[16 * N16] = {};
    typedef uint32_t Eight __attribute__((vector_size(32)));  // unsigned: sums wrap around
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
    const auto weights = [&](size_t i) { return panel + size_t{row[i]} * width; };
    size_t i = 0;
    for (; i + 2 <= n; i += 2) {
        if (i + ahead + 2 <= n) {
            __builtin_prefetch(weights(i + ahead));
            __builtin_prefetch(weights(i + ahead + 1));
        }
        add(weights(i), weights(i + 1), static_cast<uint16_t>(value[i]), static_cast<uint16_t>(value[i + 1]));
    }
    if (i < n) add(weights(i), zeros, static_cast<uint16_t>(value[i]), 0);
    std::memcpy(out, sum, sizeof sum);
#else
    for (size_t i = 0; i < n; ++i)
        for (size_t c = 0; c < 16 * N16; ++c)
            wrapping_add(value[i] * panel[size_t{row[i]} * width + c], out[c]);
#endif
}

template <size_t N64>
void sum_lanes64(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value, size_t n,
                 int32_t* out) {
    for (size_t c = 0; c < 64 * N64; c += 64) sum_lanes16<4>(panel + c, width, row, value, n, out + c);
}
#endif

void accumulate_int8(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value, size_t n,
                     int32_t* out) {
    if (width >= 128)
        sum_lanes64<2>(panel, width, row, value, n, out);
    else if (width >= 64)
        sum_lanes64<1>(panel, width, row, value, n, out);
    const size_t c = width / 64 * 64;
    if (width - c == 48)
        sum_lanes16<3>(panel + c, width, row, value, n, out + c);
    else if (width - c == 32)
        sum_lanes16<2>(panel + c, width, row, value, n, out + c);
    else if (width - c == 16)
        sum_lanes16<1>(panel + c, width, row, value, n, out + c);
}

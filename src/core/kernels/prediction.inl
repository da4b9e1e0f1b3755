// Kernels of prediction: sums over stored weights, and searches in short lists. Included by table.inl inside
// an anonymous namespace.

constexpr size_t kBitmapBytes = 16;

#if defined(__AVX2__) && !defined(__AVX512VBMI2__)
// For each bitmap of eight lanes, the shuffle that takes the packed bytes to their lanes; 0x80 gives 0.
struct ExpandShuffle {
    constexpr ExpandShuffle() : of{} {
        for (size_t bitmap = 0; bitmap < 256; ++bitmap)
            for (uint8_t l = 0, n = 0; l < 8; ++l) of[bitmap][l] = bitmap >> l & 1 ? n++ : 0x80;
    }
    uint8_t of[256][8];
};
constexpr ExpandShuffle kExpandShuffle;

// Packed bytes in the lanes of the eight lower bits of `bitmap`, 0 in the others.
__m128i expand_eight(uint64_t bitmap, const uint8_t* bytes) {
    return _mm_shuffle_epi8(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)),
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kExpandShuffle.of[bitmap & 0xff])));
}
#endif

// The same for one vector of lanes, widened to 32 bits.
#if defined(__AVX512F__)
__m512i expand(uint64_t bitmap, const uint8_t* bytes) {
    return _mm512_maskz_expand_epi32(
        static_cast<__mmask16>(bitmap),
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
}
#elif defined(__AVX2__)
__m256i expand(uint64_t bitmap, const uint8_t* bytes) {
    return _mm256_cvtepi8_epi32(expand_eight(bitmap, bytes));
}
#endif

void expand_bitmap(const uint8_t* bytes, size_t width, int8_t* out) {
    const uint8_t* next = bytes + kBitmapBytes;
#if defined(__AVX512VBMI2__)
    for (size_t c = 0; c < width; c += 64, bytes += 8) {
        uint64_t bitmap;
        std::memcpy(&bitmap, bytes, sizeof bitmap);
        const uint64_t lanes = width - c < 64 ? ~uint64_t{0} >> (64 - (width - c)) : ~uint64_t{0};
        _mm512_mask_storeu_epi8(out + c, lanes, _mm512_maskz_expand_epi8(bitmap, _mm512_loadu_si512(next)));
        next += __builtin_popcountll(bitmap);
    }
#else
    for (size_t c = 0; c < width / 8; ++c, out += 8) {
#if defined(__AVX2__)
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out), expand_eight(bytes[c], next));
        next += __builtin_popcount(bytes[c]);
#else
        for (size_t l = 0; l < 8; ++l) out[l] = bytes[c] >> l & 1 ? static_cast<int8_t>(*next++) : int8_t{0};
#endif
    }
#endif
}

void accumulate_bitmap(const BitmapWeights* rows, size_t n, int32_t* out) {
#if defined(__AVX2__)
    constexpr size_t sums = 8, words = sums * kVector / 64;  // as many sums as fit in registers
    for (size_t first = 0; first < 2; first += words, out += sums * kVector) {
        typedef uint32_t Sum __attribute__((vector_size(kVector * 4)));  // unsigned: they wrap around
        Sum sum[sums];
        std::memcpy(sum, out, sizeof sum);
        for (size_t i = 0; i < n; ++i) {
            uint64_t bitmap[2];
            std::memcpy(bitmap, rows[i].bytes, sizeof bitmap);
            const uint8_t* next = rows[i].bytes + kBitmapBytes;
            if (first > 0) next += __builtin_popcountll(bitmap[0]);
            // Products of 16 bits, added in pairs; the upper factor of each pair is 0.
            const Mask factor = (rows[i].factor & 0xffff) - Mask{};
            for (size_t j = 0; j < sums; ++j) {
                const uint64_t lanes = bitmap[first + j * kVector / 64] >> (j * kVector % 64);
#if defined(__AVX512F__)
                sum[j] += (Sum)_mm512_madd_epi16(expand(lanes, next), (__m512i)factor);
#else
                sum[j] += (Sum)_mm256_madd_epi16(expand(lanes, next), (__m256i)factor);
#endif
                next += __builtin_popcountll(lanes & ((uint64_t{1} << kVector) - 1));
            }
        }
        std::memcpy(out, sum, sizeof sum);
    }
#else
    for (size_t i = 0; i < n; ++i) {
        const uint8_t* next = rows[i].bytes + kBitmapBytes;
        for (size_t c = 0; c < kBitmapBytes; ++c)
            for (unsigned bitmap = rows[i].bytes[c]; bitmap; bitmap &= bitmap - 1)
                wrapping_add(rows[i].factor * static_cast<int8_t>(*next++),
                             out[c * 8 + static_cast<size_t>(__builtin_ctz(bitmap))]);
    }
#endif
}

size_t gather_nonzero(const uint32_t* table, const uint32_t* key, const int16_t* value, size_t n,
                      uint32_t* found, int16_t* found_value) {
    size_t n_found = 0, i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        const __m512i entries = _mm512_i32gather_epi32(_mm512_loadu_si512(key + i), table, 4);
        const __m512i values =
            _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(value + i)));
        const __mmask16 hit = _mm512_test_epi32_mask(entries, entries);
        _mm512_storeu_si512(found + n_found, _mm512_maskz_compress_epi32(hit, entries));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(found_value + n_found),
                            _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(hit, values)));
        n_found += static_cast<size_t>(__builtin_popcount(hit));
    }
#endif
    for (; i < n; ++i) {  // branchless: the next entry overwrites a zero
        found[n_found] = table[key[i]];
        found_value[n_found] = value[i];
        n_found += found[n_found] != 0;
    }
    return n_found;
}

size_t find_in_bitset(const uint32_t* bits, const int32_t* key, size_t n, uint32_t* position) {
    size_t found = 0, i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        const __m512i keys = _mm512_loadu_si512(key + i);
        const __m512i words = _mm512_i32gather_epi32(_mm512_srli_epi32(keys, 5), bits, 4);
        const __m512i bit =
            _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_epi32(keys, _mm512_set1_epi32(31)));
        const __mmask16 hit = _mm512_test_epi32_mask(words, bit);
        if (hit) found = append_set_bits(hit, i, position, found);
    }
#endif
    for (; i < n; ++i) {  // branchless: the next position overwrites one without a bit
        position[found] = static_cast<uint32_t>(i);
        found += bits[static_cast<uint32_t>(key[i]) / 32] >> (key[i] % 32) & 1;
    }
    return found;
}

size_t find_at_least(const float* numbers, size_t n, float least, uint32_t* position) {
    size_t found = 0, i = 0;
    for (; i + kVector <= n; i += kVector) {
        const Vec v = load(numbers + i);
#if defined(__AVX512F__)
        const __mmask16 hit = _mm512_cmp_ps_mask(v, broadcast(least), _CMP_GE_OQ);
        if (hit) found = append_set_bits(hit, i, position, found);
#else
        const Mask hit = v >= broadcast(least);
        if (!any(hit)) continue;
        for (size_t l = 0; l < kVector; ++l) {  // branchless: the next position overwrites a smaller number's
            position[found] = static_cast<uint32_t>(i + l);
            found += hit[l] & 1;
        }
#endif
    }
    for (; i < n; ++i) {
        position[found] = static_cast<uint32_t>(i);
        found += numbers[i] >= least;
    }
    return found;
}

// A compiler barrier: the product is rounded instead of fused with the following sum.
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
        Mask integers;
        std::memcpy(&integers, sum + c, sizeof integers);
        const Vec product = __builtin_convertvector(integers, Vec) * (broadcast(unit) * load(scale + c));
        Vec margin = rounded(product) + load(bias + c);
        margin = margin > -huge ? margin : -huge;  // also maps NaN to -huge
        margin = margin < huge ? margin : huge;
        largest = margin > largest ? margin : largest;
        store(out + c, margin);
    }
    float most = largest[0];
    for (size_t l = 1; l < kVector; ++l) most = std::max(most, largest[l]);
    return most;
}

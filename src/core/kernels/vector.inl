// Vectors of the instruction set that this file is compiled for, built on the vector extensions of GCC and
// Clang. Included by table.inl inside an anonymous namespace.

#if defined(__AVX512F__)
constexpr size_t kVector = 16;
#elif defined(__AVX2__)
constexpr size_t kVector = 8;
#else
constexpr size_t kVector = 4;
#endif

typedef float Vec __attribute__((vector_size(kVector * 4)));
typedef int32_t Mask
    __attribute__((vector_size(kVector * 4)));  // -1 or 0 in each lane; also used for 32-bit integers
typedef int16_t Shorts __attribute__((vector_size(kVector * 4)));  // twice as many lanes

Vec load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
Shorts load(const int16_t* p) {
    Shorts v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
void store(float* p, Vec v) {
    std::memcpy(p, &v, sizeof v);
}
Vec broadcast(float x) {
    return x - Vec{};  // x - 0 is x for every x; x + 0 would turn -0.0 into 0
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

#if defined(__AVX512F__)
// Appends first + l, for each set bit l of `hit`, to a list of `found` numbers; returns its new size. Always
// writes 16 numbers.
size_t append_set_bits(__mmask16 hit, size_t first, uint32_t* list, size_t found) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)), lane);
    _mm512_storeu_si512(list + found, _mm512_maskz_compress_epi32(hit, at));
    return found + static_cast<size_t>(__builtin_popcount(hit));
}
#endif

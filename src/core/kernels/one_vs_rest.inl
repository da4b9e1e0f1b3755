// The scan for margin violations of one-vs-rest training, and the extraction of weights as sparse lists.
// Included by table.inl inside an anonymous namespace.

// round(a * b / 2^15)
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

// threshold * factor, truncated, at most 32767.
Shorts scaled_thresholds(const float* threshold, float factor) {
    typedef int16_t Half __attribute__((vector_size(kVector * 2)));
    Half half[2];
    for (size_t h = 0; h < 2; ++h) {
        const Vec scaled = load(threshold + h * kVector) * broadcast(factor), most = broadcast(32767.0f);
        half[h] = __builtin_convertvector(__builtin_convertvector(scaled < most ? scaled : most, Mask), Half);
    }
    Shorts v;
    std::memcpy(&v, half, sizeof v);
    return v;
}

void scan_quantised(const QuantisedScan& scan, const uint32_t* rows, size_t n, uint64_t* out) {
    constexpr size_t lanes = 2 * kVector, NV = kLanePairs / lanes, ahead = 48;
    // Local copies, which no store can alias.
    const int32_t* index = scan.index;
    const int16_t* value = scan.value;
    const uint32_t* panel_row = scan.panel_row;
    const int16_t* panel = scan.panel;
    for (size_t r = 0; r < n; ++r) {
        const size_t i = rows[r];
        Shorts sum[2 * NV] = {};
        const int64_t last = scan.ptr[i + 1];
        // Prefetching continues into the next row if it follows directly.
        const int64_t prefetched = r + 1 < n && rows[r + 1] == i + 1 ? scan.ptr[i + 2] : last;
        for (int64_t e = scan.ptr[i]; e < last; ++e) {
            if (e + int64_t{ahead} < prefetched)
                __builtin_prefetch(panel + size_t(panel_row[index[e + int64_t{ahead}]]) * kLanePairs);
            const int16_t* row = panel + size_t(panel_row[index[e]]) * kLanePairs;
            const Shorts v = value[e] - Shorts{};
            for (size_t j = 0; j < NV; ++j) {
                const Shorts both = load(row + j * lanes);
                sum[j] += multiply(both << 8, v);
                sum[NV + j] += multiply(both, v);
            }
        }
        uint64_t bits = 0;
        const float factor = scan.factor[i];
        const int16_t rounding = scan.tolerance ? scan.tolerance[i] : int16_t{0};
        const Shorts tolerance = rounding - Shorts{};
        for (size_t j = 0; j < 2 * NV; ++j) {
            const Shorts threshold = scaled_thresholds(scan.threshold + j * lanes, factor) - tolerance;
#if defined(__AVX512F__)
            const __mmask32 above = _mm512_cmpgt_epi16_mask(reinterpret_cast<__m512i>(sum[j]),
                                                            reinterpret_cast<__m512i>(threshold));
            bits |= uint64_t{above} << (j * lanes);
#else
            const Shorts above = sum[j] > threshold;
            if (!any(reinterpret_cast<Mask>(above))) continue;
            for (size_t l = 0; l < lanes; ++l) bits |= uint64_t(above[l] & 1) << (j * lanes + l);
#endif
        }
        out[r] = bits;
    }
}

size_t drain_nonzeros(float* w, size_t n, uint32_t* index, float* value) {
    size_t found = 0;
    for (size_t f = 0; f < n; f += kVector) {
        const Vec v = load(w + f);
#if defined(__AVX512F__)
        const __mmask16 hit = _mm512_cmp_ps_mask(v, Vec{}, _CMP_NEQ_UQ);
        if (!hit) continue;
        _mm512_storeu_ps(value + found, _mm512_maskz_compress_ps(hit, v));
        found = append_set_bits(hit, f, index, found);
#else
        const Mask hit = v != Vec{};
        if (!any(hit)) continue;
        for (size_t l = 0; l < kVector; ++l) {  // branchless: the next entry overwrites a zero
            index[found] = static_cast<uint32_t>(f + l);
            value[found] = v[l];
            found += hit[l] & 1;
        }
#endif
        store(w + f, Vec{});
    }
    return found;
}

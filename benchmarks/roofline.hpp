// Probes of the machine, written once and included once for each instruction set that the kernels are built
// for, with PROBE_SET (a namespace), PROBE_LANES (floats of a vector) and PROBE_TARGET (a function
// attribute).
namespace PROBE_SET {

typedef float Vec __attribute__((vector_size(PROBE_LANES * 4), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(PROBE_LANES * 4), aligned(4), may_alias));
constexpr size_t kStep = PROBE_LANES * 4;

// Independent chains of multiply-adds, as many as hide the latency and still fit into the registers.
constexpr size_t kChains = 12;

// `rounds` multiply-adds in each chain: 2 * rounds * kChains * PROBE_LANES operations.
PROBE_TARGET float multiply_add(size_t rounds, float factor, float summand) {
    const Vec a = factor - Vec{}, b = summand - Vec{};
    Vec x[kChains];
    for (size_t c = 0; c < kChains; ++c) x[c] = static_cast<float>(c) - Vec{};
    for (size_t r = 0; r < rounds; ++r)
        for (size_t c = 0; c < kChains; ++c) x[c] = x[c] * a + b;
    float sum = 0;
    for (size_t c = 0; c < kChains; ++c)
        for (size_t l = 0; l < PROBE_LANES; ++l) sum += x[c][l];
    return sum;
}

// Chunks of 64 or 256 bytes in the given order, all of them read.
template <size_t Chunk>
PROBE_TARGET int32_t read(const char* memory, const uint32_t* order, size_t n) {
    constexpr size_t vectors = Chunk / kStep;
    Bits seen[vectors] = {};
    for (size_t i = 0; i < n; ++i) {
        const char* p = memory + size_t{order[i]} * Chunk;
        for (size_t j = 0; j < vectors; ++j) seen[j] |= *reinterpret_cast<const Bits*>(p + j * kStep);
    }
    int32_t all = 0;
    for (size_t j = 0; j < vectors; ++j)
        for (size_t l = 0; l < PROBE_LANES; ++l) all |= seen[j][l];
    return all;
}

// The same, read and written.
template <size_t Chunk>
PROBE_TARGET void update(char* memory, const uint32_t* order, size_t n, float summand) {
    const Vec b = summand - Vec{};
    for (size_t i = 0; i < n; ++i) {
        char* p = memory + size_t{order[i]} * Chunk;
        for (size_t j = 0; j < Chunk / kStep; ++j) {
            Vec* v = reinterpret_cast<Vec*>(p + j * kStep);
            *v = *v + b;
        }
    }
}

constexpr Probes kProbes = {
    PROBE_LANES, kChains * PROBE_LANES * 2, multiply_add, read<64>, read<256>, update<64>, update<256>};

}  // namespace PROBE_SET

#undef PROBE_SET
#undef PROBE_LANES
#undef PROBE_TARGET

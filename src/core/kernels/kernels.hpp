// The kernels that everything is built from, and the choice among their builds at run time.
//
// A panel is B weight vectors side by side, feature-major: w[feature * B + lane], B a multiple of 16 up
// to 64. Visiting a non-zero of a row is then one broadcast and B / 16 fused multiply-adds on contiguous
// memory, for all B classifiers. Lanes never mix: each lane's result is the same whatever the other lanes
// hold and however wide the panel is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/rows.hpp"

namespace bonsai {

inline constexpr size_t kLaneStep = 16;
inline constexpr size_t kMaxLanes = 64;

// n, rounded up to whole steps.
constexpr size_t padded_lanes(size_t n) {
    return (n + kLaneStep - 1) / kLaneStep * kLaneStep;
}

// The narrowest panel that holds n lanes.
inline size_t panel_width(size_t n) {
    return n > kMaxLanes ? kMaxLanes : padded_lanes(n);
}

// One pass of dual coordinate descent over the rows, in the given order, for all lanes of a panel. For the
// squared hinge the bias is given, and stays; for the logistic loss it may be learnt on the way.
struct DualPass {
    RowsView rows;
    const uint32_t* order;     // n_rows row numbers
    const uint64_t* positive;  // for each row, bit l: row is a positive of lane l
    const float* inv_q;        // for each row, 1 / Q_ii
    const float* diagonal;     // for each row: 1 / (2 C_i) for the squared hinge, C_i for the logistic loss
    uint64_t active;           // lanes that still move
    size_t width;              // B
    bool learn_bias;           // logistic only
    float still;          // squared hinge only: a row whose |projected gradient| is no larger does not move
    float* w;             // n_features x B
    float* bias;          // B
    float* alpha;         // n_rows x B
    float* gradient_max;  // B, out: extremes of 0 and the projected gradients of this pass
    float* gradient_min;  // B
    float* alpha_sum;     // B, out, squared hinge only: sum of y_i alpha_i after the pass
    float* support;       // B, out, squared hinge only: sum of 1 / Q_ii over rows with alpha_i > 0
};

// Sparse rows in fixed point, and a panel of kMaxLanes lanes to multiply them with: each word holds two
// bytes, 256 * (lane l + kPairs) + (lane l), both with their signs. What is taken for the upper one is the
// whole word, so that it is off by the lower one / 256.
struct QuantisedScan {
    const int64_t* ptr;  // n_rows + 1
    const int32_t* index;
    const int16_t* value;    // of 2^15
    const uint32_t* place;   // feature -> row of the panel; one row of it is all zeros
    const int16_t* panel;    // n_places x kPairs
    const float* threshold;  // kMaxLanes
    const float* factor;     // n_rows: what the thresholds are multiplied by
    const int16_t* leeway;   // n_rows: how far below that a sum still counts as above; none: 0
};
inline constexpr size_t kPairs = kMaxLanes / 2;

// Up to 128 bytes where few are not 0: a map of 128 bits, then the bytes whose bit is set, one after the
// other. kBitmapReadable bytes from `bytes` on must be readable.
struct BitmapWeights {
    const uint8_t* bytes;
    int16_t factor;
    uint8_t size;  // of what is in use of them, for whoever made the list; kernels go by the map
};
inline constexpr size_t kBitmapReadable = 16 + 128 + 16;

struct Kernels {
    const char* name;
    void (*dual_squared_hinge)(const DualPass&);
    void (*dual_logistic)(const DualPass&);
    // out[(i - begin) * stride + l] = row i . lane l, for rows [begin, end)
    void (*margins)(const RowsView& rows, size_t begin, size_t end, const float* w, size_t width, float* out,
                    size_t stride);
    // w[f, l] += sum over rows of value[i, f] * coef[i, l]; coef is n_rows x width
    void (*scatter)(const RowsView& rows, const float* coef, size_t width, float* w);
    // out[l] = sum over f of a[f, l] * b[f, l], in double; n features
    void (*lane_dots)(const float* a, const float* b, size_t n, size_t width, double* out);
    // y[f, l] = scale[l] * y[f, l] + step[l] * x[f, l]
    void (*lane_axpy)(float* y, const float* x, size_t n, size_t width, const float* scale,
                      const float* step);
    // out[c] += sum over i of value[i] * panel[place[i] * width + c]; width a multiple of 16 up to 128. The
    // same on every machine, in any order, as long as sums stay within 32 bits.
    void (*accumulate_int8)(const int8_t* panel, size_t width, const uint32_t* place, const int16_t* value,
                            size_t n, int32_t* out);
    // Those of n (key, value) pairs whose place, table[key], is not 0: place and value, in order. Both must
    // have room for 16 more than there are. Returns how many.
    size_t (*gather_nonzero)(const uint32_t* table, const uint32_t* key, const int16_t* value, size_t n,
                             uint32_t* place, int16_t* found_value);
    // Where those of n keys stand whose bit is set, in order; room for 16 more. Returns how many.
    size_t (*find_in_bitset)(const uint32_t* bits, const int32_t* key, size_t n, uint32_t* where);
    // Where those of n numbers stand that are not below `least`, in order; room for 16 more. Returns how
    // many.
    size_t (*find_at_least)(const float* numbers, size_t n, float least, uint32_t* where);
    // out[c] += sum over i of rows[i].factor * the c-th of 128 bytes
    void (*accumulate_bitmap)(const BitmapWeights* rows, size_t n, int32_t* out);
    // out[c] = sum[c] * (unit * scale[c]) + bias[c], each step rounded: the same on every machine. What is
    // not a number or beyond 1e15 becomes +-1e15, so that it can be sorted. Returns the largest. width a
    // multiple of 16
    float (*dequantise_margins)(const int32_t* sum, size_t width, float unit, const float* scale,
                                const float* bias, float* out);
    // out[c] = the c-th byte; width a multiple of 16 up to 128, and no bit set beyond
    void (*expand_bitmap)(const uint8_t* bytes, size_t width, int8_t* out);
    // out[c] = round(row[c] * factor[c] / scale), with the returned scale = max |row[c] * factor[c]| / 127;
    // all 0 for a scale of 0. width a multiple of 16
    float (*quantise_int8)(const float* row, const float* factor, size_t width, int8_t* out);
    // out[r], bit l: the sum over row i = rows[r] of round(value * 256 * lane l / 2^15) is above threshold[l]
    // * factor[i], which is not negative, less the leeway. Whole numbers: the same on every machine, as long
    // as sums stay within 16 bits.
    void (*scan_quantised)(const QuantisedScan&, const uint32_t* rows, size_t n, uint64_t* out);
    // Moves what is not 0 out of w, n floats, n a multiple of 16: where it stood into index, in order, what
    // it was into value; 0 remains. Both must have room for 16 more than that. Returns how many.
    size_t (*drain_nonzeros)(float* w, size_t n, uint32_t* index, float* value);
    // bit l of the result: |w[l]| > threshold
    uint64_t (*lanes_above)(const float* w, size_t width, float threshold);
};

// The best build for this machine; BONSAI_ISA=portable|avx2|avx512|avx512vnni forces one.
// Throws std::invalid_argument if the one asked for is unknown or this machine cannot run it.
const Kernels& kernels();
// By name; "" is the best one.
const Kernels& kernels_named(const std::string& name);

}  // namespace bonsai

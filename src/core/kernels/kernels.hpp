// The table of kernels. It is compiled once for each instruction set; the build is chosen at run time.
//
// A panel is B weight vectors side by side, feature-major: w[feature * B + lane], B a multiple of 16 up
// to 64. Visiting a non-zero of a row is then one broadcast and B / 16 fused multiply-adds on contiguous
// memory, for all B classifiers. Lanes never mix: a lane's result does not depend on the other lanes or on
// the width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/rows.hpp"

namespace bonsai {

inline constexpr size_t kLaneStep = 16;
inline constexpr size_t kMaxLanes = 64;

// Rounds n up to a multiple of kLaneStep.
constexpr size_t padded_lanes(size_t n) {
    return (n + kLaneStep - 1) / kLaneStep * kLaneStep;
}

// The narrowest panel that holds n lanes.
inline size_t panel_width(size_t n) {
    return n > kMaxLanes ? kMaxLanes : padded_lanes(n);
}

// Part of a pass of dual coordinate descent, for all lanes of a panel. linear/loss.hpp defines which parts a
// loss uses. With the squared hinge the bias stays as it is; with the logistic loss it may be learnt during
// the pass.
struct DualPass {
    RowsView rows;
    const uint32_t* order;     // the rows to visit, in this order
    size_t n;                  // their number
    const uint64_t* positive;  // for each row, bit l: the row is a positive of lane l
    const float* inv_q;        // for each row, 1 / Q_ii
    const float* diagonal;     // for each row: 1 / (2 C_i) for the squared hinge, C_i for the logistic loss
    uint64_t active;           // lanes that are updated
    size_t width;              // B
    bool learn_bias;           // logistic only
    float min_gradient;  // squared hinge only: a variable is updated if its |projected gradient| is larger
    float* w;            // n_features x B
    float* bias;         // B
    float* alpha;        // n_rows x B
    // B each. Accumulated over the parts of a pass: the caller sets them to 0 before it.
    float* gradient_max;  // squared hinge only: largest and smallest projected gradient, 0 included
    float* gradient_min;
    float* residual;   // logistic only: sum of |C_i sigmoid(-y_i margin_i) - alpha_i|, 0 at the optimum
    float* alpha_sum;  // sum of y_i alpha_i for the squared hinge, of alpha_i for the logistic loss
    float* support;    // squared hinge only: sum of 1 / Q_ii over rows with alpha_i > 0
};

inline constexpr size_t kLanePairs = kMaxLanes / 2;

// A scan of sparse rows with int16 values against kMaxLanes classifiers with int8 weights. A word of the
// panel holds two weights with their signs: 256 * (lane l + kLanePairs) + (lane l). The whole word is used as
// the upper weight, so the error of that weight is the lower weight / 256.
struct QuantisedScan {
    const int64_t* ptr;  // n_rows + 1
    const int32_t* index;
    const int16_t* value;  // in units of 2^-15
    const uint32_t*
        panel_row;             // feature -> row of the panel; features without weights share one row of zeros
    const int16_t* panel;      // rows of kLanePairs words
    const float* threshold;    // kMaxLanes
    const float* factor;       // n_rows: factors of the thresholds
    const int16_t* tolerance;  // n_rows: subtracted from the thresholds, for rounding errors; nullptr: none
};

// Up to 128 weights, most of them 0: a bitmap of 128 bits, then the non-zero weights. Kernels read up to
// kBitmapReadable bytes from `bytes` on.
struct BitmapWeights {
    const uint8_t* bytes;
    int16_t factor;
    uint8_t size;  // bytes in use; not read by kernels
};
inline constexpr size_t kBitmapReadable = 16 + 128 + 16;

// n each.
struct LogisticRows {
    const float *sign, *cost, *margin, *direction;
    size_t n;
    float least_curvature;  // as a part of the cost; also, none is 0
};

struct Kernels {
    const char* name;

    // --- Solvers and k-means: panels of float ---

    void (*dual_squared_hinge)(const DualPass&);
    void (*dual_logistic)(const DualPass&);
    // out[(i - begin) * stride + l] = row i . lane l, for rows [begin, end)
    void (*margins)(const RowsView& rows, size_t begin, size_t end, const float* w, size_t width, float* out,
                    size_t stride);
    // w[f, l] += sum over rows i in [begin, end) of value[i, f] * coef[i, l]; coef is n_rows x width
    void (*scatter)(const RowsView& rows, size_t begin, size_t end, const float* coef, size_t width,
                    float* w);
    // out[l] = sum over f of a[f, l] * b[f, l], in double; n features
    void (*lane_dots)(const float* a, const float* b, size_t n, size_t width, double* out);
    // y[f, l] = scale[l] * y[f, l] + step[l] * x[f, l]
    void (*lane_axpy)(float* y, const float* x, size_t n, size_t width, const float* scale,
                      const float* step);
    // Bit l of the result: |w[l]| > threshold
    uint64_t (*lanes_above)(const float* w, size_t width, float threshold);

    // --- FastXML: values of rows, columns with a value for each row ---

    // The sum of cost · log(1 + exp(−z)), z = sign · (margin + step · direction), its derivatives with
    // respect to the margins, and curvatures of quadratic models: second derivatives, but for z < 0 (1 / (1 +
    // exp(z)) − 1/2) / |z|, with which the model is nowhere below the loss (Jaakkola, Jordan 2000). There
    // second derivatives approach 0 while the first do not, and steps are far too long.
    double (*logistic_rows)(const LogisticRows& rows, float step, float* residual, float* curvature);
    // Σ a[i] · b[i] and Σ a[i]² · b[i]
    float (*dot)(const float* a, const float* b, size_t n);
    float (*dot_squares)(const float* a, const float* b, size_t n);
    // y[i] += factor · a[i] · b[i]
    void (*add_product)(float* y, const float* a, const float* b, float factor, size_t n);

    // --- K-means and prediction: panels of int8. Integer sums are the same on every machine ---

    // out[c] = round(row[c] * factor[c] / scale), with the returned scale = max |row[c] * factor[c]| / 127;
    // all 0 for a scale of 0. width a multiple of 16
    float (*quantise_int8)(const float* row, const float* factor, size_t width, int8_t* out);
    // out[c] += sum over i of value[i] * panel[row[i] * width + c]; width a multiple of 16 up to 128
    void (*accumulate_int8)(const int8_t* panel, size_t width, const uint32_t* row, const int16_t* value,
                            size_t n, int32_t* out);

    // --- One-vs-rest ---

    // out[r], bit l: the sum over row i = rows[r] of round(value * 256 * lane l / 2^15) is above threshold[l]
    // * factor[i], which is not negative, minus the tolerance. Equal on every machine, as long as sums stay
    // within 16 bits.
    void (*scan_quantised)(const QuantisedScan&, const uint32_t* rows, size_t n, uint64_t* out);
    // Moves the non-zeros of w, n floats, n a multiple of 16, to index and value, in order; w becomes 0. Both
    // need room for 16 more. Returns their number.
    size_t (*drain_nonzeros)(float* w, size_t n, uint32_t* index, float* value);

    // --- Prediction ---

    // The non-zero entries table[key[i]], i < n, each with value[i], in order. Both outputs need room for 16
    // more. Returns the number of entries.
    size_t (*gather_nonzero)(const uint32_t* table, const uint32_t* key, const int16_t* value, size_t n,
                             uint32_t* found, int16_t* found_value);
    // The positions i < n with bit key[i] set, in order; room for 16 more. Returns their number.
    size_t (*find_in_bitset)(const uint32_t* bits, const int32_t* key, size_t n, uint32_t* position);
    // The positions i < n with numbers[i] >= least, in order; room for 16 more. Returns their number.
    size_t (*find_at_least)(const float* numbers, size_t n, float least, uint32_t* position);
    // out[c] += sum over i of rows[i].factor * the c-th of its 128 weights
    void (*accumulate_bitmap)(const BitmapWeights* rows, size_t n, int32_t* out);
    // out[c] = the c-th weight; width a multiple of 16 up to 128, and no bit set beyond
    void (*expand_bitmap)(const uint8_t* bytes, size_t width, int8_t* out);
    // out[c] = sum[c] * (unit * scale[c]) + bias[c], each step rounded: the same on every machine. Limited to
    // +-1e15, and NaN to -1e15, so that margins can be sorted. Returns the largest. width a multiple of 16
    float (*dequantise_margins)(const int32_t* sum, size_t width, float unit, const float* scale,
                                const float* bias, float* out);
};

// The best build for this machine, or the build named by the environment variable
// BONSAI_ISA=portable|avx2|avx512|avx512vnni. Called once, by the bindings, which pass the kernels to the
// core. Throws std::invalid_argument if the name is unknown, or if this machine cannot run the build.
const Kernels& kernels();
// A build by name; "" selects the best one.
const Kernels& kernels_named(const std::string& name);

}  // namespace bonsai

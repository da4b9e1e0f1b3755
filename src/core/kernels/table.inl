// The kernels, written once and compiled once for each instruction set, with BONSAI_KERNELS (the table's
// name) and BONSAI_KERNELS_NAME. Everything is in an anonymous namespace, so that the linker cannot use a
// function compiled for AVX in other code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels/kernels.hpp"

namespace bonsai {
namespace {

// clang-format off: each file needs those before it
#include "kernels/vector.inl"
#include "kernels/panel.inl"
#include "kernels/dual.inl"
#include "kernels/columns.inl"
#include "kernels/quantised.inl"
#include "kernels/one_vs_rest.inl"
#include "kernels/prediction.inl"
// clang-format on

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
    .scatter =
        [](const RowsView& rows, size_t begin, size_t end, const float* coef, size_t width, float* w) {
            for_width(width, [&]<size_t NV>() { scatter<NV>(rows, begin, end, coef, w); });
        },
    .lane_dots = [](const float* a, const float* b, size_t n, size_t width,
                    double* out) { for_width(width, [&]<size_t NV>() { lane_dots<NV>(a, b, n, out); }); },
    .lane_axpy = lane_axpy,
    .lanes_above = lanes_above,
    .logistic_rows = logistic_rows,
    .dot = dot,
    .dot_squares = dot_squares,
    .add_product = add_product,
    .quantise_int8 = quantise_int8,
    .accumulate_int8 = accumulate_int8,
    .scan_quantised = scan_quantised,
    .drain_nonzeros = drain_nonzeros,
    .gather_nonzero = gather_nonzero,
    .find_in_bitset = find_in_bitset,
    .find_at_least = find_at_least,
    .accumulate_bitmap = accumulate_bitmap,
    .expand_bitmap = expand_bitmap,
    .dequantise_margins = dequantise_margins,
};

}  // namespace bonsai

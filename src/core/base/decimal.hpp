// Decimal text to float32, correctly rounded, without locale and without allocation.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace bonsai {

enum class Number { fine, malformed, not_finite, too_large };

inline bool is_digit(char c) {
    return static_cast<unsigned char>(c - '0') < 10;
}

/// The slow path: parses the well-formed, unsigned decimal in [first, last) when the fast path cannot decide
/// the rounding.
inline Number read_float_slowly(const char* first, const char* last, int64_t exponent, float& out) {
    // 10^(magnitude - 1) <= value < 10^magnitude separates overflow from underflow, which std::from_chars
    // does not
    const char* point = std::find_if(first, last, [](char c) { return c != '0' && is_digit(c); });
    const char* mantissa_end = std::find_if(first, last, [](char c) { return (c | 0x20) == 'e'; });
    out = 0;
    if (point >= mantissa_end) return Number::fine;
    const char* dot = std::find(first, mantissa_end, '.');
    const int64_t magnitude = exponent + (point < dot ? dot - point : dot - point + 1);
    if (magnitude > 40) return Number::too_large;
    if (magnitude < -50) return Number::fine;
    float value = 0;
    const auto result = std::from_chars(first, last, value);
    if (result.ec == std::errc::result_out_of_range) return magnitude > 0 ? Number::too_large : Number::fine;
    if (value > std::numeric_limits<float>::max()) return Number::too_large;
    out = value;
    return Number::fine;
}

/// Reads `[+-]digits[.digits][e[+-]digits]` at `p`, moves `p` behind it; correctly rounded.
inline Number read_float(const char*& p, const char* end, float& out) {
    static constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                         1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                         1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const bool negative = p != end && *p == '-';
    if (p != end && (*p == '-' || *p == '+')) ++p;
    const char* const first = p;
    uint64_t mantissa = 0;  // may wrap; used only if there are at most 19 digits
    for (; p != end && is_digit(*p); ++p) mantissa = mantissa * 10 + (*p - '0');
    int64_t digits = p - first;
    int64_t shift = 0;
    if (p != end && *p == '.') {
        const char* const fraction = ++p;
        for (; p != end && is_digit(*p); ++p) mantissa = mantissa * 10 + (*p - '0');
        shift = fraction - p;
        digits -= shift;
    }
    if (digits == 0) {
        const std::string_view rest(first, end - first);
        for (const char* name : {"nan", "inf", "NaN", "Inf", "NAN", "INF"}) {
            if (rest.starts_with(name)) return Number::not_finite;
        }
        return Number::malformed;
    }
    int64_t exponent = 0;
    if (p != end && (*p | 0x20) == 'e') {
        const bool down = ++p != end && *p == '-';
        if (p != end && (*p == '-' || *p == '+')) ++p;
        if (p == end || !is_digit(*p)) return Number::malformed;
        for (; p != end && is_digit(*p); ++p)
            exponent = std::min<int64_t>(exponent * 10 + (*p - '0'), 1'000'000'000);
        if (down) exponent = -exponent;
    }
    const int64_t power = shift + exponent;
    if (digits <= 19 && mantissa < (uint64_t{1} << 53) && power >= -22 && power <= 22) {
        const auto whole = static_cast<double>(mantissa);
        const double value = power < 0 ? whole / kPowers[-power] : whole * kPowers[power];
        // `value` is the correctly rounded double. Rounding it again to float32 is right too unless it lies
        // exactly between two floats: only then can the decimal be on the other side. Subnormals have a
        // different spacing.
        const bool between = (std::bit_cast<uint64_t>(value) & 0x1fffffff) == 0x10000000;
        if (mantissa == 0 || (value > 2.4e-38 && value < 3.4e38 && !between)) {
            out = static_cast<float>(negative ? -value : value);
            return Number::fine;
        }
    }
    const Number result = read_float_slowly(first, p, exponent, out);
    if (negative) out = -out;
    return result;
}

}  // namespace bonsai

#include "text/unicode.hpp"

#include <algorithm>
#include <cstring>

namespace bonsai::text {

namespace {

using namespace unicode;

constexpr uint32_t kDottedCapitalI = 0x130;
constexpr uint32_t kCombiningDotAbove = 0x307;
constexpr uint32_t kCapitalSigma = 0x3A3;
constexpr uint32_t kSmallSigma = 0x3C3;
constexpr uint32_t kFinalSigma = 0x3C2;

// Every byte may become U+FFFD, three bytes long.
constexpr size_t kMostBytesPerByte = 3;

uint32_t at(const char* p) {
    return static_cast<unsigned char>(*p);
}

// Decodes the code point at `p` of arbitrary bytes and moves `p` behind it. As in Python's decoder, bytes
// that begin no character are replaced one by one, and a truncated character is replaced as a whole.
uint32_t decode(const char*& p, const char* end) {
    const uint32_t first = at(p++);
    if (first < 0x80) return first;
    if (first < 0xC2 || first > 0xF4) return kReplacement;
    const int following = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    uint32_t code = first & (0x3F >> following);
    for (int i = 0; i < following; ++i) {
        if (p == end) return kReplacement;
        const uint32_t byte = at(p);
        uint32_t low = 0x80, high = 0xBF;
        if (i == 0) {  // overlong forms and values above U+10FFFF
            if (first == 0xE0) low = 0xA0;
            if (first == 0xF0) low = 0x90;
            if (first == 0xF4) high = 0x8F;
        }
        if (byte < low || byte > high) return kReplacement;
        code = code << 6 | (byte & 0x3F);
        ++p;
    }
    return code >= 0xD800 && code <= 0xDFFF ? kReplacement : code;
}

char ascii_lower(char c) {
    return static_cast<char>(c + (static_cast<unsigned char>(c - 'A') < 26 ? 32 : 0));
}

// Copies the leading ASCII characters of [from, end), one block at a time, and returns their number.
template <bool lowercase>
size_t copy_ascii(const char* from, const char* end, char* to) {
    constexpr size_t kBlock = 32;
    const char* const begin = from;
    for (; end - from >= static_cast<ptrdiff_t>(kBlock); from += kBlock, to += kBlock) {
        unsigned char any = 0;
        for (size_t i = 0; i < kBlock; ++i) any |= static_cast<unsigned char>(from[i]);
        if (any >= 0x80) break;
        for (size_t i = 0; i < kBlock; ++i) to[i] = lowercase ? ascii_lower(from[i]) : from[i];
    }
    for (; from != end && at(from) < 0x80; ++from, ++to) *to = lowercase ? ascii_lower(*from) : *from;
    return static_cast<size_t>(from - begin);
}

}  // namespace

void Normalized::assign(std::string_view text, bool lowercase) {
    const size_t room = kMostBytesPerByte * text.size() + kPadding;
    if (bytes_.size() < room) bytes_.resize(std::max(room, 2 * bytes_.size()));
    size_ = 0;
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p != end) {
        const size_t n = lowercase ? copy_ascii<true>(p, end, bytes_.data() + size_)
                                   : copy_ascii<false>(p, end, bytes_.data() + size_);
        p += n;
        size_ += n;
        while (p != end && at(p) >= 0x80) copy_character(p, end, lowercase);
    }
    std::memset(bytes_.data() + size_, 0, kPadding);
}

void Normalized::collapse_spaces() {
    const char* p = bytes_.data();
    const char* const end = p + size_;
    char* to = bytes_.data();
    while (p != end) {
        const char* const begin = p;
        size_t spaces = is_space(next(p)) ? 1 : 0;
        while (spaces > 0 && p != end) {
            const char* const here = p;
            if (!is_space(next(p))) {
                p = here;
                break;
            }
            ++spaces;
        }
        if (spaces > 1)
            *to++ = ' ';
        else
            to = std::copy(begin, static_cast<const char*>(p), to);
    }
    size_ = static_cast<size_t>(to - bytes_.data());
    std::memset(bytes_.data() + size_, 0, kPadding);
}

void Normalized::copy_character(const char*& p, const char* end, bool lowercase) {
    const uint32_t code = decode(p, end);
    if (!lowercase)
        put(code);
    else if (code == kCapitalSigma)
        put(lower_sigma(p, end));
    else
        put(static_cast<uint32_t>(static_cast<int32_t>(code) + record(code).to_lower));
    if (lowercase && code == kDottedCapitalI) put(kCombiningDotAbove);
}

void Normalized::put(uint32_t code) {
    char* to = bytes_.data() + size_;
    if (code < 0x80) {
        *to++ = static_cast<char>(code);
    } else {
        const int following = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
        *to++ = static_cast<char>(kLead[following] | code >> (6 * following));
        for (int i = following; i-- > 0;) *to++ = static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
    }
    size_ = static_cast<size_t>(to - bytes_.data());
}

// Unicode's Final_Sigma: after a cased letter and not before one, skipping case-ignorable characters. The
// preceding output is already in lower case, which changes neither property (the script that makes the tables
// checks this).
uint32_t Normalized::lower_sigma(const char* behind, const char* end) const {
    const char* p = bytes_.data() + size_;
    uint8_t before = 0;
    while (p != bytes_.data()) {
        do --p;
        while ((at(p) & 0xC0) == 0x80);
        const char* character = p;
        before = record(next(character)).flags;
        if (!(before & kIgnorable)) break;
    }
    if (before & kIgnorable || !(before & kCased)) return kSmallSigma;
    while (behind != end) {
        const uint8_t after = record(decode(behind, end)).flags;
        if (!(after & kIgnorable)) return after & kCased ? kSmallSigma : kFinalSigma;
    }
    return kFinalSigma;
}

}  // namespace bonsai::text

// Character properties of one fixed version of Unicode, independent of the Python version: letters and
// digits, white space, lower case, defined as in Python's `\w`, `str.isspace` and `str.lower`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bonsai::text {

namespace unicode {

struct Record {
    int32_t to_lower;  // added to a code point, gives its lower case
    uint8_t flags;
};

enum Flag : uint8_t { kWord = 1, kSpace = 2, kCased = 4, kIgnorable = 8 };

#include "text/unicode_tables.inc"

inline constexpr uint32_t kReplacement = 0xFFFD;
inline constexpr uint32_t kBlockBits = 7;

constexpr const Record& record(uint32_t code) {
    return kRecords[kRecordOf[(size_t{kBlockOf[code >> kBlockBits]} << kBlockBits) | (code & 127)]];
}
constexpr bool is_word(uint32_t code) {
    return record(code).flags & kWord;
}
constexpr bool is_space(uint32_t code) {
    return record(code).flags & kSpace;
}

// Decodes the code point at `p` of well-formed text and moves `p` behind it.
inline uint32_t next(const char*& p) {
    const auto byte = [](char c) { return static_cast<uint32_t>(static_cast<unsigned char>(c)); };
    const uint32_t first = byte(*p++);
    if (first < 0x80) return first;
    uint32_t code = byte(*p++) & 0x3F;
    if (first < 0xE0) return (first & 0x1F) << 6 | code;
    code = code << 6 | (byte(*p++) & 0x3F);
    if (first < 0xF0) return (first & 0x0F) << 12 | code;
    code = code << 6 | (byte(*p++) & 0x3F);
    return (first & 0x07) << 18 | code;
}

}  // namespace unicode

// A text prepared for the analyzers: well-formed UTF-8, optionally in lower case, followed by kPadding zero
// bytes. Invalid UTF-8 becomes U+FFFD, and so does a surrogate (three bytes, as written by "surrogatepass").
class Normalized {
  public:
    static constexpr size_t kPadding = 8;

    void assign(std::string_view text, bool lowercase);
    // Each run of two or more white-space characters becomes one U+0020; a single one is unchanged.
    void collapse_spaces();
    std::string_view view() const { return {bytes_.data(), size_}; }

  private:
    void copy_character(const char*& p, const char* end, bool lowercase);
    void put(uint32_t code);
    uint32_t lower_sigma(const char* behind, const char* end) const;

    std::vector<char> bytes_;  // grows, never shrinks
    size_t size_ = 0;
};

}  // namespace bonsai::text

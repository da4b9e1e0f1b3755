// Splits texts like scikit-learn's analyzers. All functions take the view of a Normalized and call
// fn(std::string_view) for each piece in text order. Pieces lie in that view, so that 8 bytes are readable
// from any position in a piece.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "text/unicode.hpp"

namespace bonsai::text {

namespace detail {

constexpr auto ascii_flags() {
    std::array<uint8_t, 128> flags{};
    for (uint32_t c = 0; c < 128; ++c) flags[c] = unicode::record(c).flags;
    return flags;
}
inline constexpr auto kAsciiFlags = ascii_flags();

inline uint8_t flags_at(const char*& p) {
    const auto first = static_cast<unsigned char>(*p);
    if (first < 0x80) {
        ++p;
        return kAsciiFlags[first];
    }
    return unicode::record(unicode::next(p)).flags;
}

}  // namespace detail

// Runs of word characters (letters, digits, other numbers, underscore) of at least `min_length` code points:
// the pattern \w\w+ for 2, \w+ for 1.
template <class Fn>
void for_each_word(std::string_view text, size_t min_length, Fn&& fn) {
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p != end) {
        const char* const begin = p;
        if (!(detail::flags_at(p) & unicode::kWord)) continue;
        const char* word_end = p;
        size_t length = 1;
        while (p != end && detail::flags_at(p) & unicode::kWord) {
            word_end = p;
            ++length;
        }
        if (length >= min_length) fn(std::string_view(begin, static_cast<size_t>(word_end - begin)));
    }
}

// The spans between white space, as in str.split.
template <class Fn>
void for_each_span(std::string_view text, Fn&& fn) {
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p != end) {
        const char* const begin = p;
        if (detail::flags_at(p) & unicode::kSpace) continue;
        const char* span_end = p;
        while (p != end && !(detail::flags_at(p) & unicode::kSpace)) span_end = p;
        fn(std::string_view(begin, static_cast<size_t>(span_end - begin)));
    }
}

// The offsets of all code points of a text, and of its end.
class Offsets {
  public:
    void assign(std::string_view text) {
        offsets_.clear();
        for (size_t i = 0; i < text.size(); ++i)
            if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets_.push_back(i);
        offsets_.push_back(text.size());
    }
    size_t size() const { return offsets_.size() - 1; }
    std::string_view slice(std::string_view text, size_t begin, size_t n) const {
        return text.substr(offsets_[begin], offsets_[begin + n] - offsets_[begin]);
    }

  private:
    std::vector<size_t> offsets_;
};

// The n-grams of code points of a text, for each n in [min_n, max_n] (scikit-learn's "char" on a text with
// collapsed white space).
template <class Fn>
void for_each_char_ngram(std::string_view text, Offsets& offsets, size_t min_n, size_t max_n, Fn&& fn) {
    offsets.assign(text);
    for (size_t n = min_n; n <= std::min(max_n, offsets.size()); ++n)
        for (size_t i = 0; i + n <= offsets.size(); ++i) fn(offsets.slice(text, i, n));
}

// A span with a space before and after it.
class PaddedSpan {
  public:
    std::string_view operator()(std::string_view span) {
        bytes_.assign(1, ' ');
        bytes_.insert(bytes_.end(), span.begin(), span.end());
        bytes_.push_back(' ');
        bytes_.resize(bytes_.size() + Normalized::kPadding);
        return {bytes_.data(), bytes_.size() - Normalized::kPadding};
    }

  private:
    std::vector<char> bytes_;
};

// The n-grams of one span with a space before and after it (scikit-learn's "char_wb"). A padded span of at
// most n code points is passed once, as a whole: larger n add nothing.
template <class Fn>
void for_each_ngram_in_span(std::string_view padded, Offsets& offsets, size_t min_n, size_t max_n, Fn&& fn) {
    offsets.assign(padded);
    for (size_t n = min_n; n <= max_n; ++n) {
        if (offsets.size() <= n) {
            fn(padded);
            return;
        }
        for (size_t i = 0; i + n <= offsets.size(); ++i) fn(offsets.slice(padded, i, n));
    }
}

}  // namespace bonsai::text

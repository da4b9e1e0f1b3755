// Strings and their numbers (ids), both ways. Numbers count up from 0 in order of first occurrence.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace bonsai::text {

inline constexpr uint32_t kNone = UINT32_MAX;  // stands for a missing entry

namespace detail {

inline uint64_t multiply_fold(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// The first n < 8 bytes at p, the rest zeros; 8 bytes may be read.
inline uint64_t load_head(const char* p, size_t n) {
    uint64_t bytes;
    std::memcpy(&bytes, p, 8);
    return n >= 8 ? bytes : bytes & ((uint64_t{1} << (8 * n)) - 1);
}

}  // namespace detail

// The 7 bytes after every string passed in must be readable: short strings are compared and hashed as one
// number.
class StringTable {
  public:
    StringTable() : slots_(kFirstSlots), bytes_(kPadding) {}

    // Returns the number of the string and adds the string if it is new.
    uint32_t intern(std::string_view s) {
        const uint64_t head = detail::load_head(s.data(), s.size());
        size_t place = hash(s, head) & (slots_.size() - 1);
        while (slots_[place].number_plus_1 != 0) {
            if (holds(slots_[place], s, head)) return slots_[place].number_plus_1 - 1;
            place = (place + 1) & (slots_.size() - 1);
        }
        const uint32_t number = append(s);
        slots_[place] = {head, static_cast<uint32_t>(s.size()), number + 1};
        if (2 * ends_.size() > slots_.size()) grow(2 * slots_.size());
        return number;
    }

    // Returns the number of the string, or kNone.
    uint32_t find(std::string_view s) const {
        const uint64_t head = detail::load_head(s.data(), s.size());
        size_t place = hash(s, head) & (slots_.size() - 1);
        while (slots_[place].number_plus_1 != 0) {
            if (holds(slots_[place], s, head)) return slots_[place].number_plus_1 - 1;
            place = (place + 1) & (slots_.size() - 1);
        }
        return kNone;
    }

    size_t size() const { return ends_.size(); }
    // Followed by 7 readable bytes.
    std::string_view operator[](size_t number) const {
        const size_t begin = number > 0 ? ends_[number - 1] : 0;
        return {bytes_.data() + begin, ends_[number] - begin};
    }

  private:
    static constexpr size_t kPadding = 8;
    static constexpr size_t kFirstSlots = 16;
    static constexpr size_t kMostStrings = size_t{1} << 31;

    struct Slot {
        uint64_t head;  // the first 8 bytes, enough to compare strings up to that length
        uint32_t size;
        uint32_t number_plus_1;  // 0: free
    };

    static uint64_t hash(std::string_view s, uint64_t head) {
        constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ULL, kOther = 0xD6E8FEB86659FD93ULL;
        uint64_t h = detail::multiply_fold(head ^ s.size() * kOther, kFactor);
        for (size_t i = 8; i < s.size(); i += 8)
            h = detail::multiply_fold(h ^ detail::load_head(s.data() + i, s.size() - i), kFactor);
        return h;
    }

    bool holds(const Slot& slot, std::string_view s, uint64_t head) const {
        return slot.head == head && slot.size == s.size() &&
               (s.size() <= 8 || (*this)[slot.number_plus_1 - 1].substr(8) == s.substr(8));
    }

    uint32_t append(std::string_view s) {
        if (ends_.size() >= kMostStrings) throw std::length_error("more than 2^31 different terms");
        const size_t begin = bytes_.size() - kPadding;
        bytes_.resize(begin + s.size() + kPadding);
        std::memcpy(bytes_.data() + begin, s.data(), s.size());
        ends_.push_back(begin + s.size());
        return static_cast<uint32_t>(ends_.size() - 1);
    }

    void grow(size_t n_slots) {
        std::vector<Slot> old(n_slots);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.number_plus_1 == 0) continue;
            size_t place = hash((*this)[slot.number_plus_1 - 1], slot.head) & (slots_.size() - 1);
            while (slots_[place].number_plus_1 != 0) place = (place + 1) & (slots_.size() - 1);
            slots_[place] = slot;
        }
    }

    std::vector<Slot> slots_;  // a power of two, at most half of them taken
    std::vector<char> bytes_;  // all strings, one behind another, and kPadding zeros
    std::vector<size_t> ends_;
};

}  // namespace bonsai::text

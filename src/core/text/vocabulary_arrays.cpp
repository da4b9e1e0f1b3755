#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "text/pair_table.hpp"
#include "text/unicode.hpp"
#include "text/vocabulary.hpp"

namespace bonsai::text {

namespace {

void check_ptr(std::span<const int64_t> ptr, size_t n) {
    if (ptr.empty() || ptr.front() != 0 || ptr.back() != static_cast<int64_t>(n) ||
        !std::is_sorted(ptr.begin(), ptr.end()) || ptr.size() > UINT32_MAX)
        throw std::invalid_argument("the vocabulary's offsets do not ascend from 0 to the number of entries");
}

}  // namespace

StringArrays to_arrays(const StringTable& strings) {
    StringArrays arrays{.bytes = {}, .ptr = {0}};
    for (size_t i = 0; i < strings.size(); ++i) {
        const std::string_view s = strings[i];
        arrays.bytes.insert(arrays.bytes.end(), s.begin(), s.end());
        arrays.ptr.push_back(static_cast<int64_t>(arrays.bytes.size()));
    }
    return arrays;
}

StringTable read_strings(std::span<const uint8_t> bytes, std::span<const int64_t> ptr) {
    check_ptr(ptr, bytes.size());
    StringTable strings;
    Normalized text;
    for (size_t i = 0; i + 1 < ptr.size(); ++i) {
        const std::string_view s(reinterpret_cast<const char*>(bytes.data()) + ptr[i],
                                 static_cast<size_t>(ptr[i + 1] - ptr[i]));
        text.assign(s, false);
        if (text.view() != s) throw std::invalid_argument("a term of the vocabulary is not UTF-8");
        if (strings.intern(text.view()) != i)
            throw std::invalid_argument("a term appears twice in the vocabulary");
    }
    return strings;
}

NgramArrays to_arrays(const std::vector<uint64_t>& keys, size_t n_shorter) {
    NgramArrays arrays{.ptr = std::vector<int64_t>(n_shorter + 1), .last = {}};
    for (const uint64_t key : keys) {
        ++arrays.ptr[(key >> 32) + 1];
        arrays.last.push_back(static_cast<uint32_t>(key));
    }
    for (size_t i = 0; i < n_shorter; ++i) arrays.ptr[i + 1] += arrays.ptr[i];
    return arrays;
}

std::vector<uint64_t> read_ngrams(std::span<const int64_t> ptr, std::span<const uint32_t> last) {
    check_ptr(ptr, last.size());
    std::vector<uint64_t> keys;
    keys.reserve(last.size());
    for (size_t i = 0; i + 1 < ptr.size(); ++i)
        for (int64_t j = ptr[i]; j < ptr[i + 1]; ++j)
            keys.push_back(pair_key(static_cast<uint32_t>(i), last[j]));
    return keys;
}

}  // namespace bonsai::text

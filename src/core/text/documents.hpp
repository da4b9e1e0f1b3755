// The texts of some documents, and their division among workers.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace bonsai::text {

// [field][document], UTF-8.
using Documents = std::vector<std::vector<std::string_view>>;

struct Range {
    size_t begin;
    size_t end;
};

inline size_t n_documents(const Documents& documents) {
    return documents.empty() ? 0 : documents[0].size();
}

// Ranges of consecutive documents of about `bytes` bytes each. They do not depend on the number of threads.
inline std::vector<Range> split(const Documents& documents, size_t bytes) {
    std::vector<Range> ranges;
    size_t begin = 0, sum = 0;
    const size_t n = n_documents(documents);
    for (size_t d = 0; d < n; ++d) {
        for (const auto& field : documents) sum += field[d].size();
        if (sum < bytes && d + 1 < n) continue;
        ranges.push_back({begin, d + 1});
        begin = d + 1;
        sum = 0;
    }
    return ranges;
}

}  // namespace bonsai::text

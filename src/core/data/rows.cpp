#include "data/rows.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace bonsai {

IdLists transpose(const int64_t* ptr, const int32_t* id, size_t n_rows, size_t n_columns) {
    IdLists lists;
    lists.ptr.assign(n_columns + 1, 0);
    for (int64_t e = 0; e < ptr[n_rows]; ++e) ++lists.ptr[id[e] + 1];
    for (size_t c = 0; c < n_columns; ++c) lists.ptr[c + 1] += lists.ptr[c];
    lists.id.resize(static_cast<size_t>(ptr[n_rows]));
    std::vector<int64_t> next(lists.ptr.begin(), lists.ptr.end() - 1);
    for (size_t i = 0; i < n_rows; ++i)
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) lists.id[next[id[e]]++] = static_cast<int32_t>(i);
    return lists;
}

double row_norm(const RowsView& rows, size_t i) {
    double sum = 0;
    for_each_entry(rows, i, [&](uint32_t, float v) { sum += double{v} * v; });
    return std::sqrt(sum);
}

void check_csr(std::span<const int64_t> ptr, std::span<const int32_t> id, size_t n_rows, size_t limit,
               const char* what) {
    const auto fail = [&](const std::string& why) {
        throw std::invalid_argument(std::string(what) + ": " + why);
    };
    if (ptr.size() != n_rows + 1 || ptr[0] != 0 || ptr[n_rows] != static_cast<int64_t>(id.size()))
        fail("row pointers do not span the entries");
    for (size_t i = 0; i < n_rows; ++i) {
        if (ptr[i] > ptr[i + 1] || ptr[i + 1] > ptr[n_rows])
            fail("row pointers decrease at row " + std::to_string(i));
        int64_t last = -1;
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) {
            if (id[e] <= last || static_cast<size_t>(id[e]) >= limit)
                fail("index " + std::to_string(id[e]) + " in row " + std::to_string(i) +
                     " is out of range or out of order");
            last = id[e];
        }
    }
}

bool is_row(std::span<const int32_t> id, std::span<const float> value, size_t limit) {
    if (id.size() != value.size()) return false;
    if (id.empty()) return true;
    bool good = id.front() >= 0 && static_cast<size_t>(id.back()) < limit;
    for (size_t e = 1; e < id.size(); ++e) good &= id[e - 1] < id[e];
    for (const float v : value) good &= std::abs(v) <= std::numeric_limits<float>::max();
    return good;
}

}  // namespace bonsai

#include "systems/node_columns.hpp"

#include <algorithm>
#include <cmath>

namespace bonsai {
namespace {

// Columns with a value in at least one of so many rows are dense: reading all rows in order takes less time
// than looking up the rows of the entries.
constexpr size_t kRowsPerEntry = 4;

// Whether the absolute values sum to more than `least`.
template <class Value>
bool exceeds(size_t n, double least, Value&& value) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        sum += std::abs(value(i));
        if (sum > least) return true;
    }
    return false;
}

}  // namespace

TreeColumns::TreeColumns(const Dataset& data, double c) {
    const Columns all(data);
    const size_t n = data.n_rows();
    float most = 0;
    for (size_t i = 0; i < n; ++i) most = std::max(most, data.weight(i));
    least_ = 1 / (c * most);
    std::vector<uint32_t> sparse;
    root_.n_rows_ = n;
    size_t n_entries = 0;
    for (uint32_t f = 0; f < all.size(); ++f) {
        const auto column = all[f];
        if (!exceeds(column.size(), least_, [&](size_t e) { return column[e].value; })) continue;
        if (column.size() * kRowsPerEntry >= n) {
            root_.columns_.push_back({f, 0, n * root_.n_dense_++});
        } else {
            sparse.push_back(f);
            n_entries += column.size();
        }
    }
    memory_.cells.resize(n * root_.n_dense_);
    memory_.entries.resize(n_entries);
    root_.cells_ = memory_.cells.data();
    root_.entries_ = memory_.entries.data();
    std::fill(memory_.cells.begin(), memory_.cells.end(), 0.0f);
    for (const auto& column : root_.columns_)
        for (const auto& e : all[column.feature]) memory_.cells[column.begin + e.row] = e.value;
    size_t begin = 0;
    for (const uint32_t f : sparse) {
        std::copy(all[f].begin(), all[f].end(), memory_.entries.data() + begin);
        root_.columns_.push_back({f, static_cast<uint32_t>(all[f].size()), begin});
        begin += all[f].size();
    }
}

ColumnMemory TreeColumns::memory_of_tree() const {
    ColumnMemory memory;
    memory.entries.resize(memory_.entries.size());
    memory.cells.resize(memory_.cells.size());
    return memory;
}

void ColumnDivider::divide_dense(const float* from, float* to) {
    const auto& [left, right] = rows_;
    for (size_t i = 0; i < right.size(); ++i) right_cells_[i] = from[right[i]];
    for (size_t i = 0; i < left.size(); ++i) to[i] = from[left[i]];
    std::copy_n(right_cells_.data(), right.size(), to + left.size());
}

// Writes each entry on both sides and advances on one, which takes less time than a branch.
uint32_t ColumnDivider::divide_sparse(std::span<const Entry> from, Entry* to) {
    const uint32_t* const places = place_.data();
    Entry* const on_right = right_entries_.data();
    uint32_t n_left = 0, n_right = 0;
    for (const Entry& e : from) {
        const uint32_t place = places[e.row];
        const Entry entry{place / 2, e.value};
        to[n_left] = entry;
        on_right[n_right] = entry;
        n_left += 1 - place % 2;
        n_right += place % 2;
    }
    std::copy_n(on_right, n_right, to + n_left);
    return n_left;
}

std::array<NodeColumns, 2> ColumnDivider::divide(const NodeColumns& parent, std::span<const uint8_t> right,
                                                 ColumnMemory& memory) {
    place_.resize(right.size());
    right_cells_.resize(right.size());
    right_entries_.resize(right.size() + 1);  // one is written beyond the last
    for (auto& rows : rows_) rows.clear();
    for (uint32_t i = 0; i < right.size(); ++i) {
        auto& rows = rows_[right[i]];
        place_[i] = 2 * static_cast<uint32_t>(rows.size()) + right[i];
        rows.push_back(i);
    }
    std::array<NodeColumns, 2> children;
    for (const size_t side : {0, 1}) {
        children[side].n_rows_ = rows_[side].size();
        children[side].entries_ = memory.entries.data();
        children[side].cells_ = memory.cells.data();
    }
    for (size_t j = 0; j < parent.size(); ++j) {
        const auto [feature, n_entries, begin] = parent.columns_[j];
        if (j < parent.n_dense()) {
            float* const cells = memory.cells.data() + begin;
            divide_dense(parent.dense(j), cells);
            for (size_t side = 0, first = 0; side < 2; first += rows_[side++].size()) {
                if (!exceeds(rows_[side].size(), least_, [&](size_t i) { return cells[first + i]; }))
                    continue;
                children[side].columns_.push_back({feature, 0, begin + first});
                ++children[side].n_dense_;
            }
        } else {
            Entry* const entries = memory.entries.data() + begin;
            const uint32_t n_left = divide_sparse(parent.sparse(j), entries);
            const uint32_t n[2] = {n_left, n_entries - n_left};
            for (size_t side = 0, first = 0; side < 2; first += n[side++])
                if (exceeds(n[side], least_, [&](size_t e) { return entries[first + e].value; }))
                    children[side].columns_.push_back({feature, n[side], begin + first});
        }
    }
    return children;
}

}  // namespace bonsai

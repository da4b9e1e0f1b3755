#include "text/tfidf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace bonsai::text {

namespace {

double sublinear(uint32_t n) {
    constexpr size_t kTabled = 256;
    static const auto table = [] {
        std::array<double, kTabled> values{};
        for (size_t i = 1; i < kTabled; ++i) values[i] = 1 + std::log(static_cast<double>(i));
        return values;
    }();
    return n < kTabled ? table[n] : 1 + std::log(static_cast<double>(n));
}

using Counts = std::vector<Count<uint32_t>>;

// A radix sort: a row of n entries takes n steps per digit, whereas a comparison sort takes n log n with half
// of its branches mispredicted.
void sort_by_column(Counts& counts, size_t n_columns, Counts& buffer) {
    constexpr size_t kFewToCompare = 48;
    constexpr unsigned kMostBits = 9;
    if (counts.size() <= kFewToCompare) {
        std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
        return;
    }
    const auto bits = static_cast<unsigned>(std::bit_width(n_columns));
    const unsigned digits = (bits + kMostBits - 1) / kMostBits;
    const unsigned width = (bits + digits - 1) / digits;
    buffer.resize(counts.size());
    std::array<uint32_t, (1 << kMostBits) + 1> place;
    for (unsigned shift = 0; shift < digits * width; shift += width) {
        const auto digit = [&](const Count<uint32_t>& item) {
            return item.key >> shift & ((1u << width) - 1);
        };
        std::fill_n(place.begin(), (size_t{1} << width) + 1, 0u);
        for (const auto& item : counts) ++place[digit(item) + 1];
        std::partial_sum(place.begin(), place.begin() + (ptrdiff_t{1} << width), place.begin());
        for (const auto& item : counts) buffer[place[digit(item)]++] = item;
        counts.swap(buffer);
    }
}

// Most counts are 1, and every power of 1 is 1.
double raised(double value, double power) {
    return power == 1 || value == 1 ? value : std::pow(value, power);
}

double idf(uint32_t df, size_t n_documents, bool smooth) {
    const double more = smooth ? 1 : 0;
    return std::log((static_cast<double>(n_documents) + more) / (df + more)) + 1;
}

}  // namespace

BlockWeights::BlockWeights(const Vocabulary& v, size_t block, size_t first)
    : columns(number_columns(v.spec.blocks[block], v.fields[v.spec.blocks[block].field], v.blocks[block])),
      first_column(first),
      idf(columns.size),
      sublinear_tf(v.spec.blocks[block].sublinear_tf),
      power(v.spec.blocks[block].power),
      weight(v.spec.blocks[block].weight) {
    const auto& df = v.blocks[block].df;
    for (size_t i = 0; i < df.size(); ++i)
        for (size_t t = 0; t < df[i].size(); ++t)
            if (df[i][t] > 0)
                idf[columns.of[i][t]] = static_cast<float>(
                    raised(text::idf(df[i][t], v.n_documents, v.spec.blocks[block].smooth_idf), power));
}

std::vector<BlockWeights> block_weights(const Vocabulary& vocabulary) {
    std::vector<BlockWeights> weights;
    size_t column = 0;
    for (size_t b = 0; b < vocabulary.blocks.size(); ++b) {
        weights.emplace_back(vocabulary, b, column);
        column += weights.back().columns.size;
    }
    if (column > INT32_MAX) throw std::length_error("more than 2^31 features");
    return weights;
}

void RowWriter::add(const BlockWeights& block, std::vector<Count<uint32_t>>& columns) {
    sort_by_column(columns, block.columns.size, buffer_);
    double norm2 = 0;
    const size_t begin = values_.size();
    for (const auto& [column, n] : columns) {
        const double tf = block.sublinear_tf ? sublinear(n) : n;
        const double value = raised(tf, block.power) * block.idf[column];
        norm2 += value * value;
        values_.push_back(value);
        index_.push_back(static_cast<int32_t>(block.first_column + column));
    }
    if (norm2 == 0) return;
    const double factor = block.weight / std::sqrt(norm2);
    for (size_t i = begin; i < values_.size(); ++i) values_[i] *= factor;
}

void RowWriter::end_row() {
    double norm2 = 0;
    for (const double value : values_) norm2 += value * value;
    const double factor = norm2 > 0 ? 1 / std::sqrt(norm2) : 0;
    for (const double value : values_) rows_.value.push_back(static_cast<float>(value * factor));
    rows_.index.insert(rows_.index.end(), index_.begin(), index_.end());
    rows_.ptr.push_back(static_cast<int64_t>(rows_.index.size()));
    values_.clear();
    index_.clear();
}

SparseRows join(std::vector<SparseRows>& parts, Pool& pool) {
    SparseRows all;
    std::vector<size_t> first_row;
    size_t n_entries = 0;
    for (const auto& part : parts) {
        first_row.push_back(all.ptr.size());
        for (size_t i = 1; i < part.ptr.size(); ++i)
            all.ptr.push_back(static_cast<int64_t>(n_entries) + part.ptr[i]);
        n_entries += part.index.size();
    }
    all.index.resize(n_entries);
    all.value.resize(n_entries);
    pool.run(parts.size(), [&](size_t i, unsigned) {
        const auto begin = all.ptr[first_row[i] - 1];
        std::copy(parts[i].index.begin(), parts[i].index.end(), all.index.begin() + begin);
        std::copy(parts[i].value.begin(), parts[i].value.end(), all.value.begin() + begin);
        parts[i] = {};
    });
    return all;
}

}  // namespace bonsai::text

#include "one_vs_rest/row_index.hpp"

#include <algorithm>
#include <cmath>

namespace bonsai {
namespace {

constexpr double kLevelsPerOctave = 4;
constexpr double kLargestSum = 32000;
constexpr uint32_t kRowMask = (uint32_t{1} << RowIndex::kRowBits) - 1;

// A value and the value of its level differ by at most this factor: half a level.
const double kRounding = std::exp2(0.5 / kLevelsPerOctave);

}  // namespace

bool RowIndex::can_index(const RowsView& rows) {
    return !rows.is_dense() && rows.n_rows <= kMaxRows &&
           std::none_of(rows.value, rows.value + rows.ptr[rows.n_rows], [](float v) { return v < 0; });
}

RowIndex::RowIndex(const RowsView& rows, Pool& pool)
    : n_rows_(rows.n_rows),
      largest_(rows.n_features, 0.0f),
      ptr_(rows.n_features + 1, 0),
      postings_(static_cast<size_t>(rows.ptr[rows.n_rows])) {
    for (size_t i = 0; i < n_rows_; ++i) norm_ = std::max(norm_, row_norm(rows, i));
    for (int64_t e = 0; e < rows.ptr[n_rows_]; ++e) {
        const auto f = static_cast<size_t>(rows.index[e]);
        largest_[f] = std::max(largest_[f], rows.value[e]);
        ++ptr_[f + 1];
    }
    for (size_t f = 0; f < rows.n_features; ++f) ptr_[f + 1] += ptr_[f];
    fill(rows);
    constexpr size_t per_task = 256;
    pool.run((rows.n_features + per_task - 1) / per_task, [&](size_t task, unsigned) {
        const size_t end = std::min(rows.n_features, (task + 1) * per_task);
        for (size_t f = task * per_task; f < end; ++f)
            std::sort(postings_.data() + ptr_[f], postings_.data() + ptr_[f + 1]);
    });
}

void RowIndex::fill(const RowsView& rows) {
    double largest = 0;
    for (const float value : largest_) largest = std::max(largest, double{value});
    for (size_t l = 0; l < kLevels; ++l)
        values_[l] =
            static_cast<float>(largest * std::exp2(-(static_cast<double>(l) + 0.5) / kLevelsPerOctave));
    std::vector<size_t> next(ptr_.begin(), ptr_.end() - 1);
    for (uint32_t i = 0; i < n_rows_; ++i)
        for (int64_t e = rows.ptr[i]; e < rows.ptr[i + 1]; ++e) {
            const double below = rows.value[e] > 0 ? std::log2(largest / double{rows.value[e]}) : kLevels;
            const auto level = static_cast<uint32_t>(std::min(kLevelsPerOctave * below, kLevels - 1.0));
            postings_[next[rows.index[e]]++] = level << kRowBits | i;
        }
}

std::span<const uint32_t> RowSearch::find(std::span<const Entry> weights, float least_product,
                                          float least_sum) {
    n_postings_ = 0;
    choose_parts(weights, least_product);
    // No sum exceeds 16 bits, by the Cauchy-Schwarz inequality.
    double norm2 = 0;
    for (const Part& part : parts_) norm2 += double{part.weight} * part.weight;
    if (norm2 == 0) return {};
    const double scale = kLargestSum / (std::sqrt(norm2) * index_.norm() * kRounding);
    const double threshold = std::min(least_sum * scale, kLargestSum);
    const size_t n = add_up(static_cast<float>(scale), least_product, static_cast<int16_t>(threshold));
    return std::span(found_).first(n);
}

// The complete lists of these weights.
void RowSearch::choose_parts(std::span<const Entry> weights, float least_product) {
    parts_.clear();
    for (const Entry& w : weights) {
        if (!(w.value * index_.largest(w.feature) >= least_product)) continue;
        const auto list = index_.list(w.feature);
        __builtin_prefetch(list.data());
        parts_.push_back({list.data(), list.data() + list.size(), w.value});
    }
}

// Cuts the lists where products become too small.
size_t RowSearch::add_up(float scale, float least_product, int16_t threshold) {
    int16_t* const sums = sums_.data();
    const float* const values = index_.values();
    uint32_t* found = found_.data();
    for (Part& part : parts_) {
        int16_t product[RowIndex::kLevels];
        uint32_t n_levels = 0;
        for (; n_levels < RowIndex::kLevels && part.weight * values[n_levels] >= least_product; ++n_levels)
            product[n_levels] = static_cast<int16_t>(part.weight * values[n_levels] * scale);
        const uint32_t limit = n_levels << RowIndex::kRowBits;
        const uint32_t* p = part.begin;
        for (; p < part.end && *p < limit; ++p) {
            const uint32_t row = *p & kRowMask;
            const auto before = sums[row],
                       after = static_cast<int16_t>(before + product[*p >> RowIndex::kRowBits]);
            sums[row] = after;
            *found = row;
            found += (before <= threshold) & (after > threshold);
        }
        part.end = p;
        n_postings_ += static_cast<size_t>(p - part.begin);
    }
    for (const Part& part : parts_)
        for (const uint32_t* p = part.begin; p < part.end; ++p) sums[*p & kRowMask] = 0;
    return static_cast<size_t>(found - found_.data());
}

}  // namespace bonsai

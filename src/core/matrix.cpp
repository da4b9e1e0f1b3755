#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace bonsai {

IdLists transpose(const int64_t* ptr, const int32_t* id, size_t n_rows, size_t n_columns) {
    IdLists lists;
    lists.ptr.assign(n_columns + 1, 0);
    for (int64_t e = 0; e < ptr[n_rows]; ++e) ++lists.ptr[id[e] + 1];
    for (size_t c = 0; c < n_columns; ++c) lists.ptr[c + 1] += lists.ptr[c];
    lists.id.resize(static_cast<size_t>(ptr[n_rows]));
    std::vector<int64_t> at(lists.ptr.begin(), lists.ptr.end() - 1);
    for (size_t i = 0; i < n_rows; ++i)
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) lists.id[at[id[e]]++] = static_cast<int32_t>(i);
    return lists;
}

double row_norm(const RowsView& rows, size_t i) {
    double sum = 0;
    for_each_entry(rows, i, [&](uint32_t, float v) { sum += double{v} * v; });
    return std::sqrt(sum);
}

Slice::Slice(const RowsView& source, std::span<const uint32_t> ids, std::span<const float> factors,
             Scratch& scratch, bool apart) {
    view_.n_rows = ids.size();
    if (source.dense) {
        pick_.assign(ids.begin(), ids.end());
        scale_.resize(ids.size());
        for (size_t i = 0; i < ids.size(); ++i) scale_[i] = factors.empty() ? 1.0f : factors[ids[i]];
        features_.resize(source.n_features);
        for (size_t f = 0; f < features_.size(); ++f) features_[f] = static_cast<uint32_t>(f);
        view_.n_features = source.n_features;
        view_.dense = source.dense;
        view_.pick = pick_.data();
        view_.scale = scale_.data();
        return;
    }
    auto& local =
        scratch.local;  // of each feature: first how often it occurs, then its number here, plus one
    local.resize(source.n_features, 0);
    std::vector<uint32_t> met;
    uint32_t most = 0;
    size_t entries = 0;
    for (const uint32_t i : ids) {
        for (int64_t e = source.ptr[i]; e < source.ptr[i + 1]; ++e) {
            uint32_t& count = local[source.index[e]];
            if (count == 0) met.push_back(static_cast<uint32_t>(source.index[e]));
            most = std::max(most, ++count);
        }
        entries += source.row_size(i);
    }
    // Frequent features first; those that are as frequent, as they were met.
    std::vector<uint32_t> next(size_t{most} + 2, 0);  // most - count -> where such a feature goes
    for (const uint32_t f : met) ++next[most - local[f] + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    const size_t n_shared = apart && most > 0 ? next[most - 1] : met.size(), n_lone = met.size() - n_shared;
    constexpr uint32_t alone = ~uint32_t{0};
    features_.reserve(met.size());
    features_.resize(n_shared);
    for (const uint32_t f : met) {
        const uint32_t number = next[most - local[f]]++;
        if (number < n_shared) features_[number] = f;
        local[f] = number < n_shared ? number + 1 : alone;
    }
    ptr_.reserve(ids.size() + 1);
    ptr_.push_back(0);
    index_.resize(entries - n_lone);
    value_.resize(entries - n_lone);
    lone_.first_feature = n_shared;
    if (apart) lone_.ptr.push_back(0);
    size_t at = 0;
    for (const uint32_t i : ids) {
        const float factor = factors.empty() ? 1.0f : factors[i];
        for (int64_t e = source.ptr[i]; e < source.ptr[i + 1]; ++e) {
            const uint32_t number = local[source.index[e]];
            const float value = source.value[e] * factor;
            if (number == alone) {
                features_.push_back(static_cast<uint32_t>(source.index[e]));
                lone_.value.push_back(value);
            } else {
                index_[at] = static_cast<int32_t>(number - 1);
                value_[at++] = value;
            }
        }
        ptr_.push_back(static_cast<int64_t>(at));
        if (apart) lone_.ptr.push_back(static_cast<int64_t>(lone_.value.size()));
    }
    for (const uint32_t f : features_) local[f] = 0;
    view_.n_features = n_shared;
    view_.ptr = ptr_.data();
    view_.index = index_.data();
    view_.value = value_.data();
}

void Slice::sort_rows() {
    if (view_.dense) return;
    // Column by column, rows ascending in each; and back.
    std::vector<int64_t> at(view_.n_features + 1, 0);
    for (const int32_t f : index_) ++at[f + 1];
    for (size_t f = 0; f < view_.n_features; ++f) at[f + 1] += at[f];
    std::vector<uint32_t> row(index_.size());
    std::vector<float> value(index_.size());
    for (size_t i = 0; i < view_.n_rows; ++i)
        for (int64_t e = ptr_[i]; e < ptr_[i + 1]; ++e) {
            const int64_t to = at[index_[e]]++;
            row[to] = static_cast<uint32_t>(i);
            value[to] = value_[e];
        }
    std::vector<int64_t> next(ptr_.begin(), ptr_.end() - 1);
    int64_t e = 0;
    for (size_t f = 0; f < view_.n_features; ++f)
        for (; e < at[f]; ++e) {
            const int64_t to = next[row[e]]++;
            index_[to] = static_cast<int32_t>(f);
            value_[to] = value[e];
        }
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
            fail("row pointers fall at row " + std::to_string(i));
        int64_t last = -1;
        for (int64_t e = ptr[i]; e < ptr[i + 1]; ++e) {
            if (id[e] <= last || static_cast<size_t>(id[e]) >= limit)
                fail("index " + std::to_string(id[e]) + " in row " + std::to_string(i) +
                     " is out of range or out of order");
            last = id[e];
        }
    }
}

Dataset::Dataset(const RowsView& x, std::span<const int64_t> label_ptr, std::span<const int32_t> labels,
                 size_t n_labels, std::span<const float> weights, bool normalize)
    : x_(x), label_ptr_(label_ptr.data()), labels_(labels.data()), weights_(weights) {
    check_csr(label_ptr, labels, x.n_rows, n_labels, "Y");
    if (!weights.empty() && weights.size() != x.n_rows)
        throw std::invalid_argument("one weight for each row");
    factors_.assign(x.n_rows, 1.0f);
    for (size_t i = 0; i < x.n_rows; ++i) {
        const double norm = row_norm(x, i);
        if (normalize && norm > kSmallestNorm) factors_[i] = static_cast<float>(1.0 / norm);
        if (!normalize && norm > kLargestNorm)
            throw std::invalid_argument("row " + std::to_string(i) +
                                        " of X is longer than 1e15, too long to learn from " +
                                        "without normalisation: rescale the features, or set normalize=True");
    }
    rows_of_label_ = transpose(label_ptr_, labels_, x.n_rows, n_labels);
}

}  // namespace bonsai

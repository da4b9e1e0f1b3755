#include "data/matrix.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/parallel.hpp"

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

namespace {

// Features by falling frequency, counts[f] of f; those that are as frequent, as they were met.
template <class Count>
std::vector<uint32_t> by_frequency(std::span<const uint32_t> met, const std::vector<Count>& counts) {
    Count most = 0;
    for (const uint32_t f : met) most = std::max(most, counts[f]);
    std::vector<uint32_t> next(static_cast<size_t>(most) + 2,
                               0);  // most - count -> where such a feature goes
    for (const uint32_t f : met) ++next[most - counts[f] + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<uint32_t> features(met.size());
    for (const uint32_t f : met) features[next[most - counts[f]]++] = f;
    return features;
}

}  // namespace

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
    size_t entries = 0;
    for (const uint32_t i : ids) {
        for (int64_t e = source.ptr[i]; e < source.ptr[i + 1]; ++e)
            if (local[source.index[e]]++ == 0) met.push_back(static_cast<uint32_t>(source.index[e]));
        entries += source.row_size(i);
    }
    features_ = by_frequency(met, local);
    size_t n_shared = features_.size();
    if (apart)
        while (n_shared > 0 && local[features_[n_shared - 1]] == 1) --n_shared;
    const size_t n_lone = features_.size() - n_shared;
    constexpr uint32_t alone = ~uint32_t{0};
    for (size_t number = 0; number < features_.size(); ++number)
        local[features_[number]] = number < n_shared ? static_cast<uint32_t>(number + 1) : alone;
    features_.resize(n_shared);
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

// Column by column first, rows ascending in each, then back: then each row's features ascend. Threads share
// the rows; what each of them has of a column stands together.
SortedSlice::SortedSlice(const RowsView& source, std::span<const uint32_t> ids, Pool& pool) {
    view_.n_rows = ids.size();
    if (source.dense) {
        pick_.assign(ids.begin(), ids.end());
        view_.n_features = source.n_features;
        view_.dense = source.dense;
        view_.pick = pick_.data();
        return;
    }
    ptr_.reserve(ids.size() + 1);
    ptr_.push_back(0);
    for (const uint32_t i : ids) ptr_.push_back(ptr_.back() + static_cast<int64_t>(source.row_size(i)));
    const auto entries = static_cast<size_t>(ptr_.back());

    struct Part {
        size_t begin, end;       // rows
        std::vector<size_t> at;  // feature -> how many entries, then where the next one goes in its column
        std::vector<uint32_t> met = {};
    };
    constexpr size_t worth_a_thread = 1 << 18;
    std::vector<Part> parts;
    const size_t n_parts = std::clamp<size_t>(entries / worth_a_thread, 1, pool.threads());
    for (size_t p = 0; p < n_parts; ++p) {
        const size_t begin = p == 0 ? 0 : parts.back().end;
        const auto share = static_cast<int64_t>(entries / n_parts * (p + 1));
        const auto end =
            p + 1 == n_parts
                ? ids.size()
                : static_cast<size_t>(std::lower_bound(ptr_.begin(), ptr_.end() - 1, share) - ptr_.begin());
        parts.push_back({begin, std::max(begin, end), std::vector<size_t>(source.n_features, 0)});
    }
    const auto for_each_part = [&](auto&& fn) {
        pool.run(n_parts, [&](size_t p, unsigned) { fn(parts[p], p); });
    };
    const auto for_each_entry_of = [&](const Part& part, auto&& fn) {
        for (size_t r = part.begin; r < part.end; ++r)
            for (int64_t e = source.ptr[ids[r]]; e < source.ptr[ids[r] + 1]; ++e)
                fn(r, static_cast<uint32_t>(source.index[e]), source.value[e]);
    };
    for_each_part([&](Part& part, size_t) {
        for_each_entry_of(part, [&](size_t, uint32_t f, float) {
            if (part.at[f]++ == 0) part.met.push_back(f);
        });
    });
    std::vector<uint32_t> features;
    if (n_parts == 1) {
        features = by_frequency(parts[0].met, parts[0].at);
    } else {
        std::vector<uint32_t> met;
        std::vector<size_t> counts(source.n_features, 0);
        for (const Part& part : parts)
            for (const uint32_t f : part.met) {
                if (counts[f] == 0) met.push_back(f);
                counts[f] += part.at[f];
            }
        features = by_frequency(met, counts);
    }
    size_t end = 0;
    for (const uint32_t f : features)
        for (Part& part : parts) end += std::exchange(part.at[f], end);

    std::vector<uint32_t> row(entries);
    std::vector<float> value(entries);
    for_each_part([&](Part& part, size_t) {
        for_each_entry_of(part, [&](size_t r, uint32_t f, float v) {
            const size_t to = part.at[f]++;
            row[to] = static_cast<uint32_t>(r);
            value[to] = v;
        });
    });
    index_.resize(entries);
    value_.resize(entries);
    for_each_part([&](const Part& part, size_t p) {
        std::vector<int64_t> next(ptr_.begin() + static_cast<int64_t>(part.begin),
                                  ptr_.begin() + static_cast<int64_t>(part.end));
        for (size_t number = 0; number < features.size(); ++number) {
            const uint32_t f = features[number];
            // Where the part before ends, or, in the column before, the last part.
            size_t e = p > 0 ? parts[p - 1].at[f] : number > 0 ? parts.back().at[features[number - 1]] : 0;
            for (; e < part.at[f]; ++e) {
                const int64_t to = next[row[e] - part.begin]++;
                index_[to] = static_cast<int32_t>(number);
                value_[to] = value[e];
            }
        }
    });
    view_.n_features = features.size();
    view_.ptr = ptr_.data();
    view_.index = index_.data();
    view_.value = value_.data();
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

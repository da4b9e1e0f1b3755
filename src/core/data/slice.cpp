#include "data/slice.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace bonsai {
namespace {

constexpr size_t kRowsBetweenPolls = 1024;
constexpr uint32_t kSingleton = ~uint32_t{0};

// Distinct features in descending order of frequency; equally frequent ones in the order of `distinct`.
std::vector<uint32_t> by_frequency(std::span<const uint32_t> distinct, std::span<const uint32_t> counts) {
    uint32_t most = 0;
    for (const uint32_t f : distinct) most = std::max(most, counts[f]);
    std::vector<uint32_t> next(size_t{most} + 2, 0);  // most - count -> where the next one goes
    for (const uint32_t f : distinct) ++next[most - counts[f] + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<uint32_t> features(distinct.size());
    for (const uint32_t f : distinct) features[next[most - counts[f]]++] = f;
    return features;
}

void poll(const Control& control, size_t row) {
    if (row % kRowsBetweenPolls == 0) control.check();
}

}  // namespace

Slice::Slice(const RowsView& source, std::span<const uint32_t> ids, std::span<const float> factors,
             Scratch& scratch, const Control& control, bool separate_singletons) {
    if (source.is_dense()) {
        n_features_ = source.n_features;
        dense_ = source.dense;
        row_ids_.assign(ids.begin(), ids.end());
        scale_.resize(ids.size());
        for (size_t r = 0; r < ids.size(); ++r) scale_[r] = factors.empty() ? 1.0f : factors[ids[r]];
        features_.resize(source.n_features);
        std::iota(features_.begin(), features_.end(), 0u);
        return;
    }
    auto& local = scratch.local;  // of each feature: first its frequency, then its local number + 1
    local.resize(source.n_features, 0);
    std::vector<uint32_t> distinct;
    for (size_t r = 0; r < ids.size(); ++r) {
        poll(control, r);
        for (int64_t e = source.ptr[ids[r]]; e < source.ptr[ids[r] + 1]; ++e)
            if (local[source.index[e]]++ == 0) distinct.push_back(static_cast<uint32_t>(source.index[e]));
    }
    features_ = by_frequency(distinct, local);
    n_features_ = features_.size();
    if (separate_singletons)
        while (n_features_ > 0 && local[features_[n_features_ - 1]] == 1) --n_features_;
    for (size_t number = 0; number < features_.size(); ++number)
        local[features_[number]] = number < n_features_ ? static_cast<uint32_t>(number + 1) : kSingleton;
    copy_entries(source, ids, factors, local, control, separate_singletons);
    for (const uint32_t f : distinct) local[f] = 0;
}

// Entries in the order of the source, and the singleton features as they occur.
void Slice::copy_entries(const RowsView& source, std::span<const uint32_t> ids,
                         std::span<const float> factors, std::span<const uint32_t> local,
                         const Control& control, bool separate_singletons) {
    size_t n_entries = 0;
    for (const uint32_t i : ids) n_entries += source.row_size(i);
    n_entries -= features_.size() - n_features_;
    features_.resize(n_features_);
    ptr_.reserve(ids.size() + 1);
    ptr_.push_back(0);
    index_.resize(n_entries);
    value_.resize(n_entries);
    singletons_.first_feature = n_features_;
    if (separate_singletons) singletons_.ptr.push_back(0);
    size_t at = 0;
    for (size_t r = 0; r < ids.size(); ++r) {
        poll(control, r);
        const uint32_t i = ids[r];
        const float factor = factors.empty() ? 1.0f : factors[i];
        for (int64_t e = source.ptr[i]; e < source.ptr[i + 1]; ++e) {
            const uint32_t number = local[source.index[e]];
            const float value = source.value[e] * factor;
            if (number == kSingleton) {
                features_.push_back(static_cast<uint32_t>(source.index[e]));
                singletons_.value.push_back(value);
            } else {
                index_[at] = static_cast<int32_t>(number - 1);
                value_[at++] = value;
            }
        }
        ptr_.push_back(static_cast<int64_t>(at));
        if (separate_singletons) singletons_.ptr.push_back(static_cast<int64_t>(singletons_.value.size()));
    }
}

RowsView Slice::rows() const {
    if (dense_)
        return {.n_rows = row_ids_.size(),
                .n_features = n_features_,
                .dense = dense_,
                .row_ids = row_ids_.data(),
                .scale = scale_.data()};
    return {.n_rows = ptr_.size() - 1,
            .n_features = n_features_,
            .ptr = ptr_.data(),
            .index = index_.data(),
            .value = value_.data()};
}

namespace {

// Sorts rows by transposing them twice, block by block: to columns in the order of the new numbers, and back.
class RowSorter {
  public:
    RowSorter(const RowsView& source, std::span<const uint32_t> ids, std::span<const int64_t> ptr, Pool& pool)
        : source_(source), ids_(ids), ptr_(ptr), pool_(pool) {}

    // Returns the number of features.
    size_t sort(UninitialisedVector<int32_t>& index, UninitialisedVector<float>& value) {
        number_features();
        index.resize(static_cast<size_t>(ptr_.back()));
        value.resize(index.size());
        // A block has at least as many entries as there are columns, but its columns should fit in a cache.
        const auto blocks = cut_rows(std::max<size_t>(kEntriesPerTask, features_.size()), ids_.size());
        pool_.run(blocks.size() - 1, [&](size_t b, unsigned) {
            sort_block(blocks[b], blocks[b + 1], index.data(), value.data());
        });
        return features_.size();
    }

  private:
    static constexpr size_t kEntriesPerTask = 1 << 18;

    // Bounds of up to `most` ranges of rows with about as many entries each, at least `n_entries`.
    std::vector<size_t> cut_rows(size_t n_entries, size_t most) const {
        const auto all = static_cast<size_t>(ptr_.back());
        const size_t n = std::clamp<size_t>(all / n_entries, 1, std::max<size_t>(most, 1));
        std::vector<size_t> bounds = {0};
        for (size_t i = 1; i < n; ++i) {
            const auto share = static_cast<int64_t>(all / n * i);
            const auto row = std::lower_bound(ptr_.begin(), ptr_.end() - 1, share) - ptr_.begin();
            bounds.push_back(std::max(bounds.back(), static_cast<size_t>(row)));
        }
        bounds.push_back(ids_.size());
        return bounds;
    }

    // fn(row, feature, value)
    template <class Fn>
    void for_each_entry_of(size_t begin, size_t end, Fn&& fn) const {
        for (size_t r = begin; r < end; ++r) {
            poll(pool_.control(), r);
            for (int64_t e = source_.ptr[ids_[r]]; e < source_.ptr[ids_[r] + 1]; ++e)
                fn(r, static_cast<uint32_t>(source_.index[e]), source_.value[e]);
        }
    }

    // The frequency of features in a part of the rows, and the order in which they first occur there.
    struct Part {
        std::vector<uint32_t> count, distinct;
    };

    void number_features() {
        const auto bounds = cut_rows(kEntriesPerTask, pool_.threads());
        std::vector<Part> parts(bounds.size() - 1);
        pool_.run(parts.size(), [&](size_t p, unsigned) {
            parts[p].count.assign(source_.n_features, 0);
            for_each_entry_of(bounds[p], bounds[p + 1], [&](size_t, uint32_t f, float) {
                if (parts[p].count[f]++ == 0) parts[p].distinct.push_back(f);
            });
        });
        number_ = std::move(parts[0].count);  // first the frequency over all parts
        add_counts(parts);
        std::vector<uint32_t> distinct = std::move(parts[0].distinct);
        if (parts.size() > 1) {
            std::vector<uint8_t> seen(source_.n_features, 0);
            for (const uint32_t f : distinct) seen[f] = 1;
            for (size_t p = 1; p < parts.size(); ++p)
                for (const uint32_t f : parts[p].distinct)
                    if (!std::exchange(seen[f], uint8_t{1})) distinct.push_back(f);
        }
        features_ = by_frequency(distinct, number_);
        for (size_t number = 0; number < features_.size(); ++number)
            number_[features_[number]] = static_cast<uint32_t>(number);
    }

    void add_counts(std::span<const Part> parts) {
        constexpr size_t step = 4096;
        if (parts.size() == 1) return;
        pool_.run((number_.size() + step - 1) / step, [&](size_t task, unsigned) {
            const size_t end = std::min(number_.size(), (task + 1) * step);
            for (size_t p = 1; p < parts.size(); ++p)
                for (size_t f = task * step; f < end; ++f) number_[f] += parts[p].count[f];
        });
    }

    void sort_block(size_t begin, size_t end, int32_t* index, float* value) const {
        const auto n_entries = static_cast<size_t>(ptr_[end] - ptr_[begin]);
        UninitialisedVector<uint32_t> row(n_entries);  // column by column
        UninitialisedVector<float> column(n_entries);
        std::vector<size_t> next(features_.size() + 1, 0);  // number -> where its next entry goes
        for_each_entry_of(begin, end, [&](size_t, uint32_t f, float) { ++next[number_[f] + 1]; });
        std::partial_sum(next.begin(), next.end(), next.begin());
        for_each_entry_of(begin, end, [&](size_t r, uint32_t f, float v) {
            const size_t to = next[number_[f]]++;
            row[to] = static_cast<uint32_t>(r - begin);
            column[to] = v;
        });
        std::vector<int64_t> place(ptr_.begin() + static_cast<int64_t>(begin),
                                   ptr_.begin() + static_cast<int64_t>(end));
        for (size_t number = 0, e = 0; number < features_.size(); ++number) {
            for (; e < next[number]; ++e) {
                const int64_t to = place[row[e]]++;
                index[to] = static_cast<int32_t>(number);
                value[to] = column[e];
            }
        }
    }

    const RowsView& source_;
    std::span<const uint32_t> ids_;
    std::span<const int64_t> ptr_;
    Pool& pool_;
    std::vector<uint32_t> features_;  // number -> feature
    std::vector<uint32_t> number_;    // feature -> number
};

}  // namespace

SortedSlice::SortedSlice(const RowsView& source, std::span<const uint32_t> ids, Pool& pool) {
    if (source.is_dense()) {
        n_features_ = source.n_features;
        dense_ = source.dense;
        for (const uint32_t i : ids) row_ids_.push_back(source.row_ids ? source.row_ids[i] : i);
        return;
    }
    ptr_.reserve(ids.size() + 1);
    ptr_.push_back(0);
    for (const uint32_t i : ids) ptr_.push_back(ptr_.back() + static_cast<int64_t>(source.row_size(i)));
    n_features_ = RowSorter(source, ids, ptr_, pool).sort(index_, value_);
}

RowsView SortedSlice::rows() const {
    if (dense_)
        return {.n_rows = row_ids_.size(),
                .n_features = n_features_,
                .dense = dense_,
                .row_ids = row_ids_.data()};
    return {.n_rows = ptr_.size() - 1,
            .n_features = n_features_,
            .ptr = ptr_.data(),
            .index = index_.data(),
            .value = value_.data()};
}

}  // namespace bonsai

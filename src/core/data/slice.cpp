#include "data/slice.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace bonsai {
namespace {

constexpr size_t kRowsBetweenPolls = 1024;
constexpr uint32_t kSingleton = ~uint32_t{0};

// Distinct features in descending order of frequency; equally frequent ones in the order of `distinct`.
template <class Count>
std::vector<uint32_t> by_frequency(std::span<const uint32_t> distinct, const Count* counts) {
    Count most = 0;
    for (const uint32_t f : distinct) most = std::max(most, counts[f]);
    std::vector<uint32_t> next(static_cast<size_t>(most) + 2, 0);  // most - count -> where the next one goes
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
    features_ = by_frequency(distinct, local.data());
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

// Sorts rows by transposing them twice: to columns in the order of the new numbers, rows ascending in each,
// and back. Each part of the rows belongs to one thread, and has its own stretch of every column.
class RowSorter {
  public:
    RowSorter(const RowsView& source, std::span<const uint32_t> ids, std::span<const int64_t> ptr, Pool& pool)
        : source_(source), ids_(ids), ptr_(ptr), pool_(pool) {
        constexpr size_t worth_a_thread = 1 << 18;
        const auto n_entries = static_cast<size_t>(ptr.back());
        const size_t n_parts = std::clamp<size_t>(n_entries / worth_a_thread, 1, pool.threads());
        for (size_t p = 0; p < n_parts; ++p) {
            const size_t begin = p == 0 ? 0 : parts_.back().end;
            const auto share = static_cast<int64_t>(n_entries / n_parts * (p + 1));
            const auto end =
                p + 1 == n_parts
                    ? ids.size()
                    : static_cast<size_t>(std::lower_bound(ptr.begin(), ptr.end() - 1, share) - ptr.begin());
            parts_.push_back({begin, std::max(begin, end), {}, {}});
        }
    }

    // Returns the number of features.
    size_t sort(UninitialisedVector<int32_t>& index, UninitialisedVector<float>& value) {
        number_features();
        const auto n_entries = static_cast<size_t>(ptr_.back());
        UninitialisedVector<uint32_t> column_row(n_entries);
        UninitialisedVector<float> column_value(n_entries);
        for_each_part([&](Part& part, size_t) {
            for_each_entry_of(part, [&](size_t r, uint32_t f, float v) {
                const size_t to = part.next[f]++;
                column_row[to] = static_cast<uint32_t>(r);
                column_value[to] = v;
            });
        });
        index.resize(n_entries);
        value.resize(n_entries);
        for_each_part(
            [&](const Part& part, size_t p) { write_rows(part, p, column_row, column_value, index, value); });
        return features_.size();
    }

  private:
    struct Part {
        size_t begin, end;         // rows
        std::vector<size_t> next;  // feature -> number of entries, then where the next one goes in its column
        std::vector<uint32_t> distinct;
    };

    template <class Fn>
    void for_each_part(Fn&& fn) {
        pool_.run(parts_.size(), [&](size_t p, unsigned) { fn(parts_[p], p); });
    }

    // fn(i) for i in [0, n), by all threads.
    template <class Fn>
    void for_each_block(size_t n, Fn&& fn) {
        constexpr size_t block = 4096;
        pool_.run((n + block - 1) / block, [&](size_t task, unsigned) {
            for (size_t i = task * block; i < std::min(n, (task + 1) * block); ++i) fn(i);
        });
    }

    template <class Fn>
    void for_each_entry_of(const Part& part, Fn&& fn) const {
        for (size_t r = part.begin; r < part.end; ++r) {
            poll(pool_.control(), r);
            for (int64_t e = source_.ptr[ids_[r]]; e < source_.ptr[ids_[r] + 1]; ++e)
                fn(r, static_cast<uint32_t>(source_.index[e]), source_.value[e]);
        }
    }

    // Features by frequency over all parts, and where each part's stretch of a column begins.
    void number_features() {
        for_each_part([&](Part& part, size_t) {
            part.next.assign(source_.n_features, 0);
            for_each_entry_of(part, [&](size_t, uint32_t f, float) {
                if (part.next[f]++ == 0) part.distinct.push_back(f);
            });
        });
        if (parts_.size() == 1) {
            features_ = by_frequency(parts_[0].distinct, parts_[0].next.data());
            size_t end = 0;
            for (const uint32_t f : features_) end += std::exchange(parts_[0].next[f], end);
            return;
        }
        UninitialisedVector<size_t> counts(source_.n_features);
        for_each_block(counts.size(), [&](size_t f) {
            counts[f] = 0;
            for (const Part& part : parts_) counts[f] += part.next[f];
        });
        std::vector<uint32_t> distinct;
        std::vector<uint8_t> seen(source_.n_features, 0);
        for (const Part& part : parts_)
            for (const uint32_t f : part.distinct)
                if (!std::exchange(seen[f], uint8_t{1})) distinct.push_back(f);
        features_ = by_frequency(distinct, counts.data());
        size_t end = 0;
        for (const uint32_t f : features_) end += std::exchange(counts[f], end);
        for_each_block(features_.size(), [&](size_t number) {
            const uint32_t f = features_[number];
            size_t begin = counts[f];  // of the column
            for (Part& part : parts_) begin += std::exchange(part.next[f], begin);
        });
    }

    void write_rows(const Part& part, size_t p, std::span<const uint32_t> column_row,
                    std::span<const float> column_value, std::span<int32_t> index,
                    std::span<float> value) const {
        std::vector<int64_t> next(ptr_.begin() + static_cast<int64_t>(part.begin),
                                  ptr_.begin() + static_cast<int64_t>(part.end));
        for (size_t number = 0; number < features_.size(); ++number) {
            poll(pool_.control(), number);
            const uint32_t f = features_[number];
            // Each stretch begins where the one of the part before ends, or the last one of the column
            // before.
            size_t e = p > 0        ? parts_[p - 1].next[f]
                       : number > 0 ? parts_.back().next[features_[number - 1]]
                                    : 0;
            for (; e < part.next[f]; ++e) {
                const int64_t to = next[column_row[e] - part.begin]++;
                index[to] = static_cast<int32_t>(number);
                value[to] = column_value[e];
            }
        }
    }

    const RowsView& source_;
    std::span<const uint32_t> ids_;
    std::span<const int64_t> ptr_;
    Pool& pool_;
    std::vector<Part> parts_;
    std::vector<uint32_t> features_;
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

#include "data/slice.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace bonsai {
namespace {

constexpr size_t kRowsBetweenPolls = 1024;
constexpr size_t kEntriesPerTask = size_t{1} << 18;
constexpr uint32_t kSingleton = ~uint32_t{0};

// Distinct features in descending order of frequency; equally frequent ones in the order of `distinct`.
std::vector<uint32_t> by_frequency(std::span<const uint32_t> distinct, std::span<const uint32_t> counts) {
    uint32_t most = 0;
    for (const uint32_t f : distinct) most = std::max(most, counts[f]);
    std::vector<uint32_t> next(size_t{most} + 2, 0);  // most - count -> position of the next feature
    for (const uint32_t f : distinct) ++next[most - counts[f] + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<uint32_t> features(distinct.size());
    for (const uint32_t f : distinct) features[next[most - counts[f]]++] = f;
    return features;
}

void poll(const Control& control, size_t row) {
    if (row % kRowsBetweenPolls == 0) control.check();
}

// Bounds of up to `most` ranges of rows with about equally many entries, at least `n_entries` each.
std::vector<size_t> cut_rows(const RowsView& source, std::span<const uint32_t> ids, size_t n_entries,
                             size_t most) {
    size_t all = 0, before = 0;
    for (const uint32_t i : ids) all += source.row_size(i);
    const size_t n = std::clamp<size_t>(all / n_entries, 1, std::max<size_t>(most, 1));
    std::vector<size_t> bounds = {0};
    for (size_t r = 0; r < ids.size() && bounds.size() < n; ++r) {
        before += source.row_size(ids[r]);
        while (bounds.size() < n && before >= all / n * bounds.size()) bounds.push_back(r + 1);
    }
    bounds.resize(n + 1, ids.size());
    return bounds;
}

// The features of some rows, counted by all threads, each of which takes a part of the rows.
struct FeatureCounts {
    std::vector<size_t> bounds;                   // of the parts
    std::vector<std::vector<uint32_t>> distinct;  // of each part, as they first occur; within a row ascending

    // `count`, one number per feature, is zero before, and afterwards holds the frequency over all parts.
    FeatureCounts(const RowsView& source, std::span<const uint32_t> ids, std::vector<uint32_t>& count,
                  Pool& pool)
        : bounds(cut_rows(source, ids, kEntriesPerTask, pool.threads())), distinct(bounds.size() - 1) {
        count.resize(source.n_features, 0);
        std::vector<std::vector<uint32_t>> of_part(distinct.size());  // except the first part
        pool.run(distinct.size(), [&](size_t p, unsigned) {
            if (p > 0) of_part[p].resize(source.n_features, 0);
            std::vector<uint32_t>& mine = p > 0 ? of_part[p] : count;
            for (size_t r = bounds[p]; r < bounds[p + 1]; ++r) {
                poll(pool.control(), r);
                const auto before = static_cast<int64_t>(distinct[p].size());
                for (int64_t e = source.ptr[ids[r]]; e < source.ptr[ids[r] + 1]; ++e)
                    if (mine[source.index[e]]++ == 0)
                        distinct[p].push_back(static_cast<uint32_t>(source.index[e]));
                if (!source.features.empty())
                    std::ranges::sort(distinct[p].begin() + before, distinct[p].end(), {},
                                      [&](uint32_t number) { return source.features[number]; });
            }
        });
        if (of_part.size() == 1) return;
        constexpr size_t step = 4096;
        pool.run((count.size() + step - 1) / step, [&](size_t task, unsigned) {
            const size_t end = std::min(count.size(), (task + 1) * step);
            for (size_t p = 1; p < of_part.size(); ++p)
                for (size_t f = task * step; f < end; ++f) count[f] += of_part[p][f];
        });
    }

    // The features of all parts, in order of first occurrence.
    std::vector<uint32_t> all(size_t n_features) const {
        std::vector<uint32_t> found = distinct[0];
        if (distinct.size() == 1) return found;
        std::vector<uint8_t> seen(n_features, 0);
        for (const uint32_t f : found) seen[f] = 1;
        for (size_t p = 1; p < distinct.size(); ++p)
            for (const uint32_t f : distinct[p])
                if (!std::exchange(seen[f], uint8_t{1})) found.push_back(f);
        return found;
    }
};

}  // namespace

Slice::Slice(const RowsView& source, std::span<const uint32_t> ids, std::span<const float> factors,
             Scratch& scratch, Pool& pool, bool separate_singletons) {
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
    auto& local = scratch.local;  // per feature: first its frequency, then its local number + 1
    const FeatureCounts counts(source, ids, local, pool);
    features_ = by_frequency(counts.all(source.n_features), local);
    n_features_ = features_.size();
    if (separate_singletons)
        while (n_features_ > 0 && local[features_[n_features_ - 1]] == 1) --n_features_;
    for (size_t number = 0; number < features_.size(); ++number)
        local[features_[number]] = number < n_features_ ? static_cast<uint32_t>(number + 1) : kSingleton;

    // Where the entries and the singletons of each part begin.
    const auto& bounds = counts.bounds;
    std::vector<Place> begin = {{}};
    for (size_t p = 0; p + 1 < bounds.size(); ++p) {
        Place next = begin.back();
        for (size_t r = bounds[p]; r < bounds[p + 1]; ++r) next.entry += source.row_size(ids[r]);
        size_t n = features_.size() - n_features_ - next.singleton;  // all others are in the last part
        if (p + 2 < bounds.size())
            n = static_cast<size_t>(std::ranges::count(counts.distinct[p], kSingleton,
                                                       [&](uint32_t feature) { return local[feature]; }));
        next.entry -= n;
        next.singleton += n;
        begin.push_back(next);
    }
    ptr_.resize(ids.size() + 1);
    index_.resize(begin.back().entry);
    value_.resize(begin.back().entry);
    singletons_.first_feature = n_features_;
    singletons_.value.resize(begin.back().singleton);
    if (separate_singletons) singletons_.ptr.resize(ids.size() + 1);
    pool.run(bounds.size() - 1, [&](size_t p, unsigned) {
        copy_entries(source, ids, bounds[p], bounds[p + 1], begin[p], factors, local, pool.control());
    });
    for (const uint32_t f : features_) local[f] = 0;
}

// Entries in the order of the source, singleton features in order of occurrence.
void Slice::copy_entries(const RowsView& source, std::span<const uint32_t> ids, size_t first, size_t last,
                         Place at, std::span<const float> factors, std::span<const uint32_t> local,
                         const Control& control) {
    for (size_t r = first; r < last; ++r) {
        poll(control, r);
        const uint32_t i = ids[r];
        const float factor = factors.empty() ? 1.0f : factors[i];
        for (int64_t e = source.ptr[i]; e < source.ptr[i + 1]; ++e) {
            const uint32_t number = local[source.index[e]];
            const float value = source.value[e] * factor;
            if (number == kSingleton) {
                features_[n_features_ + at.singleton] = static_cast<uint32_t>(source.index[e]);
                singletons_.value[at.singleton++] = value;
            } else {
                index_[at.entry] = static_cast<int32_t>(number - 1);
                value_[at.entry++] = value;
            }
        }
        ptr_[r + 1] = static_cast<int64_t>(at.entry);
        if (!singletons_.ptr.empty()) singletons_.ptr[r + 1] = static_cast<int64_t>(at.singleton);
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

// Sorts rows by transposing them twice, block by block: into columns in the order of the new numbers, and
// back.
class RowSorter {
  public:
    RowSorter(const RowsView& source, std::span<const uint32_t> ids, std::span<const int64_t> ptr, Pool& pool)
        : source_(source), ids_(ids), ptr_(ptr), pool_(pool) {}

    // Writes ptr.back() indices and values, which may be those of the source if its rows are `ids`. Returns
    // the feature of each number.
    std::vector<uint32_t> sort(int32_t* index, float* value) {
        number_features();
        // A block has at least as many entries as there are columns, yet its columns should fit in a cache.
        const auto blocks =
            cut_rows(source_, ids_, std::max<size_t>(kEntriesPerTask, features_.size()), ids_.size());
        pool_.run(blocks.size() - 1,
                  [&](size_t b, unsigned) { sort_block(blocks[b], blocks[b + 1], index, value); });
        return std::move(features_);
    }

  private:
    // Calls fn(row, feature, value) for each entry.
    template <class Fn>
    void for_each_entry_of(size_t begin, size_t end, Fn&& fn) const {
        for (size_t r = begin; r < end; ++r) {
            poll(pool_.control(), r);
            for (int64_t e = source_.ptr[ids_[r]]; e < source_.ptr[ids_[r] + 1]; ++e)
                fn(r, static_cast<uint32_t>(source_.index[e]), source_.value[e]);
        }
    }

    void number_features() {
        const FeatureCounts counts(source_, ids_, number_, pool_);  // number_ holds frequencies at first
        features_ = by_frequency(counts.all(source_.n_features), number_);
        for (size_t number = 0; number < features_.size(); ++number)
            number_[features_[number]] = static_cast<uint32_t>(number);
    }

    void sort_block(size_t begin, size_t end, int32_t* index, float* value) const {
        const auto n_entries = static_cast<size_t>(ptr_[end] - ptr_[begin]);
        UninitialisedVector<uint32_t> row(n_entries);  // column by column
        UninitialisedVector<float> column(n_entries);
        std::vector<size_t> next(features_.size() + 1, 0);  // number -> position of its next entry
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

void number_by_frequency(Rows& rows, Pool& pool) {
    std::vector<uint32_t> all(rows.n_rows);
    std::iota(all.begin(), all.end(), 0u);
    rows.features = RowSorter(rows.view(), all, rows.ptr, pool).sort(rows.index.data(), rows.value.data());
}

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
    const bool has_all = ptr_.back() == source.ptr[source.n_rows] &&
                         std::ranges::adjacent_find(ids, std::greater_equal<>()) == ids.end();
    if (has_all && !source.features.empty()) {
        n_features_ = source.features.size();
        borrowed_ = source;
        return;
    }
    index_.resize(static_cast<size_t>(ptr_.back()));
    value_.resize(index_.size());
    n_features_ = RowSorter(source, ids, ptr_, pool).sort(index_.data(), value_.data()).size();
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
            .index = borrowed_.index ? borrowed_.index : index_.data(),
            .value = borrowed_.index ? borrowed_.value : value_.data()};
}

double slice_bytes(const ProblemSizes& sizes, double share) {
    if (sizes.dense) return 8 * share * sizes.n_rows + 4 * sizes.n_features;
    return share * (sizes.sparse_rows() + 12 * sizes.n_rows) +
           8 * std::min(sizes.n_used_features, share * sizes.n_entries);
}

// Each thread has the frequencies of features, then a block of entries as columns.
double numbering_bytes(const RowsSize& rows, double threads) {
    const double block = double{kEntriesPerTask};
    const double parts = std::min(threads, std::max(1.0, rows.n_entries / block));
    const double of_block = std::min(std::max(block, rows.n_columns), rows.n_entries);
    return 4 * (rows.n_rows + rows.n_columns) + parts * (kEntryBytes * of_block + 8 * rows.n_columns);
}

double sorting_bytes(const RowsSize& rows, double threads) {
    if (rows.dense) return 4 * rows.n_rows;
    return kEntryBytes * rows.n_entries + 8 * rows.n_rows + numbering_bytes(rows, threads);
}

}  // namespace bonsai

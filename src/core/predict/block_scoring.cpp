#include "predict/block_scoring.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "predict/scores.hpp"

namespace bonsai {
namespace {

// Costs relative to unpacking one byte.
constexpr size_t kLookupCost = 24;
constexpr size_t kMarkCost = 4;  // of marking a feature as wanted
constexpr size_t kMultiplyCost = 3;

// Whether a kernel may read a whole bitmap and all its weights from here, although the record may be shorter.
bool readable_as_bitmap(const FeatureWeights& found, const PackedBlock& block) {
    return block.end() - found.bytes >= static_cast<ptrdiff_t>(kBitmapReadable);
}

// Wraps around: in a damaged file, a feature may have several weights for one child.
void add(int32_t product, int32_t& sum) {
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(product));
}

// Kinds of features by their number of weights: one, up to four, up to eight, or a bitmap.
size_t kind_of(size_t size) {
    return (size > 2) + (size > 8) + (size > 2 * kMaxListed);
}

// Writes the n listed weights of a feature to a zeroed panel row, padded to `most` weights. The padding
// consists of zeros for arbitrary children and is written first, so that it overwrites nothing.
template <size_t most>
void write_listed(const uint8_t* bytes, size_t n, StoredWeight* row) {
    uint64_t child, weights;
    std::memcpy(&child, bytes, sizeof child);
    std::memcpy(&weights, bytes + n, sizeof weights);
    weights &= ~uint64_t{0} >> (64 - 8 * n);
    for (size_t w = most; w-- > 0;)
        row[(child >> (8 * w)) % kBlockChildren] = static_cast<StoredWeight>(weights >> (8 * w));
}

// Calls fn(begin, end) for parts of 0 … n - 1: one part, or with a pool several parts per thread.
template <class Fn>
void for_each_part(size_t n, Pool* pool, Fn&& fn) {
    if (!pool) return fn(size_t{0}, n);
    const size_t n_parts = 4 * pool->threads();
    pool->run(n_parts, [&](size_t part, unsigned) { fn(n * part / n_parts, n * (part + 1) / n_parts); });
}

}  // namespace

void OpenBlock::open(const Forest& forest, size_t node, size_t from, std::span<const uint32_t> rows,
                     Pool* pool) {
    if (unpacked_) clear_slots();
    const ForestArrays& a = forest.arrays();
    const auto first = static_cast<size_t>(a.child_ptr[node]) + from;
    n_children_ = std::min(kBlockChildren, static_cast<size_t>(a.child_ptr[node + 1]) - first);
    width_ = padded_lanes(n_children_);
    std::copy_n(a.scale.data() + first, n_children_, scale_);
    std::copy_n(a.bias.data() + first, n_children_, bias_);
    restricted_ = forest.is_restricted();
    if (restricted_) {
        std::fill(ceiling_, ceiling_ + width_, std::numeric_limits<float>::infinity());
        for (size_t c = 0; c < n_children_; ++c)
            if (!forest.allowed()[first + c]) {
                scale_[c] = 0;
                bias_[c] = ceiling_[c] = kExcluded;
            }
    }
    std::fill(scale_ + n_children_, scale_ + width_, 0.0f);
    std::fill(bias_ + n_children_, bias_ + width_, -std::numeric_limits<float>::infinity());
    block_ = forest.block(static_cast<size_t>(a.block_ptr[node]) + from / kBlockChildren);
    size_t lookups = 0;
    for (const uint32_t row : rows) lookups += batch_.row(row).n;
    const size_t each_once = batch_.n_ids() * kLookupCost + lookups * kMultiplyCost;
    unpacked_ =
        rows.size() > Batch::kFewRows && lookups * kLookupCost > std::min(block_.n_bytes(), each_once);
    if (unpacked_) {
        make_room();
        if (block_.n_bytes() < each_once && batch_.id_of_feature())
            unpack(forest.n_features(), rows, lookups, pool);
        else if (block_.is_wide())
            for_each_part(batch_.n_ids(), pool, [&](size_t i, size_t end) { unpack_found<true>(i, end); });
        else
            for_each_part(batch_.n_ids(), pool, [&](size_t i, size_t end) { unpack_found<false>(i, end); });
    }
    with_residual_ = forest.residual() != nullptr;
    if (!with_residual_) return;
    if (!residual_) residual_ = std::make_unique<OpenBlock>(batch_, kernels_);
    residual_->open(*forest.residual(), node, from, rows, pool);
}

float OpenBlock::add_products(size_t row, const float* start, RowScratch& scratch, float* out) const {
    alignas(64) int32_t sum[kBlockChildren] = {};
    if (unpacked_)
        sum_unpacked(batch_.row(row), scratch, sum);
    else
        sum_packed(batch_.row(row), scratch, sum);
    return kernels_.dequantise_margins(sum, width_, batch_.row(row).unit, scale_, start, out);
}

// Room for all features of the batch that the block can hold: each takes at least two bytes.
void OpenBlock::make_room() {
    slot_.resize(batch_.n_ids() + 1, 0);
    n_slots_ = 1;
    max_slots_ = std::min(batch_.n_ids(), block_.n_bytes() / 2) + 1;
    panel_.ensure_size(max_slots_ * width_);
    id_of_slot_.ensure_size(max_slots_);
}

void OpenBlock::unpack(size_t n_features, std::span<const uint32_t> rows, size_t lookups, Pool* pool) {
    // Few rows need a small part of the block's features: only that part is unpacked, so that the panel fits
    // into a faster cache.
    if (lookups * kMarkCost > block_.n_bytes())
        return unpack_wanted(n_features, pool, [](size_t id) { return id != 0; });
    constexpr size_t bits = 64;
    wanted_.resize(batch_.n_ids() / bits + 1, 0);
    for_each_id(rows, [&](uint32_t id) { wanted_[id / bits] |= uint64_t{1} << (id % bits); });
    unpack_wanted(n_features, pool, [wanted = wanted_.data()](size_t id) -> bool {
        return wanted[id / bits] >> (id % bits) & 1;
    });
    for_each_id(rows, [&](uint32_t id) { wanted_[id / bits] = 0; });
}

template <class Wanted>
void OpenBlock::unpack_wanted(size_t n_features, Pool* pool, Wanted&& wanted) {
    for_each_part(block_.n_buckets(), pool,
                  [&](size_t first, size_t last) { unpack_buckets(first, last, n_features, wanted); });
}

// The branch predictor cannot foresee how many weights the next feature has and whether it is needed. So
// features are first listed by kind, without branches, and then each kind is written to the panel.
template <class Wanted>
void OpenBlock::unpack_buckets(size_t first, size_t last, size_t n_features, Wanted&& wanted) {
    const uint32_t* const id_of = batch_.id_of_feature();
    Lists lists;
    block_.for_each_record(first, last, [&](size_t bucket, const Record& r) {
        for (PackedBlock::Features all(block_, bucket, r); all.next();) {
            const size_t f = all.feature();
            const uint32_t id = f < n_features ? id_of[f] : 0;
            lists.add(all.weights(), id, wanted(id));
        }
        if (lists.full()) write_panel(lists);
    });
    write_panel(lists);
}

// Unpacks the features of the block that are among some features of the batch.
template <bool wide>
void OpenBlock::unpack_found(size_t first, size_t last) {
    constexpr size_t ahead = 8;
    const PackedBlock block = block_;
    const std::span<const uint32_t> feature = batch_.features_with_id();
    Lists lists;
    for (size_t i = first; i < last; ++i) {
        if (i + 2 * ahead < last) block.prefetch_offset(feature[i + 2 * ahead]);
        if (i + ahead < last) block.prefetch_record(feature[i + ahead]);
        FeatureWeights found;
        if (!block.find_fast<wide>(feature[i], found)) found = block_.find_slowly(feature[i]);
        lists.add(found, i + 1, true);
        if (lists.full()) write_panel(lists);
    }
    write_panel(lists);
}

// Adds a feature to the list of its kind if it is needed.
[[gnu::always_inline]] inline void OpenBlock::Lists::add(const FeatureWeights& found, size_t id,
                                                         bool wanted) {
    const size_t kind = kind_of(found.size);
    features[kind][n >> (16 * kind) & 0xffff] = {found.bytes, static_cast<uint32_t>(id),
                                                 static_cast<uint32_t>(found.size)};
    // Only a damaged file has weights of less than two bytes.
    n += static_cast<uint64_t>(wanted & (found.size > 1)) << (16 * kind);
}

// Writes the listed features and empties the lists.
void OpenBlock::write_panel(Lists& lists) {
    size_t n[4], all = 0;
    for (size_t kind = 0; kind < 4; ++kind) all += n[kind] = lists.n >> (16 * kind) & 0xffff;
    lists.n = 0;
    size_t next = n_slots_.fetch_add(all, std::memory_order_relaxed);
    // A damaged file may list a feature more than once.
    size_t room = max_slots_ - std::min(max_slots_, next);
    for (size_t& of_kind : n) room -= of_kind = std::min(of_kind, room);
    // Writing a row may touch the following rows up to here; later rows may belong to another thread.
    const StoredWeight* const end = panel_.data() + (next + n[0] + n[1] + n[2] + n[3]) * width_;
    const auto each = [&, width = width_](size_t kind, auto&& write) {
        const Unpacked* feature = lists.features[kind];
        uint32_t *const id_of_slot = id_of_slot_.data(), *const slot = slot_.data();
        StoredWeight* row = panel_.data() + next * width;
        for (size_t i = 0; i < n[kind]; ++i, ++feature, ++next, row += width) {
            for (size_t c = 0; c < width; c += kLaneStep) std::memset(row + c, 0, kLaneStep);
            write(*feature, row);
            // Atomic, since a damaged file may list a feature more than once.
            std::atomic_ref(slot[feature->id]).store(static_cast<uint32_t>(next), std::memory_order_relaxed);
            id_of_slot[next] = feature->id;
        }
    };
    // In a damaged file, children may be out of range.
    const auto write_each = [width = width_](const Unpacked& feature, StoredWeight* row) {
        FeatureWeights{feature.bytes, feature.size}.for_each(
            [&](size_t c, StoredWeight w) { row[std::min(c, width - 1)] = w; });
    };
    each(0, [width = width_](const Unpacked& feature, StoredWeight* row) {
        row[std::min<size_t>(feature.bytes[0], width - 1)] = static_cast<StoredWeight>(feature.bytes[1]);
    });
    const auto listed = [&]<size_t most>(const Unpacked& feature, StoredWeight* row) {
        if (block_.end() - feature.bytes >= static_cast<ptrdiff_t>(2 * kMaxListed) &&
            end - row >= static_cast<ptrdiff_t>(kBlockChildren))
            write_listed<most>(feature.bytes, feature.size / 2, row);
        else
            write_each(feature, row);
    };
    each(1, [&](const Unpacked& f, StoredWeight* row) { listed.template operator()<4>(f, row); });
    each(2, [&](const Unpacked& f, StoredWeight* row) { listed.template operator()<8>(f, row); });
    each(3, [&](const Unpacked& feature, StoredWeight* row) {
        if (readable_as_bitmap({feature.bytes, feature.size}, block_))
            return kernels_.expand_bitmap(feature.bytes, width_, row);
        write_each(feature, row);
    });
}

void OpenBlock::clear_slots() {
    const size_t end = std::min<size_t>(n_slots_, max_slots_);
    for (size_t s = 1; s < end; ++s) slot_[id_of_slot_[s]] = 0;
}

template <class Fn>
void OpenBlock::for_each_id(std::span<const uint32_t> rows, Fn&& fn) const {
    for (const uint32_t r : rows) {
        const Batch::Row& row = batch_.row(r);
        const uint32_t* ids = batch_.feature_ids(row);
        for (size_t e = 0; e < row.n; ++e) fn(ids[e]);
    }
}

void OpenBlock::sum_unpacked(const Batch::Row& row, RowScratch& scratch, int32_t* sum) const {
    if (scratch.slots.size() < row.n + kLaneStep) {
        scratch.slots.resize(row.n + kLaneStep);
        scratch.values.resize(row.n + kLaneStep);
    }
    const size_t n = kernels_.gather_nonzero(slot_.data(), batch_.feature_ids(row), batch_.values(row), row.n,
                                             scratch.slots.data(), scratch.values.data());
    kernels_.accumulate_int8(panel_.data(), width_, scratch.slots.data(), scratch.values.data(), n, sum);
}

void OpenBlock::sum_packed(const Batch::Row& row, RowScratch& scratch, int32_t* sum) const {
    if (block_.is_wide())
        sum_packed_as<true>(row, scratch, sum);
    else
        sum_packed_as<false>(row, scratch, sum);
}

template <bool wide>
void OpenBlock::sum_packed_as(const Batch::Row& row, RowScratch& scratch, int32_t* sum) const {
    constexpr size_t ahead = 8;
    // Local copies: the compiler must assume that writing the lists changes the originals.
    const PackedBlock block = block_;
    const uint32_t* const feature = batch_.features(row);
    const int16_t* const value = batch_.values(row);
    const size_t n = row.n;
    BitmapWeights* list[4];
    size_t listed[4] = {};
    for (size_t kind = 0; kind < 4; ++kind) {
        if (scratch.hits[kind].size() < n) scratch.hits[kind].resize(n);
        list[kind] = scratch.hits[kind].data();
    }
    for (size_t i = 0; i < std::min(n, 2 * ahead); ++i) block.prefetch_offset(feature[i]);
    for (size_t i = 0; i < std::min(n, ahead); ++i) block.prefetch_record(feature[i]);
    for (size_t i = 0; i < n; ++i) {
        if (i + 2 * ahead < n) block.prefetch_offset(feature[i + 2 * ahead]);
        if (i + ahead < n) block.prefetch_record(feature[i + ahead]);
        FeatureWeights found;
        if (!block.find_fast<wide>(feature[i], found)) found = block_.find_slowly(feature[i]);
        if (!readable_as_bitmap(found, block)) {
            found.for_each([&](size_t child, StoredWeight weight) { add(value[i] * weight, sum[child]); });
            continue;
        }
        const size_t kind = (found.size > 4) + (found.size > 8) + found.is_bitmap();
        list[kind][listed[kind]] = {found.bytes, value[i], static_cast<uint8_t>(found.size)};
        listed[kind] += found.size > 1;  // only a damaged file has weights of one byte
        __builtin_prefetch(found.bytes);
        __builtin_prefetch(found.bytes + 64);
    }
    sum_listed<2>({list[0], listed[0]}, sum);
    sum_listed<4>({list[1], listed[1]}, sum);
    sum_listed<8>({list[2], listed[2]}, sum);
    kernels_.accumulate_bitmap(list[3], listed[3], sum);
}

// Features with up to `most` weights, padded with zeros to equal length.
template <size_t most>
void OpenBlock::sum_listed(std::span<const BitmapWeights> hits, int32_t* sum) {
    for (const BitmapWeights& hit : hits) {
        const size_t n = hit.size / 2;
        uint8_t child[most];
        std::memcpy(child, hit.bytes, most);
        uint64_t weights;
        std::memcpy(&weights, hit.bytes + n, sizeof weights);
        weights &= ~uint64_t{0} >> (64 - 8 * n);
        for (size_t w = 0; w < most; ++w)
            add(hit.factor * static_cast<StoredWeight>(weights >> (8 * w)), sum[child[w] % kBlockChildren]);
    }
}

// Largest first, so that threads finish together. A block that dominates the work is split if it has enough
// rows to pay for unpacking it twice.
size_t BlockLoop::balance(const Forest& forest, std::vector<BlockRows>& blocks) const {
    const size_t threads = pool_.threads();
    if (threads == 1) return std::numeric_limits<size_t>::max();
    const ForestArrays& a = forest.arrays();
    size_t total = 0;
    for (BlockRows& block : blocks) {
        const auto b = static_cast<size_t>(a.block_ptr[block.node]) + block.from / kBlockChildren;
        block.cost = block.rows.size() * batch_.mean_row_size() * kMultiplyCost +
                     static_cast<size_t>(a.record_ptr[b + 1] - a.record_ptr[b]);
        total += block.cost;
    }
    // The most expensive blocks first, so that threads finish together. The order of the other blocks does
    // not matter.
    const size_t share = total / (2 * threads) + 1;
    const auto end = std::partition(blocks.begin(), blocks.end(),
                                    [&](const BlockRows& block) { return block.cost > share / 32; });
    std::sort(blocks.begin(), end, [](const BlockRows& a, const BlockRows& b) { return a.cost > b.cost; });
    return share;
}

}  // namespace bonsai

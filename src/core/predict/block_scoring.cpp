#include "predict/block_scoring.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace bonsai {
namespace {

constexpr size_t kFewRows = 2;      // of a block: not worth unpacking it
constexpr size_t kLookupCost = 24;  // of one look-up, in bytes to unpack
constexpr size_t kMarkCost = 4;     // of marking a feature as wanted, likewise

// Whether what comes after it can be read along.
bool has_room(const FeatureWeights& found, const PackedBlock& block) {
    return found.size == 0 || block.end() - found.bytes >= static_cast<ptrdiff_t>(kBitmapReadable);
}

// Wraps around: a damaged file may name a child more than once.
void add(int32_t product, int32_t& sum) {
    sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(product));
}

// Features by how many weights they have: one, up to four, up to eight, or spread.
size_t kind_of(size_t size) {
    return (size > 2) + (size > 8) + (size > 2 * kMostListed);
}

// The n listed weights of a feature into a row of zeros, as if there were `most`: those beyond the last are
// zeros somewhere, which come first, so that the others stand in the end.
template <size_t most>
void write_listed(const uint8_t* bytes, size_t n, StoredWeight* row) {
    uint64_t child, weights;
    std::memcpy(&child, bytes, sizeof child);
    std::memcpy(&weights, bytes + n, sizeof weights);
    weights &= ~uint64_t{0} >> (64 - 8 * n);
    for (size_t w = most; w-- > 0;)
        row[(child >> (8 * w)) % kBlockChildren] = static_cast<StoredWeight>(weights >> (8 * w));
}

}  // namespace

void Batch::read(const RowsView& x, size_t begin, size_t end, bool normalize, Pool& pool) {
    rows_.clear();
    size_t most = 0;  // values
    for (size_t i = begin; i < end; ++i) {
        rows_.push_back({.first = most});
        most += x.dense ? x.n_features : static_cast<size_t>(x.ptr[i + 1] - x.ptr[i]);
    }
    feature_.resize(most);
    value_.resize(most);
    constexpr size_t together = 256;
    pool.run((size() + together - 1) / together, [&](size_t task, unsigned) {
        for (size_t r = task * together; r < std::min(size(), (task + 1) * together); ++r)
            read_row(x, begin + r, normalize, rows_[r]);
    });
    if (size() > kFewRows) number_features(x.n_features);
}

void Batch::read_row(const RowsView& x, size_t i, bool normalize, Row& row) {
    double largest = 0, sum = 0, n = 0;
    for_each_entry(x, i, [&](uint32_t, float v) {
        largest = std::max(largest, std::abs(double{v}));
        sum += std::abs(double{v});
        ++n;
    });
    // No sum of products may leave 32 bits, with room for the rounding of each value. A power of two: what is
    // short already stays as it is.
    constexpr double most = 32767, most_in_all = (1u << 31) / kWeightMax - 1.0;
    int exponent = 0;
    std::frexp(std::max(largest / most, sum / std::max(most_in_all - n, most_in_all / 2)), &exponent);
    const double step = largest > 0 ? std::ldexp(1.0, exponent) : 0.0;
    const double norm = normalize ? row_norm(x, i) : 1.0;
    row.unit = static_cast<float>(norm > kSmallestNorm ? step / norm : step);
    const double per_step = step > 0 ? 1 / step : 0.0;
    for_each_entry(x, i, [&](uint32_t f, float v) {
        const auto whole = static_cast<int16_t>(std::lrint(v * per_step));
        if (whole == 0) return;
        feature_[row.first + row.n] = f;
        value_[row.first + row.n] = whole;
        ++row.n;
    });
}

void Batch::number_features(size_t n_features) {
    for (const uint32_t f : numbered_) number_of_[f] = 0;
    numbered_.clear();
    number_of_.resize(n_features, 0);
    number_.resize(feature_.size());
    for (const Row& row : rows_)
        for (size_t e = row.first; e < row.first + row.n; ++e) {
            uint32_t& number = number_of_[feature_[e]];
            if (number == 0) {
                numbered_.push_back(feature_[e]);
                number = static_cast<uint32_t>(numbered_.size());
            }
            number_[e] = number;
        }
}

void BlockScorer::open(const Forest& forest, size_t node, size_t from, std::span<const uint32_t> rows) {
    if (unpacked_) clear_slots();
    const ForestArrays& a = forest.arrays();
    const auto first = static_cast<size_t>(a.child_ptr[node]) + from;
    n_children_ = std::min(kBlockChildren, static_cast<size_t>(a.child_ptr[node + 1]) - first);
    width_ = padded_lanes(n_children_);
    std::copy_n(a.scale.data() + first, n_children_, scale_);
    std::copy_n(a.bias.data() + first, n_children_, bias_);
    std::fill(scale_ + n_children_, scale_ + width_, 0.0f);
    std::fill(bias_ + n_children_, bias_ + width_, -std::numeric_limits<float>::infinity());
    block_ = forest.block(static_cast<size_t>(a.block_ptr[node]) + from / kBlockChildren);
    size_t lookups = 0;
    for (const uint32_t row : rows) lookups += batch_.row_size(row);
    unpacked_ = rows.size() > kFewRows && lookups * kLookupCost > block_.n_bytes();
    if (unpacked_) unpack(forest.n_features(), rows, lookups);
}

float BlockScorer::margins(size_t row, float* out) {
    alignas(64) int32_t sum[kBlockChildren] = {};
    if (unpacked_)
        sum_unpacked(row, sum);
    else
        sum_packed(row, sum);
    return kernels_.dequantise_margins(sum, width_, batch_.rows_[row].unit, scale_, bias_, out);
}

// A block with all its zeros: panel_[place * width_ + child].
void BlockScorer::unpack(size_t n_features, std::span<const uint32_t> rows, size_t lookups) {
    const size_t n_numbers = batch_.numbered_.size();
    slot_.resize(n_numbers + 1, 0);
    n_placed_ = 1;
    // Few rows meet a small part of the block's features: no others are put into the panel, which then stays
    // in faster memory.
    if (lookups * kMarkCost > block_.n_bytes())
        return unpack_wanted(n_features, [](size_t number) { return number != 0; });
    constexpr size_t bits = 64;
    wanted_.resize(n_numbers / bits + 1, 0);
    for_each_number(rows, [&](uint32_t f) { wanted_[f / bits] |= uint64_t{1} << (f % bits); });
    unpack_wanted(n_features, [wanted = wanted_.data()](size_t number) -> bool {
        return wanted[number / bits] >> (number % bits) & 1;
    });
    for_each_number(rows, [&](uint32_t f) { wanted_[f / bits] = 0; });
}

// How many weights the next feature has, and whether it is wanted, is hard to predict: first features are
// listed by their kind, without a branch, then each kind is written to the panel.
template <class Wanted>
void BlockScorer::unpack_wanted(size_t n_features, Wanted&& wanted) {
    const uint32_t* const number_of = batch_.number_of_.data();
    found_.resize(4 * kListed);
    Found* const found = found_.data();
    uint64_t n = 0;  // of the four kinds, in a register: 16 bits each
    block_.for_each_record([&](size_t bucket, const Record& r) {
        const uint8_t* held = r.held;
        for (size_t i = 0; i < r.n && r.end - held >= 2; ++i) {
            const size_t own = r.size[i], size = i < r.n_sized ? own : 2;
            if (size > static_cast<size_t>(r.end - held)) break;
            const size_t f = block_.feature(bucket, r, i);
            const uint32_t number = f < n_features ? number_of[f] : 0;
            const size_t kind = kind_of(size);
            found[kind * kListed + (n >> (16 * kind) & 0xffff)] = {held, number, static_cast<uint32_t>(size)};
            // A single byte can only stand in a damaged file.
            n += static_cast<uint64_t>(wanted(number) & (size > 1)) << (16 * kind);
            held += size;
        }
        // Before a record might find no room.
        if (n & 0x0100010001000100) place_found(std::exchange(n, 0));
    });
    place_found(n);
}

// The first n of each list into the panel.
void BlockScorer::place_found(uint64_t counts) {
    // A damaged file may name a feature more than once: there is room for each number.
    size_t n[4], room = batch_.numbered_.size() + 1 - n_placed_, end = n_placed_;
    for (size_t kind = 0; kind < 4; ++kind) {
        n[kind] = std::min<size_t>(counts >> (16 * kind) & 0xffff, room);
        room -= n[kind];
        end += n[kind];
    }
    if (placed_.size() < end) placed_.resize(end);
    // Room for 128 children: a damaged file may name any of them.
    if (panel_.size() < end * width_ + kBlockChildren) panel_.resize(end * width_ + kBlockChildren);
    const auto each = [&, width = width_](size_t kind, auto&& write) {
        const Found* found = found_.data() + kind * kListed;
        uint32_t *const placed = placed_.data(), *const slot = slot_.data();
        StoredWeight* row = panel_.data() + n_placed_ * width;
        for (size_t i = 0; i < n[kind]; ++i, ++found, row += width) {
            for (size_t c = 0; c < width; c += kLaneStep) std::memset(row + c, 0, kLaneStep);
            write(*found, row);
            slot[found->number] = static_cast<uint32_t>(n_placed_ + i);
            placed[n_placed_ + i] = found->number;
        }
        n_placed_ += n[kind];
    };
    each(0, [&](const Found& found, StoredWeight* row) {
        row[found.bytes[0] % kBlockChildren] = static_cast<StoredWeight>(found.bytes[1]);
    });
    const auto listed = [&]<size_t most>(const Found& found, StoredWeight* row) {
        if (block_.end() - found.bytes >= static_cast<ptrdiff_t>(2 * kMostListed))
            write_listed<most>(found.bytes, found.size / 2, row);
        else
            FeatureWeights{found.bytes, found.size}.for_each([&](size_t c, StoredWeight w) { row[c] = w; });
    };
    each(1, [&](const Found& f, StoredWeight* row) { listed.template operator()<4>(f, row); });
    each(2, [&](const Found& f, StoredWeight* row) { listed.template operator()<8>(f, row); });
    each(3, [&](const Found& found, StoredWeight* row) {
        const FeatureWeights all{found.bytes, found.size};
        if (has_room(all, block_)) return kernels_.expand_bitmap(found.bytes, width_, row);
        all.for_each([&](size_t c, StoredWeight w) { row[c] = w; });
    });
}

void BlockScorer::clear_slots() {
    for (size_t p = 1; p < n_placed_; ++p) slot_[placed_[p]] = 0;
}

template <class Fn>
void BlockScorer::for_each_number(std::span<const uint32_t> rows, Fn&& fn) const {
    for (const uint32_t r : rows) {
        const Batch::Row& row = batch_.rows_[r];
        for (size_t e = row.first; e < row.first + row.n; ++e) fn(batch_.number_[e]);
    }
}

void BlockScorer::sum_unpacked(size_t row, int32_t* sum) {
    const auto [first, size, unit] = batch_.rows_[row];
    if (places_.size() < size + kLaneStep) {
        places_.resize(size + kLaneStep);
        values_.resize(size + kLaneStep);
    }
    const size_t n =
        kernels_.gather_nonzero(slot_.data(), batch_.number_.data() + first, batch_.value_.data() + first,
                                size, places_.data(), values_.data());
    kernels_.accumulate_int8(panel_.data(), width_, places_.data(), values_.data(), n, sum);
}

void BlockScorer::sum_packed(size_t row, int32_t* sum) {
    constexpr size_t ahead = 8;
    const uint32_t* feature = batch_.feature_.data() + batch_.rows_[row].first;
    const int16_t* value = batch_.value_.data() + batch_.rows_[row].first;
    const size_t n = batch_.row_size(row);
    for (Hits& hits : hits_) hits.clear(n);
    for (size_t step = 0; step < n + 2 * ahead; ++step) {
        if (step < n) block_.expect_offset(feature[step]);
        if (step >= ahead && step - ahead < n) block_.expect_record(feature[step - ahead]);
        if (step < 2 * ahead) continue;
        const FeatureWeights found = block_.find(feature[step - 2 * ahead]);
        const int16_t v = value[step - 2 * ahead];
        if (!has_room(found, block_)) {
            found.for_each([&](size_t child, StoredWeight weight) { add(v * weight, sum[child]); });
            continue;
        }
        Hits& hits = hits_[(found.size > 4) + (found.size > 8) + found.spread()];
        hits.list[hits.n] = {found.bytes, v, static_cast<uint8_t>(found.size)};
        hits.n += found.size > 1;  // a single byte can only stand in a damaged file
        __builtin_prefetch(found.bytes);
        __builtin_prefetch(found.bytes + 64);
    }
    sum_listed<2>(hits_[0], sum);
    sum_listed<4>(hits_[1], sum);
    sum_listed<8>(hits_[2], sum);
    kernels_.accumulate_bitmap(hits_[3].list.data(), hits_[3].n, sum);
}

// Features of up to `most` weights; missing ones are 0, so that all have as many.
template <size_t most>
void BlockScorer::sum_listed(const Hits& hits, int32_t* sum) {
    for (size_t h = 0; h < hits.n; ++h) {
        const BitmapWeights& hit = hits.list[h];
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

// Largest first, so that threads end together. A block that is most of the work is shared, if it has more
// rows than it takes to unpack it twice.
void BlockLoop::share_out(const Forest& forest, std::vector<BlockRows>& blocks) const {
    const size_t threads = pool_.threads();
    if (threads == 1) return;
    constexpr size_t multiply_cost = 3;  // of a value, in bytes to unpack
    const ForestArrays& a = forest.arrays();
    const auto n_bytes = [&](const BlockRows& block) {
        const auto b = static_cast<size_t>(a.block_ptr[block.node]) + block.from / kBlockChildren;
        return static_cast<size_t>(a.record_ptr[b + 1] - a.record_ptr[b]);
    };
    size_t total = 0;
    for (BlockRows& block : blocks) {
        block.cost = block.rows.size() * batch_.mean_row_size() * multiply_cost + n_bytes(block);
        total += block.cost;
    }
    const size_t n = blocks.size();
    for (size_t b = 0; b < n; ++b) {
        const BlockRows whole = blocks[b];
        const size_t n_rows = whole.rows.size();
        const size_t pieces = std::min({2 * whole.cost * threads / total + 1, threads,
                                        whole.cost / (4 * n_bytes(whole) + 1) + 1, n_rows});
        for (size_t piece = 0; piece < pieces; ++piece) {
            const size_t begin = n_rows * piece / pieces, n = n_rows * (piece + 1) / pieces - begin;
            BlockRows& part = piece == 0 ? blocks[b] : blocks.emplace_back(whole);
            part.first = whole.first + begin;
            part.rows = whole.rows.subspan(begin, n);
            part.cost = whole.cost / pieces;
        }
    }
    std::stable_sort(blocks.begin(), blocks.end(),
                     [](const BlockRows& a, const BlockRows& b) { return a.cost > b.cost; });
}

}  // namespace bonsai

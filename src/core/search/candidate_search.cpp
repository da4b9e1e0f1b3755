#include "search/candidate_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace bonsai {
namespace {

// Adding 1,280 postings takes about as long as scoring a block exactly.
constexpr size_t kPostingsPerProbe = 1280;

// Products are compared by their exponent and three bits of mantissa.
constexpr unsigned kBinShift = 20;
constexpr size_t kBins = size_t{1} << (31 - kBinShift);

// Keeps sums within 16 bits.
constexpr float kLargestSum = 32000.0f;

size_t bin_of(float product) {
    return std::bit_cast<uint32_t>(product) >> kBinShift & (kBins - 1);  // within bounds even for NaN
}

// Returns the largest of a block's sums and resets them to 0.
int16_t take_largest(int16_t* sums) {
    typedef int16_t Vec __attribute__((vector_size(16)));
    constexpr size_t lanes = sizeof(Vec) / sizeof(int16_t), streams = 4;
    Vec largest[streams];
    std::memcpy(largest, sums, sizeof largest);
    for (size_t c = streams * lanes; c < kBlockChildren; c += streams * lanes)
        for (size_t s = 0; s < streams; ++s) {
            Vec next;
            std::memcpy(&next, sums + c + s * lanes, sizeof next);
            largest[s] = next > largest[s] ? next : largest[s];
        }
    for (size_t c = 0; c < kBlockChildren; c += lanes) {
        const Vec zero = {};
        std::memcpy(sums + c, &zero, sizeof zero);
    }
    for (size_t s = 1; s < streams; ++s) largest[0] = largest[s] > largest[0] ? largest[s] : largest[0];
    int16_t best = largest[0][0];
    for (size_t l = 1; l < lanes; ++l) best = std::max(best, largest[0][l]);
    return best;
}

// The same over allowed positions, whose mask is -1; false if there are none.
bool take_largest_of(int16_t* sums, const int16_t* mask, int16_t& best) {
    typedef int16_t Vec __attribute__((vector_size(16)));
    constexpr size_t lanes = sizeof(Vec) / sizeof(int16_t);
    constexpr int16_t lowest = std::numeric_limits<int16_t>::min();
    Vec largest = lowest - Vec{}, any = {};
    for (size_t c = 0; c < kBlockChildren; c += lanes) {
        Vec sum, allowed;
        std::memcpy(&sum, sums + c, sizeof sum);
        std::memcpy(&allowed, mask + c, sizeof allowed);
        sum = (sum & allowed) | (~allowed & lowest);
        largest = sum > largest ? sum : largest;
        any |= allowed;
    }
    std::memset(sums, 0, kBlockChildren * sizeof *sums);
    best = lowest;
    bool found = false;
    for (size_t l = 0; l < lanes; ++l) {
        best = std::max(best, largest[l]);
        found |= any[l] != 0;
    }
    return found;
}

int32_t to_product(float magnitude) {
    return static_cast<int32_t>(magnitude < kLargestSum ? magnitude : kLargestSum);
}

// Wraps around: a damaged list may hold a position more than once.
void add_to(int16_t& sum, uint16_t product) {
    sum = static_cast<int16_t>(static_cast<uint16_t>(static_cast<uint16_t>(sum) + product));
}

float group_magnitude(const float* levels, size_t group) {
    return levels[group * kGroupLevels + kGroupLevels / 2];
}

}  // namespace

// Positions are masked, not compared: there is a sum for every masked position.
CandidateSearch::CandidateSearch(const LabelIndex& index)
    : index_(index),
      position_mask_(static_cast<uint32_t>(std::bit_ceil(std::max<size_t>(1, index.n_positions())) - 1)),
      count_(kBins, 0),
      sums_(size_t{position_mask_} + 1 + kBlockChildren) {
    ranked_.reserve(index.n_positions() / kBlockChildren + 1);
}

std::span<const uint32_t> CandidateSearch::find_blocks(std::span<const uint32_t> features,
                                                       std::span<const int16_t> values, float unit,
                                                       size_t n_probe, const int16_t* allowed) {
    queries_.clear();
    for (size_t i = 0; i < features.size(); ++i)
        if (const PostingList list = index_.list(features[i]); list.size() > 0) {
            __builtin_prefetch(list.data() - (list.is_short() ? 0 : kGroups));
            queries_.push_back({list, static_cast<float>(values[i]) * unit, kGroups});
        }
    if (const PostingList biases = index_.biases(); biases.size() > 0)
        queries_.push_back({biases, 1.0f, kGroups});
    choose_groups(n_probe * kPostingsPerProbe);
    add_postings();
    rank_blocks(n_probe, allowed);
    return blocks_;
}

// Selects the largest products up to the budget; short lists are taken whole.
void CandidateSearch::choose_groups(size_t budget) {
    size_t total = 0, lowest = kBins, highest = 0;
    const auto for_each_group = [&](auto&& fn) {
        for (Query& query : queries_) {
            if (query.list.is_short()) continue;
            const float value = std::abs(query.value);
            for (size_t g = 0, before = 0; g < kGroups; ++g) {
                const size_t end = query.list.in_groups(g + 1);
                fn(query, g, bin_of(value * group_magnitude(index_.levels(), g)),
                   end - std::min(before, end));
                before = end;
            }
        }
    };
    for (const Query& query : queries_) total += query.list.size();
    if (total <= budget) return;
    total = 0;
    for (const Query& query : queries_) total += query.list.is_short() ? query.list.size() : 0;
    for_each_group([&](Query&, size_t, size_t bin, size_t n) {
        if (n == 0) return;
        count_[bin] += static_cast<uint32_t>(n);
        lowest = std::min(lowest, bin);
        highest = std::max(highest, bin);
    });
    size_t cut = highest + 1;  // bins from here on are taken
    while (cut > lowest && total + count_[cut - 1] <= budget) total += count_[--cut];
    for (size_t bin = lowest; bin <= highest && lowest < kBins; ++bin) count_[bin] = 0;
    for (Query& query : queries_)
        if (!query.list.is_short()) query.n_groups = 0;
    for_each_group([&](Query& query, size_t g, size_t bin, size_t) {
        if (bin >= cut) query.n_groups = g + 1;
    });
}

void CandidateSearch::add_postings() {
    // No sum exceeds 16 bits: a list holds each position once.
    float most = 0;
    for (const Query& query : queries_)
        most += std::abs(query.value) * index_.levels()[query.list.first() >> 25];
    const float scale = most > 0 ? kLargestSum / most : 0.0f;
    n_postings_ = 0;
    for (const Query& query : queries_) {
        if (query.n_groups == 0) continue;
        const size_t n = query.list.in_groups(query.n_groups);
        if (query.list.is_short())
            add_short_list(query.list.data(), n, query.value * scale);
        else
            add_long_list(query.list.data(), n, query.value * scale, query.n_groups);
        n_postings_ += n;
    }
}

void CandidateSearch::add_short_list(const uint32_t* postings, size_t n, float value) {
    const float* const levels = index_.levels();
    for (size_t i = 0; i < n; ++i) {
        const uint32_t p = postings[i];
        const int32_t product = to_product(std::abs(value) * levels[p >> 25]);
        const bool negative = (p >> 24 & 1) != (value < 0);
        add_to(sums_[p & position_mask_], static_cast<uint16_t>(negative ? -product : product));
    }
}

// Levels of the first groups: their products are in a table.
void CandidateSearch::add_long_list(const uint32_t* postings, size_t n, float value, size_t n_groups) {
    const float* const levels = index_.levels();
    const float magnitude = std::abs(value);
    uint32_t pairs[kLevels] = {};  // product and its negative; 0 for out-of-range levels of damaged lists
    for (size_t l = 0; l < n_groups * kGroupLevels; ++l) {
        const int32_t product = to_product(magnitude * levels[l]);
        pairs[l] = static_cast<uint32_t>(product) | static_cast<uint32_t>(-product) << 16;
    }
    if (value < 0)
        for (uint32_t& pair : pairs) pair = std::rotl(pair, 16);
    uint16_t products[2 * kLevels];
    static_assert(sizeof products == sizeof pairs && std::endian::native == std::endian::little);
    std::memcpy(products, pairs, sizeof products);
    int16_t* const sums = sums_.data();
    const uint32_t mask = position_mask_;
#pragma GCC unroll 4
    for (size_t i = 0; i < n; ++i) {
        const uint32_t p = postings[i];
        add_to(sums[p & mask], products[p >> 24]);
    }
}

// Resets the sums to 0; nothing is thrown before that.
void CandidateSearch::rank_blocks(size_t n_probe, const int16_t* allowed) {
    ranked_.clear();
    const auto add = [&](size_t block, int16_t largest) {
        ranked_.push_back(static_cast<uint64_t>(32768 - largest) << 32 | block);
    };
    for (size_t b = 0, from = 0; from < index_.n_positions(); ++b, from += kBlockChildren) {
        if (!allowed) {
            add(b, take_largest(&sums_[from]));
            continue;
        }
        int16_t largest;
        if (take_largest_of(&sums_[from], allowed + from, largest)) add(b, largest);
    }
    const size_t n = std::min(n_probe, ranked_.size());
    if (n < ranked_.size())
        std::nth_element(ranked_.begin(), ranked_.begin() + static_cast<int64_t>(n), ranked_.end());
    blocks_.clear();
    for (size_t i = 0; i < n; ++i) blocks_.push_back(static_cast<uint32_t>(ranked_[i]));
}

// Does not wait for the lock: in a forked process, it may be held by a thread that does not exist there.
std::unique_ptr<CandidateSearch> SearchCache::take(const LabelIndex& index) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock && !unused_.empty()) {
        auto search = std::move(unused_.back());
        unused_.pop_back();
        return search;
    }
    return std::make_unique<CandidateSearch>(index);
}

void SearchCache::give_back(std::unique_ptr<CandidateSearch> search) noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    try {
        unused_.push_back(std::move(search));
    } catch (const std::bad_alloc&) {  // the search is dropped
    }
}

}  // namespace bonsai

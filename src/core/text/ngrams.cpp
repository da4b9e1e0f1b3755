#include "text/ngrams.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "text/distinct.hpp"
#include "text/pair_table.hpp"

namespace bonsai::text {

namespace {

// Keys are distributed over tables by hash, and each table belongs to one worker at a time: no locks, and
// equal numbers for any number of threads.
constexpr size_t kShardBits = 6;
constexpr size_t kShards = size_t{1} << kShardBits;
constexpr size_t kMostInShard = size_t{1} << (32 - kShardBits);
constexpr size_t kSegmentsPerRound = 32;  // keeps their keys in cache between the two steps of a round
constexpr size_t kAhead = 12;             // prefetched lookups: enough to hide a miss

size_t shard_of(uint64_t hash) {
    return hash >> (64 - kShardBits);
}

std::span<const uint32_t> prefix_of(const std::vector<Segment>& words, const NgramPlaces& prefixes,
                                    size_t segment) {
    return prefixes.empty() ? words[segment].terms : prefixes[segment];
}

// Calls fn(place, key) for each n-gram of a document if all its parts are known.
template <class Fn>
void for_each_key(const Segment& words, std::span<const uint32_t> prefix, size_t document, uint32_t n,
                  Fn&& fn) {
    const size_t end = words.ends[document];
    for (size_t i = words.begin_of(document); i + n <= end; ++i) {
        const uint32_t first = prefix[i], last = words.terms[i + n - 1];
        if (first != kNone && last != kNone) fn(i, pair_key(first, last));
    }
}

class Counter {
  public:
    Counter(const std::vector<Segment>& words, const NgramPlaces& prefixes, uint32_t n, Pool& pool)
        : words_(words), prefixes_(prefixes), n_(n), pool_(pool), distinct_(pool.threads()) {
        level_.segments.resize(words.size());
    }

    NgramLevel count(double min_df, NgramPlaces* places) {
        for (size_t begin = 0; begin < words_.size(); begin += kSegmentsPerRound)
            count_round(begin, std::min(kSegmentsPerRound, words_.size() - begin));
        number(min_df);
        pool_.run(words_.size(), [&](size_t s, unsigned) { renumber(level_.segments[s]); });
        if (places) {
            places->resize(words_.size());
            pool_.run(words_.size(), [&](size_t s, unsigned) { find_places(s, (*places)[s]); });
        }
        return std::move(level_);
    }

  private:
    // A segment's distinct keys, document by document, and sorted by shard.
    struct Sorted {
        uint64_t key;
        uint64_t hash;
        size_t place;
    };
    struct Keys {
        std::vector<uint64_t> keys;
        std::vector<Sorted> sorted;
        std::array<uint32_t, kShards + 1> begin;
    };

    void count_round(size_t first, size_t n_segments) {
        pool_.run(n_segments,
                  [&](size_t i, unsigned worker) { list_keys(first + i, round_[i], distinct_[worker]); });
        pool_.run(kShards, [&](size_t shard, unsigned) {
            for (size_t i = 0; i < n_segments; ++i) count_keys(shard, round_[i], level_.segments[first + i]);
        });
    }

    void list_keys(size_t segment, Keys& out, Distinct<uint64_t>& distinct) {
        const Segment& words = words_[segment];
        const auto prefix = prefix_of(words_, prefixes_, segment);
        auto& counts = level_.segments[segment];
        out.keys.clear();
        for (size_t d = 0; d < words.size(); ++d) {
            distinct.begin(words.ends[d] - words.begin_of(d));
            for_each_key(words, prefix, d, n_, [&](size_t, uint64_t key) { distinct.add(key); });
            for (const auto& item : distinct.items()) {
                out.keys.push_back(item.key);
                counts.n.push_back(item.n);
            }
            counts.ends.push_back(static_cast<uint32_t>(out.keys.size()));
        }
        counts.n.shrink_to_fit();
        counts.ngrams.resize(out.keys.size());
        sort_by_shard(out);
    }

    static void sort_by_shard(Keys& keys) {
        keys.begin.fill(0);
        for (const uint64_t key : keys.keys) ++keys.begin[shard_of(PairTable::hash(key)) + 1];
        for (size_t s = 0; s < kShards; ++s) keys.begin[s + 1] += keys.begin[s];
        auto place = keys.begin;
        keys.sorted.resize(keys.keys.size());
        for (size_t i = 0; i < keys.keys.size(); ++i) {
            const uint64_t hash = PairTable::hash(keys.keys[i]);
            keys.sorted[place[shard_of(hash)]++] = {keys.keys[i], hash, i};
        }
    }

    void count_keys(size_t shard, const Keys& keys, NgramLevel::Counts& counts) {
        PairTable& table = tables_[shard];
        const size_t end = keys.begin[shard + 1];
        for (size_t i = keys.begin[shard]; i < end; ++i) {
            if (i + kAhead < end) table.prefetch(keys.sorted[i + kAhead].hash);
            const uint32_t number = table.count(keys.sorted[i].key, keys.sorted[i].hash);
            counts.ngrams[keys.sorted[i].place] = static_cast<uint32_t>(number << kShardBits | shard);
        }
        if (table.size() > kMostInShard) throw std::length_error("more than 2^32 different n-grams");
    }

    // Numbers the n-grams that are kept, in the order of their keys.
    void number(double min_df) {
        struct Kept {
            uint64_t key;
            uint32_t df;
            uint32_t provisional;
        };
        std::array<std::vector<Kept>, kShards> kept;
        pool_.run(kShards, [&](size_t shard, unsigned) {
            number_of_[shard].assign(tables_[shard].size(), kNone);
            tables_[shard].for_each([&](const PairTable::Slot& slot) {
                if (slot.count >= min_df)
                    kept[shard].push_back(
                        {slot.key, slot.count, static_cast<uint32_t>(slot.number << kShardBits | shard)});
            });
        });
        std::vector<Kept> all;
        for (auto& some : kept) {
            all.insert(all.end(), some.begin(), some.end());
            some = {};
        }
        std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.key < b.key; });
        level_.keys.resize(all.size());
        level_.df.resize(all.size());
        for (uint32_t i = 0; i < all.size(); ++i) {
            level_.keys[i] = all[i].key;
            level_.df[i] = all[i].df;
            number_of_[all[i].provisional % kShards][all[i].provisional >> kShardBits] = i;
        }
    }

    // Replaces provisional numbers by final ones and drops the other n-grams.
    void renumber(NgramLevel::Counts& counts) const {
        size_t to = 0, from = 0;
        for (auto& end : counts.ends) {
            for (; from < end; ++from) {
                const uint32_t number = counts.ngrams[from];
                const uint32_t kept = number_of_[number % kShards][number >> kShardBits];
                if (kept == kNone) continue;
                counts.ngrams[to] = kept;
                counts.n[to++] = counts.n[from];
            }
            end = static_cast<uint32_t>(to);
        }
        counts.ngrams.resize(to);
        counts.n.resize(to);
        counts.ngrams.shrink_to_fit();
        counts.n.shrink_to_fit();
    }

    void find_places(size_t segment, std::vector<uint32_t>& places) const {
        const Segment& words = words_[segment];
        const auto prefix = prefix_of(words_, prefixes_, segment);
        places.assign(words.terms.size(), kNone);
        for (size_t d = 0; d < words.size(); ++d)
            for_each_key(words, prefix, d, n_, [&](size_t i, uint64_t key) {
                const uint64_t hash = PairTable::hash(key);
                const size_t shard = shard_of(hash);
                const uint32_t number = tables_[shard].find(key, hash);
                if (number != kNone) places[i] = number_of_[shard][number];
            });
    }

    const std::vector<Segment>& words_;
    const NgramPlaces& prefixes_;
    const uint32_t n_;
    Pool& pool_;
    std::vector<Distinct<uint64_t>> distinct_;  // per worker
    std::array<Keys, kSegmentsPerRound> round_;
    std::array<PairTable, kShards> tables_;
    std::array<std::vector<uint32_t>, kShards> number_of_;  // number in a table -> final number
    NgramLevel level_;
};

}  // namespace

NgramLevel count_ngrams(const std::vector<Segment>& words, const NgramPlaces& prefixes, uint32_t n,
                        double min_df, NgramPlaces* places, Pool& pool) {
    return Counter(words, prefixes, n, pool).count(min_df, places);
}

}  // namespace bonsai::text

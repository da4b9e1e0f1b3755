// Finds the blocks of classifiers that are most likely to hold the best labels of a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "search/label_index.hpp"

namespace bonsai {

// Score at a time (JASS; Lin and Trotman, "Anytime ranking for impact-ordered indexes", ICTIR 2015): of all
// products of a row's values with weights, only the largest are added up, as many as a budget allows. This
// gives an approximate score of every label; the caller then scores the blocks with the largest sums exactly.
// One object per worker.
class CandidateSearch {
  public:
    explicit CandidateSearch(const LabelIndex& index);

    // The n_probe blocks of kBlockChildren positions whose largest sum is largest, ties by the first block,
    // in no order. The row has distinct features below n_features; its values are multiplied by `unit`.
    // `allowed`, if given, has -1 or 0 for each position, padded to a multiple of kBlockChildren: positions
    // with 0 do not count, and blocks without allowed positions are not found.
    std::span<const uint32_t> find_blocks(std::span<const uint32_t> features, std::span<const int16_t> values,
                                          float unit, size_t n_probe, const int16_t* allowed = nullptr);
    // The number of postings that were added for the last row.
    size_t n_postings() const { return n_postings_; }

  private:
    // The list of a feature in the row, and the row's value.
    struct Query {
        PostingList list;
        float value;
        size_t n_groups;
    };

    void choose_groups(size_t budget);
    void add_postings();
    void add_short_list(const uint32_t* postings, size_t n, float value);
    void add_long_list(const uint32_t* postings, size_t n, float value, size_t n_groups);
    void rank_blocks(size_t n_probe, const int16_t* allowed);

    const LabelIndex& index_;
    const uint32_t position_mask_;
    std::vector<Query> queries_;
    std::vector<uint32_t> count_;  // postings by size of product; 0 between rows
    AlignedVector<int16_t> sums_;  // per position; 0 between rows
    std::vector<uint64_t> ranked_;
    std::vector<uint32_t> blocks_;
    size_t n_postings_ = 0;
};

// Idle searches, kept so that calls need not allocate and clear one sum per label.
class SearchCache {
  public:
    // Takes an idle search, or makes a new one.
    std::unique_ptr<CandidateSearch> take(const LabelIndex& index);
    void give_back(std::unique_ptr<CandidateSearch> search) noexcept;

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<CandidateSearch>> unused_;
};

}  // namespace bonsai

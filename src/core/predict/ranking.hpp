// The interface of a ranking, which each search strategy implements, and code that rankings share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "predict/block_scoring.hpp"
#include "predict/scores.hpp"
#include "predict/select.hpp"

namespace bonsai {

struct RankedLabel {
    double score;
    double margin;  // mean over the trees that have the label
    uint32_t label;
    bool operator<(const RankedLabel& other) const {  // better first
        if (score != other.score) return score > other.score;
        if (margin != other.margin) return margin > other.margin;
        return label < other.label;
    }
};

// The output for the k best labels of each row in a batch.
struct TopKOutput {
    size_t k;
    int32_t* ids;
    float* scores;
    Control* control = nullptr;  // counts written rows

    // Sorts the k best labels to the front of `ranked`.
    void write(size_t row, std::vector<RankedLabel>& ranked) const {
        const size_t n = std::min(k, ranked.size());
        std::partial_sort(ranked.begin(), ranked.begin() + static_cast<int64_t>(n), ranked.end());
        for (size_t r = 0; r < k; ++r) {
            ids[row * k + r] = r < n ? static_cast<int32_t>(ranked[r].label) : -1;
            scores[row * k + r] = r < n ? static_cast<float>(ranked[r].score) : kLowest;
        }
        if (control) ++control->done;
    }
};

// Ranks labels for the rows of a batch. Keeps its buffers from batch to batch.
class Ranking {
  public:
    virtual ~Ranking() = default;
    // Maximum rows of a batch.
    virtual size_t max_rows() const = 0;
    virtual void run(const TopKOutput& out) = 0;
};

// Collects the k best labels of rows while several threads visit their blocks in any order.
class SharedTopK {
  public:
    SharedTopK(const Scores& scores, size_t k, size_t threads)
        : scores_(scores), k_(k), locks_(threads > 1 ? kLocks : 1) {}

    // Maximum number of rows, given the memory of their labels.
    size_t max_rows(size_t n_labels) const;
    void reset(size_t n_rows) {
        best_.resize(n_rows);
        for (auto& best : best_) best.reset(k_);
    }
    // Adds the labels of the block that the scorer has open, for row `batch_row` of its batch.
    void add_block(size_t row, BlockScorer& scorer, size_t batch_row, std::span<const int32_t> labels,
                   float path) {
        alignas(64) float margin[kBlockChildren];
        const float largest = scorer.margins(batch_row, margin);
        if (scores_.upper_bound(path, largest) < threshold(row)) return;
        update(row, [&](TopK<RankedLabel>& best) {
            best.add_block(scores_, path, {margin, scorer.n_children()}, [&](size_t c, float score) {
                return RankedLabel{score, margin[c], static_cast<uint32_t>(labels[c])};
            });
        });
    }
    // Labels with a lower score are not kept.
    float threshold(size_t row) const { return best_[row].threshold(); }
    // Calls fn(the best labels of a row), for one thread at a time.
    template <class Fn>
    void update(size_t row, Fn&& fn) {
        const std::lock_guard lock(locks_[row % locks_.size()]);
        fn(best_[row]);
    }
    std::span<const RankedLabel> labels(size_t row) const { return best_[row].items(); }

  private:
    static constexpr size_t kLocks = 1024;

    const Scores& scores_;
    const size_t k_;
    std::vector<TopK<RankedLabel>> best_;
    std::vector<std::mutex> locks_;  // each guards many rows
};

}  // namespace bonsai

// Ranking by one-vs-rest classifiers: of all labels, or of those that a beam search finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/groups.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "predict/batch.hpp"
#include "predict/beam_search.hpp"
#include "predict/block_scoring.hpp"
#include "predict/model.hpp"
#include "predict/ranking.hpp"

namespace bonsai {

// All labels are scored.
class ExactRanking : public Ranking {
  public:
    ExactRanking(const Forest& one_vs_rest, const Batch& batch, const Scores& scores, size_t k,
                 const Kernels& kernels, Pool& pool)
        : forest_(one_vs_rest),
          batch_(batch),
          pool_(pool),
          loop_(batch, kernels, pool),
          best_(scores, k, pool.threads()),
          ranked_(pool.threads()) {}

    size_t max_rows() const override { return best_.max_rows(forest_.n_labels()); }
    void run(const TopKOutput& out) override;

    // The same without output: scores all labels of all rows of the batch; `labels` are a row's best ones
    // then, in no order.
    void find_best();
    std::span<const RankedLabel> labels(size_t row) const { return best_.labels(row); }

  private:
    const Forest& forest_;
    const Batch& batch_;
    Pool& pool_;
    BlockLoop loop_;
    SharedTopK best_;
    std::vector<uint32_t> rows_;  // that have features
    std::vector<BlockRows> blocks_;
    std::vector<std::vector<RankedLabel>> ranked_;  // of each worker
};

// One-vs-rest margins of some labels of each row. Labels are given by their positions among the classifiers;
// margins are computed for whole blocks of them.
class LabelMargins {
  public:
    LabelMargins(const Forest& one_vs_rest, const Batch& batch, const Kernels& kernels, Pool& pool)
        : forest_(one_vs_rest),
          pool_(pool),
          loop_(batch, kernels, pool),
          by_block_(one_vs_rest.n_blocks(0), pool),
          slots_(pool.threads()) {}

    // Rows [begin, end) of the batch; for_each_position(row, worker, request) calls request(position) for
    // each label that a row needs.
    template <class ForEachPosition>
    void compute(size_t begin, size_t end, ForEachPosition&& for_each_position) {
        begin_ = begin;
        blocks_of_row_.resize(std::max(blocks_of_row_.size(), end - begin));
        for_each_row(pool_, begin, end, [&](size_t row, unsigned worker) {
            std::vector<uint32_t>& slot = slots_of(worker);
            std::vector<uint32_t>& blocks = blocks_of_row_[row - begin];
            blocks.clear();
            for_each_position(row, worker, [&](uint32_t position) {
                uint32_t& mark = slot[position / kBlockChildren];
                if (mark != kNone) return;
                mark = 0;
                blocks.push_back(position / static_cast<uint32_t>(kBlockChildren));
            });
            for (const uint32_t block : blocks) slot[block] = kNone;
        });
        compute_requested(end - begin);
    }

    // The margins of a row, by position. One at a time for each worker.
    class Row {
      public:
        Row(LabelMargins& all, size_t row, unsigned worker)
            : all_(all),
              slot_(all.slots_of(worker)),
              first_(all.requests_ptr_[row - all.begin_]),
              end_(all.requests_ptr_[row - all.begin_ + 1]) {
            for (size_t r = first_; r < end_; ++r) slot_[all_.requests_[r].block] = static_cast<uint32_t>(r);
        }
        ~Row() {
            for (size_t r = first_; r < end_; ++r) slot_[all_.requests_[r].block] = kNone;
        }
        Row(const Row&) = delete;
        Row& operator=(const Row&) = delete;
        float operator[](uint32_t position) const {
            return all_
                .margins_[slot_[position / kBlockChildren] * kBlockChildren + position % kBlockChildren];
        }

      private:
        const LabelMargins& all_;
        std::vector<uint32_t>& slot_;
        const size_t first_, end_;
    };

    // Blocks of margins that are kept at once, at most.
    static constexpr size_t kMaxBlocks = kMarginBytes / (kBlockChildren * sizeof(float));

  private:
    static constexpr uint32_t kNone = ~uint32_t{0};
    // The margins of the i-th request are the i-th 128 of margins_.
    struct Request {
        uint32_t block;
        uint32_t row;
    };

    // For each block of classifiers: its request for the row at hand; kNone between rows.
    std::vector<uint32_t>& slots_of(unsigned worker) {
        if (slots_[worker].empty()) slots_[worker].assign(forest_.n_blocks(0), kNone);
        return slots_[worker];
    }
    void compute_requested(size_t n_rows);

    const Forest& forest_;
    Pool& pool_;
    BlockLoop loop_;
    Groups by_block_;
    std::vector<std::vector<uint32_t>> slots_;  // of each worker
    size_t begin_ = 0;
    std::vector<std::vector<uint32_t>> blocks_of_row_;
    std::vector<Request> requests_;
    std::vector<size_t> requests_ptr_;
    std::vector<uint32_t> rows_, numbers_;  // of the requests, by block
    std::vector<BlockRows> blocks_;
    Buffer<float> margins_;
};

// The candidates are all labels of the leaves that a beam search ends in.
class CandidateRanking : public Ranking {
  public:
    CandidateRanking(const Model& model, const Batch& batch, const Scores& scores, size_t beam_size,
                     float path_weight, size_t k, const Kernels& kernels, Pool& pool);

    size_t max_rows() const override { return search_.max_rows(); }
    void run(const TopKOutput& out) override;

  private:
    struct Worker {
        explicit Worker(size_t n_labels) : path(n_labels) {}
        ZeroedArray<float> path;                                // of each label; 0 between rows
        std::vector<std::pair<uint32_t, uint32_t>> candidates;  // label, position
        TopK<RankedLabel> best;
        std::vector<RankedLabel> ranked;
    };

    size_t end_of_chunk(size_t begin);
    template <class Fn>
    void for_each_candidate(std::span<const Visit> leaves, Fn&& fn) const;
    void rank(Worker& worker, size_t row, const LabelMargins::Row& margins);

    const Forest& trees_;
    const Forest& one_vs_rest_;
    const std::span<const float> offsets_;
    const Batch& batch_;
    const Scores& scores_;
    const float path_weight_;
    const size_t k_;
    Pool& pool_;
    BeamSearch search_;
    LabelMargins margins_;
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace bonsai

// Ranking of all labels by one-vs-rest classifiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/block_scoring.hpp"
#include "predict/ranking.hpp"

namespace bonsai {

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

    // The same without output: scores all labels for all rows of the batch; `labels` then returns the best
    // labels of a row, in no order.
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
    std::vector<std::vector<RankedLabel>> ranked_;  // per worker
};

}  // namespace bonsai

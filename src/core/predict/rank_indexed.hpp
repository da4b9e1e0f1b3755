// Ranking by one-vs-rest classifiers, for the labels that an index finds.
#pragma once

#include <cstddef>
#include <vector>

#include "base/parallel.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/block_scoring.hpp"
#include "predict/probed_blocks.hpp"
#include "predict/ranking.hpp"
#include "search/label_index.hpp"

namespace bonsai {

// For each row the index selects n_probe blocks of classifiers, all of whose labels are scored.
class IndexedRanking : public Ranking {
  public:
    IndexedRanking(const Forest& one_vs_rest, const LabelIndex& index, const Batch& batch,
                   const Scores& scores, size_t n_probe, size_t k, const Kernels& kernels, Pool& pool)
        : forest_(one_vs_rest),
          batch_(batch),
          pool_(pool),
          probed_(one_vs_rest, index, batch, n_probe, pool),
          loop_(batch, kernels, pool),
          best_(scores, k, pool.threads()),
          ranked_(pool.threads()) {}

    size_t max_rows() const override;
    void run(const TopKOutput& out) override;

  private:
    const Forest& forest_;
    const Batch& batch_;
    Pool& pool_;
    ProbedBlocks probed_;
    BlockLoop loop_;
    SharedTopK best_;
    std::vector<std::vector<RankedLabel>> ranked_;  // per worker
};

}  // namespace bonsai

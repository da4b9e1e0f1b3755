// Ranking by one-vs-rest classifiers of the labels that an index finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/groups.hpp"
#include "base/parallel.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/block_scoring.hpp"
#include "predict/ranking.hpp"
#include "search/candidate_search.hpp"
#include "search/label_index.hpp"

namespace bonsai {

// For each row the index chooses n_probe blocks of classifiers; all labels of these are scored. What is found
// for a row does not depend on the rows beside it. There must be more than n_probe blocks with labels that
// are not excluded.
class IndexedRanking : public Ranking {
  public:
    IndexedRanking(const Forest& one_vs_rest, const LabelIndex& index, const Batch& batch,
                   const Scores& scores, size_t n_probe, size_t k, const Kernels& kernels, Pool& pool)
        : forest_(one_vs_rest),
          index_(index),
          batch_(batch),
          n_probe_(n_probe),
          pool_(pool),
          loop_(batch, kernels, pool),
          by_block_(one_vs_rest.n_blocks(0)),
          best_(scores, k, pool.threads()),
          searches_(pool.threads()),
          ranked_(pool.threads()) {}
    ~IndexedRanking() override;

    size_t max_rows() const override;
    void run(const TopKOutput& out) override;

  private:
    void find_blocks();
    void score_blocks();

    const Forest& forest_;
    const LabelIndex& index_;
    const Batch& batch_;
    const size_t n_probe_;
    Pool& pool_;
    BlockLoop loop_;
    Groups by_block_;
    SharedTopK best_;
    std::vector<std::unique_ptr<CandidateSearch>> searches_;  // of each worker
    std::vector<uint32_t> rows_;                              // that have features
    std::vector<uint32_t> probes_;                            // n_probe blocks of each of them
    std::vector<uint32_t> rows_by_block_;
    std::vector<BlockRows> blocks_;
    std::vector<std::vector<RankedLabel>> ranked_;  // of each worker
};

}  // namespace bonsai

// Ranking by one-vs-rest scores blended with the scores of label trees and of trees over rows, with an offset
// per label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "predict/batch.hpp"
#include "predict/beam_search.hpp"
#include "predict/block_scoring.hpp"
#include "predict/model.hpp"
#include "predict/probed_blocks.hpp"
#include "predict/ranking.hpp"

namespace bonsai {

// log score = log((1 - f) ((1 - w) exp(one-vs-rest) + w exp(trees)) + f exp(row trees)) + the label's offset,
// where w is the blend weight and f the weight of the trees over rows. exp(trees) is 0 for labels that are
// not among the best of the trees, and likewise exp(row trees). Without an index all labels are scored, and
// the result is exact. With an index, labels are scored in the blocks that it finds and in the blocks of
// labels that trees of either kind score. Ties go to the larger one-vs-rest margin, then to the smaller
// label.
class BlendedRanking : public Ranking {
  public:
    // The number of labels that trees score: independent of k, so that k does not change the order.
    static constexpr size_t kFromTrees = 32;
    static constexpr size_t kFromRowTrees = 100;

    // `trees` finds the n_from_trees best labels of each row; null if the blend weight is 0. `probed` finds
    // blocks of one-vs-rest classifiers; null: all blocks are scored.
    BlendedRanking(const Model& model, const Batch& batch, const Scores& scores,
                   std::unique_ptr<Ranking> trees, size_t n_from_trees, size_t n_from_row_trees,
                   std::unique_ptr<ProbedBlocks> probed, size_t k, const Kernels& kernels, Pool& pool);

    size_t max_rows() const override;
    void run(const TopKOutput& out) override;

  private:
    // The contribution of trees to the score of the label whose classifier is at `position`, as a logarithm,
    // weights included.
    struct FromTrees {
        uint32_t position;
        double log_part;
    };

    void score_by_trees();
    void add_ranked(size_t row, std::span<const int32_t> ids, std::span<const float> scores,
                    float log_weight);
    void score_by_one_vs_rest();
    std::vector<BlockRows>& blocks();
    void add_block(BlockScorer& scorer, size_t row, size_t from);
    std::span<const FromTrees> of_block(size_t row, size_t begin, size_t end) const;

    const Model& model_;
    const Forest& one_vs_rest_;
    const Batch& batch_;
    const Scores& scores_;
    const float log_own_, log_trees_, log_row_trees_;  // logs of the weights of the scores
    Pool& pool_;
    std::unique_ptr<Ranking> trees_;
    const size_t n_from_trees_, n_from_row_trees_;
    std::unique_ptr<ProbedBlocks> probed_;
    std::vector<uint8_t> allowed_;  // per label; empty: all
    std::vector<int32_t> ids_;      // per row, best first
    std::vector<float> tree_scores_;
    std::vector<FromTrees> from_trees_;     // fixed room per row, by ascending position
    std::vector<uint32_t> from_trees_end_;  // per row
    BlockLoop loop_;
    SharedTopK best_;
    std::vector<uint32_t> rows_;  // that have features
    std::vector<BlockRows> blocks_;
    std::vector<std::vector<RankedLabel>> ranked_;  // per worker
};

}  // namespace bonsai

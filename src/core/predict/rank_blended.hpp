// Ranking by one-vs-rest scores, blended with those of trees and of trees over rows, with an offset for each
// label.
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
// w being the blend weight and f that of the trees over rows. A label that is not among the best of the trees
// has 0 for exp(trees), and likewise for exp(row trees). Without an index all labels are scored: what is
// found is the k best of them. With one, the labels of the blocks that it finds, and of those that trees of
// either kind score. Ties go to the larger one-vs-rest margin, then to the smaller label.
class BlendedRanking : public Ranking {
  public:
    // How many labels the trees score: the same for every k, so that it does not change the order.
    static constexpr size_t kFromTrees = 32;
    static constexpr size_t kFromRowTrees = 100;

    // `trees` finds the n_from_trees best labels of the batch's rows; null if the blend weight is 0. `probed`
    // finds blocks of one-vs-rest classifiers; null: all are scored.
    BlendedRanking(const Model& model, const Batch& batch, const Scores& scores,
                   std::unique_ptr<Ranking> trees, size_t n_from_trees, size_t n_from_row_trees,
                   std::unique_ptr<ProbedBlocks> probed, size_t k, const Kernels& kernels, Pool& pool);

    size_t max_rows() const override;
    void run(const TopKOutput& out) override;

  private:
    // What trees add to the score of a label, which has the classifier at `position`: the logarithm of it,
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
    const float log_own_, log_trees_, log_row_trees_;  // logs of the shares of the scores
    Pool& pool_;
    std::unique_ptr<Ranking> trees_;
    const size_t n_from_trees_, n_from_row_trees_;
    std::unique_ptr<ProbedBlocks> probed_;
    std::vector<uint8_t> allowed_;  // of each label; empty: all
    std::vector<int32_t> ids_;      // of each row, best first
    std::vector<float> tree_scores_;
    std::vector<FromTrees> from_trees_;     // room for all of each row, by ascending position
    std::vector<uint32_t> from_trees_end_;  // of each row
    BlockLoop loop_;
    SharedTopK best_;
    std::vector<uint32_t> rows_;  // that have features
    std::vector<BlockRows> blocks_;
    std::vector<std::vector<RankedLabel>> ranked_;  // of each worker
};

}  // namespace bonsai

// Ranking by one-vs-rest scores, blended with those of trees, with an offset for each label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "model/model.hpp"
#include "predict/batch.hpp"
#include "predict/beam_search.hpp"
#include "predict/block_scoring.hpp"
#include "predict/leaf_labels.hpp"
#include "predict/ranking.hpp"

namespace bonsai {

// log score = log((1 - w) exp(one-vs-rest) + w exp(trees)) + the label's offset, w being the blend weight. A
// label that the beam search does not reach has 0 for exp(trees). All labels are scored: what is found is the
// k best of them. Ties go to the larger one-vs-rest margin, then to the smaller label.
class BlendedRanking : public Ranking {
  public:
    BlendedRanking(const Model& model, const Batch& batch, const Scores& scores, size_t beam_size, size_t k,
                   const Kernels& kernels, Pool& pool);

    size_t max_rows() const override;
    void run(const TopKOutput& out) override;

  private:
    // The score that the trees give to a label, which has the classifier at `position`.
    struct Reached {
        uint32_t position;
        float score;
    };
    struct Trees {
        Trees(const Forest& forest, const Batch& batch, const Scores& scores, size_t beam_size,
              const Kernels& kernels, Pool& pool)
            : search(forest, batch, scores, beam_size, kernels, pool),
              labels(forest, search, scores, kernels),
              workers(pool.threads()) {}
        BeamSearch search;
        LeafLabels labels;
        std::vector<std::unique_ptr<LeafLabels::Worker>> workers;
    };

    size_t begin_chunk(size_t begin);
    void score_by_trees(size_t begin, size_t end);
    void score_by_one_vs_rest(size_t begin, size_t end);
    void add_block(size_t slot, BlockScorer& scorer, size_t row, size_t from);
    double blended(float one_vs_rest, float trees) const;

    const Model& model_;
    const Forest& one_vs_rest_;
    const Batch& batch_;
    const Scores& scores_;
    const float log_own_, log_trees_;  // logs of the shares of the two scores
    Pool& pool_;
    std::optional<Trees> trees_;
    std::vector<std::vector<Reached>> reached_;  // of each row of a chunk, by ascending position
    BlockLoop loop_;
    SharedTopK best_;
    std::vector<uint32_t> rows_;  // of a chunk, that have features
    std::vector<BlockRows> blocks_;
    std::vector<std::vector<RankedLabel>> ranked_;  // of each worker
};

}  // namespace bonsai

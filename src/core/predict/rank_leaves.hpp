// Ranking by the classifiers in the leaves that a beam search reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/beam_search.hpp"
#include "predict/leaf_labels.hpp"
#include "predict/ranking.hpp"

namespace bonsai {

// With one tree a label has one score: each row keeps its best labels while the blocks of its leaves are
// scored one after another.
class OneTreeRanking : public Ranking {
  public:
    OneTreeRanking(const Forest& tree, const Batch& batch, const Scores& scores, size_t beam_size, size_t k,
                   const Kernels& kernels, Pool& pool)
        : tree_(tree),
          batch_(batch),
          pool_(pool),
          search_(tree, batch, scores, beam_size, kernels, pool),
          best_(scores, k, pool.threads()),
          ranked_(pool.threads()) {}

    size_t max_rows() const override { return search_.max_rows(); }
    void run(const TopKOutput& out) override;

  private:
    const Forest& tree_;
    const Batch& batch_;
    Pool& pool_;
    BeamSearch search_;
    SharedTopK best_;
    std::vector<std::vector<RankedLabel>> ranked_;  // of each worker
};

// With several trees, or one tree with a strict beam, labels are ranked by the mean of their scores. A leaf
// is scored only if it may hold one of the k best labels, or if it holds a label that is among the best by
// other trees.
class ForestRanking : public Ranking {
  public:
    ForestRanking(const Forest& trees, const Batch& batch, const Scores& scores, size_t beam_size, size_t k,
                  const Kernels& kernels, Pool& pool, bool strict_beam)
        : trees_(trees),
          batch_(batch),
          k_(k),
          strict_beam_(strict_beam),
          pool_(pool),
          search_(trees, batch, scores, beam_size, kernels, pool, strict_beam),
          labels_(trees, search_, scores, kernels),
          workers_(pool.threads()) {}

    size_t max_rows() const override { return search_.max_rows(); }
    void run(const TopKOutput& out) override;

  private:
    void begin_batch();
    size_t begin_chunk(size_t begin);
    void request_promising(size_t row);
    void learn_gap(size_t begin, size_t end);
    void list_requested();
    bool rank(LeafLabels::Worker& worker, size_t row, const TopKOutput& out);
    void write(LeafLabels::Worker& worker, size_t row, std::span<const LeafLabels::Occurrence> occurrences,
               const TopKOutput& out);

    const Forest& trees_;
    const Batch& batch_;
    const size_t k_;
    const bool strict_beam_;
    Pool& pool_;
    BeamSearch search_;
    LeafLabels labels_;
    std::vector<std::unique_ptr<LeafLabels::Worker>> workers_;
    float gap_ = 1;  // leaves within this log score of the row's best leaf are scored first
    bool learned_ = false;
    std::vector<float> gaps_;                                   // per row: the gap that would have sufficed
    std::vector<std::vector<LeafLabels::Occurrence>> waiting_;  // per row, while it waits for margins
    std::vector<size_t> n_margins_;                             // per row: floats for all its leaves
    std::vector<uint32_t> open_;                                // unranked rows of a chunk
    std::vector<Visit*> requested_;                             // visits of these rows
    std::vector<uint8_t> is_ranked_;                            // per row; bytes, as threads write them
};

}  // namespace bonsai

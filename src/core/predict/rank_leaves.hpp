// Ranking by the classifiers of the leaves that a beam search ends in.
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

// One tree: a label has one score, so each row keeps its best labels while blocks of the leaves are streamed.
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

// Several trees: the mean of their scores. Only those leaves are scored that may hold one of the k best
// labels, or hold one that other trees put there. With a strict beam, for one tree, too.
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
    float gap_ = 1;  // log score by which a leaf may be below the row's best one and is scored at once
    bool learned_ = false;
    std::vector<float> gaps_;                                   // of each row: what would have sufficed
    std::vector<std::vector<LeafLabels::Occurrence>> waiting_;  // of rows that wait for some margins
    std::vector<size_t> n_margins_;                             // of each row: floats, of all its leaves
    std::vector<uint32_t> open_;                                // rows of a chunk that are not ranked yet
    std::vector<Visit*> requested_;                             // of those rows
    std::vector<uint8_t> is_ranked_;                            // of each row; bytes: threads write them
};

}  // namespace bonsai

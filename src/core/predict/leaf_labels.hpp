// The labels in the leaves that a row reaches: selects those that may be among the best, and averages scores
// over trees.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "kernels/kernels.hpp"
#include "model/forest.hpp"
#include "predict/beam_search.hpp"
#include "predict/node_margins.hpp"
#include "predict/ranking.hpp"
#include "predict/scores.hpp"

namespace bonsai {

// The score of a label is the log of the mean over trees of exp(score); a tree whose visited leaves lack the
// label counts as 0.
class LeafLabels {
  public:
    // A label in a leaf that a row visits. While the margins of the leaf are unknown, the score is an upper
    // bound.
    struct Occurrence {
        uint32_t label;
        uint32_t visit;
        uint32_t child;
        float score;
    };
    // The score of a label in one tree.
    struct Vote {
        uint32_t label;
        float score;
        float margin;
        bool operator<(const Vote& other) const { return score > other.score; }
    };
    // Buffers of one thread.
    struct Worker {
        explicit Worker(size_t n_labels) : chosen(n_labels / 32), bound(new float[n_labels]) {}

        ZeroedArray<uint32_t> chosen;  // one bit per label, 0 between rows
        // Indexed by label. Only entries of labels that occur are ever set and read: with many labels,
        // clearing it would take a tenth of the time of a single row.
        std::unique_ptr<float[]> bound;
        std::vector<NodeMargins::BoundedBlock> blocks;
        TopK<Vote> best;
        std::vector<Vote> votes;
        std::vector<uint32_t> where;
        std::vector<Occurrence> occurrences, kept;
        std::vector<RankedLabel> ranked;
    };

    LeafLabels(const Forest& trees, BeamSearch& search, const Scores& scores, const Kernels& kernels)
        : trees_(trees), search_(search), scores_(scores), kernels_(kernels) {}

    // A lower bound of the k-th best score, computed from known margins; -infinity if fewer than k labels
    // have one.
    float kth_lower_bound(Worker& worker, std::span<const Visit> visits, size_t k) const;

    // Sets worker.occurrences to those of all labels whose score can reach `threshold`, and few others, by
    // tree. The margins of all visits with a score of at least `threshold` must be known.
    void find_reaching(Worker& worker, std::span<const Visit> visits, float threshold) const;

    // Sets worker.occurrences to those of the labels whose bits are set in worker.chosen; clears the bits.
    void find_chosen(Worker& worker, std::span<const Visit> visits) const;
    void choose(Worker& worker, uint32_t label) const {
        worker.chosen[label / 32] |= uint32_t{1} << (label % 32);
    }

    // Sets worker.ranked to the labels of the occurrences, by ascending label. All margins of the occurrences
    // must be known.
    void rank(Worker& worker, std::span<const Visit> visits, std::span<const Occurrence> occurrences) const;

  private:
    void choose_reaching(Worker& worker, std::span<const Visit> visits, float threshold) const;
    void drop_below(Worker& worker, float threshold) const;
    void average(Worker& worker) const;

    const Forest& trees_;
    BeamSearch& search_;
    const Scores& scores_;
    const Kernels& kernels_;
};

}  // namespace bonsai

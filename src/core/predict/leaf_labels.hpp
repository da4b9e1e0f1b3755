// The labels of the leaves that a row ends in: which of them can be among the best, and their scores averaged
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

// The score of a label is the mean over trees of exp(score), where a tree whose visited leaves lack the label
// counts 0; kept on the log scale.
class LeafLabels {
  public:
    // A label in a leaf that a row visits. Where the margins of the leaf are unknown, the score is an upper
    // bound.
    struct Occurrence {
        uint32_t label;
        uint32_t visit;
        uint32_t child;
        float score;
    };
    // What one tree says about a label.
    struct Vote {
        uint32_t label;
        float score;
        float margin;
        bool operator<(const Vote& other) const { return score > other.score; }
    };
    // Buffers of a thread.
    struct Worker {
        explicit Worker(size_t n_labels) : chosen(n_labels / 32), bound(new float[n_labels]) {}

        ZeroedArray<uint32_t> chosen;  // a bit for each label, 0 between rows
        // For each label, of which only those of the occurrences are ever set: clearing it would take a
        // tenth of the time of a single row where there are many labels.
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

    // A score that k labels reach, as far as known margins tell: a lower bound of the k-th best; -infinity if
    // there are fewer.
    float kth_lower_bound(Worker& worker, std::span<const Visit> visits, size_t k) const;

    // worker.occurrences = those of all labels whose score can reach `threshold`, and few others, by tree.
    // The margins of all visits that score at least `threshold` must be known.
    void find_reaching(Worker& worker, std::span<const Visit> visits, float threshold) const;

    // worker.occurrences = those of the labels whose bits are set in worker.chosen; clears the bits.
    void find_chosen(Worker& worker, std::span<const Visit> visits) const;
    void choose(Worker& worker, uint32_t label) const {
        worker.chosen[label / 32] |= uint32_t{1} << (label % 32);
    }

    // worker.ranked = the labels of the occurrences, all of whose margins are known, by ascending label.
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

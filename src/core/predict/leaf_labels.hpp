// The labels of the leaves that a row ends in: which of them can be among the best, and their scores averaged
// over trees.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
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
    // Sums of few labels: a hash table with linear probing. A number for each label of the model would have
    // to be set to 0 in every call, which takes longer than a single row where there are many labels.
    class Sums {
      public:
        // Forgets all sums, and makes room for those of n labels.
        void reset(size_t n) {
            size_t size = 16;
            for (shift_ = 28; size < 2 * n && shift_ > 0; --shift_) size *= 2;
            entries_.assign(size, {kNone, 0.0f});
        }
        float& operator[](uint32_t label) {
            size_t i = (label * 2654435769u) >> shift_;
            while (entries_[i].label != label && entries_[i].label != kNone)
                i = (i + 1) & (entries_.size() - 1);
            entries_[i].label = label;
            return entries_[i].sum;
        }

      private:
        static constexpr uint32_t kNone = ~uint32_t{0};  // labels are below 2^31
        struct Entry {
            uint32_t label;
            float sum;
        };
        std::vector<Entry> entries_;
        unsigned shift_ = 0;
    };
    // Buffers of a thread.
    struct Worker {
        explicit Worker(size_t n_labels) : chosen(n_labels / 32) {}

        ZeroedArray<uint32_t> chosen;  // a bit for each label, 0 between rows
        Sums bound;
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

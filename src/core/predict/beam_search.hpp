// Beam search: finds the leaves of each row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/node_margins.hpp"
#include "predict/scores.hpp"
#include "predict/select.hpp"

namespace bonsai {

// Searches all trees for all rows of a batch, level by level, so that each block of weights is unpacked once
// for all rows that need it.
class BeamSearch {
  public:
    // beam_size: nodes kept at each level of each tree; 0: all. `strict`: leaves count as kept nodes.
    BeamSearch(const Forest& forest, const Batch& batch, const Scores& scores, size_t beam_size,
               const Kernels& kernels, Pool& pool, bool strict = false);

    // Maximum rows of a batch, given the memory of their visits and margins.
    size_t max_rows() const;

    // Finds the leaves of all rows of the batch, but no margins of their labels. `after_level`, if given, is
    // called with the level of the visited nodes, including the roots.
    void run(const std::function<void(uint32_t)>& after_level = {});

    // The leaves that a row reaches, by tree. A row without features reaches none.
    std::span<Visit> visits(size_t row) {
        return {visits_.data() + visits_ptr_[row], visits_ptr_[row + 1] - visits_ptr_[row]};
    }
    std::span<Visit> visits(size_t begin, size_t end) {
        return {visits_.data() + visits_ptr_[begin], visits_ptr_[end] - visits_ptr_[begin]};
    }
    size_t beam_size() const { return beam_size_; }
    // After the search, margins of inner nodes are discarded; rankings use this object for the margins of
    // leaves.
    NodeMargins& margins() { return margins_; }

    // Calls fn(first node of the tree, its visits) for each tree that a row visits.
    template <class SomeVisit, class Fn>
    void for_each_tree(std::span<SomeVisit> visits, Fn&& fn) const {
        const auto& tree_ptr = forest_.arrays().tree_ptr;
        for (size_t t = 0, n; !visits.empty(); visits = visits.subspan(n), ++t) {
            while (visits[0].node >= static_cast<size_t>(tree_ptr[t + 1])) ++t;
            for (n = 1; n < visits.size() && visits[n].node < static_cast<size_t>(tree_ptr[t + 1]);) ++n;
            fn(static_cast<size_t>(tree_ptr[t]), visits.first(n));
        }
    }

  private:
    // A candidate for the next level.
    struct Candidate {
        size_t node;
        float score;
        float margin;                                   // without the path
        bool operator<(const Candidate& other) const {  // better first
            if (score != other.score) return score > other.score;
            if (margin != other.margin) return margin > other.margin;
            return node < other.node;
        }
    };
    struct Worker {
        std::vector<NodeMargins::BoundedBlock> blocks;
        TopK<Candidate> best;
        bool found_inner = false;  // this level has a node that is not a leaf
    };

    Visit visit(size_t node, size_t row, float score) const;
    void expand(Worker& worker, size_t row);

    const Forest& forest_;
    const Batch& batch_;
    const Scores& scores_;
    const size_t beam_size_;
    const bool strict_;
    Pool& pool_;
    NodeMargins margins_;
    std::vector<Worker> workers_;
    UninitialisedVector<Visit> visits_;  // row by row, then by tree
    std::vector<size_t> visits_ptr_;
    std::vector<std::vector<Visit>> next_;  // per row
};

}  // namespace bonsai

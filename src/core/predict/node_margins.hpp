// The margins of children at the nodes that rows visit: computed on request, kept for as long as a ranking
// needs them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/groups.hpp"
#include "base/memory.hpp"
#include "model/forest.hpp"
#include "predict/block_scoring.hpp"
#include "predict/scores.hpp"
#include "predict/select.hpp"

namespace bonsai {

// Maximum bytes of margins in memory, over all rows of a batch.
inline constexpr size_t kMarginBytes = 192 << 20;
// The same for visits, below.
inline constexpr size_t kVisitBytes = 48 << 20;

// A row at a node of a tree.
struct Visit {
    enum class Margins : uint8_t { unknown, requested, known };

    uint32_t node;
    uint32_t row;
    float score;  // sum of the log scores along the path
    Margins state;
    size_t first_margin;  // start of the margins of the node's children, once computed

    bool known() const { return state == Margins::known; }
    void request() {
        if (state == Margins::unknown) state = Margins::requested;
    }
};

class NodeMargins {
  public:
    NodeMargins(const Forest& forest, const Batch& batch, const Kernels& kernels, Pool& pool)
        : forest_(forest),
          pool_(pool),
          loop_(batch, kernels, pool),
          by_node_(forest.arrays().is_leaf.size(), pool),
          place_(forest.arrays().is_leaf.size()) {}

    // The number of floats that the margins of a visit take.
    size_t width(const Visit& visit) const { return padded_lanes(forest_.n_children(visit.node)); }
    // Discards all margins and makes room for this many floats.
    void reset(size_t n_floats);
    // Computes the margins of the visits among visit(0) … visit(n - 1) that request them; returns whether any
    // does. There must be room for the margins.
    template <class VisitAt>
    bool compute(size_t n, VisitAt&& visit) {
        count_requests(n, visit);
        place_nodes();
        return compute_counted(visit);
    }
    // The same, but discards all margins and makes room first.
    bool compute_anew(std::span<Visit> visits);
    // Among the children of visits with known margins, excludes all but those with the n largest margins;
    // ties go to the first.
    void keep_largest(std::span<const Visit> visits, size_t n);
    // Calls fn(scorer of the block, block, row, score of the path) for each block of each visit instead of
    // keeping margins. Skips blocks whose children are all excluded.
    template <class Fn>
    void stream(std::span<const Visit> visits, Fn&& fn) {
        by_node_.count(visits.size(), [&](size_t v) { return visits[v].node; });
        rows_.resize(visits.size());
        scores_.resize(visits.size());
        by_node_.for_each([&](size_t v, uint32_t, size_t position) {
            rows_[position] = visits[v].row;
            scores_[position] = visits[v].score;
        });
        list_blocks();
        std::erase_if(blocks_, [&](const BlockRows& b) { return !forest_.has_allowed(b.node, b.from); });
        loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t i) {
            fn(scorer, block, row, scores_[i]);
        });
    }

    // The margins of a visit; they must be known.
    float margin(const Visit& visit, size_t child) const { return margins_[visit.first_margin + child]; }
    // The margins of the children in one block.
    std::span<const float> block_margins(const Visit& visit, size_t from) const {
        return {&margins_[visit.first_margin + from],
                std::min(kBlockChildren, forest_.n_children(visit.node) - from)};
    }
    // Calls fn(from, largest margin) for each block.
    template <class Fn>
    void for_each_block(const Visit& visit, Fn&& fn) const {
        for (size_t from = 0; from < forest_.n_children(visit.node); from += kBlockChildren)
            fn(from, largest_[(visit.first_margin + from) / kLaneStep]);
    }

    // Prefetches the margins of these visits, whose children are added next. Most of them were written by
    // other threads, and loading them from there is slow.
    void prefetch(std::span<const Visit> visits) const {
        constexpr size_t few = 4;  // as at the roots: all margins are read
        for (const Visit& visit : visits) {
            if (!visit.known()) continue;
            __builtin_prefetch(&largest_[visit.first_margin / kLaneStep]);
            if (visits.size() <= few) prefetch_margins({&margins_[visit.first_margin], width(visit)});
        }
    }

    // A block whose margins are known, and an upper bound of its children's scores.
    struct BoundedBlock {
        float bound;
        uint32_t visit;
        uint32_t from;
    };
    // Adds the children of visits whose margins are known to the best, as make(child, score, margin). Blocks
    // with the largest bounds come first, so that most other blocks need not be scored. `blocks` is a buffer.
    template <class Item, class Make>
    void add_children(std::span<const Visit> visits, const Scores& scores, std::vector<BoundedBlock>& blocks,
                      TopK<Item>& best, Make&& make) const {
        blocks.clear();
        for (uint32_t v = 0; v < visits.size(); ++v)
            if (visits[v].known())
                for_each_block(visits[v], [&](size_t from, float largest) {
                    blocks.push_back(
                        {scores.upper_bound(visits[v].score, largest), v, static_cast<uint32_t>(from)});
                });
        std::sort(blocks.begin(), blocks.end(),
                  [](const BoundedBlock& a, const BoundedBlock& b) { return a.bound > b.bound; });
        constexpr size_t ahead = 2;
        const auto margins_of = [&](const BoundedBlock& block) {
            return block_margins(visits[block.visit], block.from);
        };
        for (size_t b = 0; b < std::min(ahead, blocks.size()); ++b) prefetch_margins(margins_of(blocks[b]));
        for (size_t b = 0; b < blocks.size() && blocks[b].bound >= best.threshold(); ++b) {
            if (b + ahead < blocks.size()) prefetch_margins(margins_of(blocks[b + ahead]));
            const BoundedBlock& block = blocks[b];
            const Visit& visit = visits[block.visit];
            const auto margin = margins_of(block);
            const auto child = forest_.children(visit.node).subspan(block.from);
            best.add_block(scores, visit.score, margin,
                           [&](size_t c, float score) { return make(child[c], score, margin[c]); });
        }
    }

  private:
    // The place of the margins of a node's visits: those of position p begin at first + p * width. They are
    // contiguous, so that threads, each working on one node, do not write to the same cache lines.
    struct NodePlace {
        size_t first;  // modulo 2^64
        size_t width;
        size_t of(size_t position) const { return first + position * width; }
    };

    static void prefetch_margins(std::span<const float> margins) {
        for (size_t c = 0; c < margins.size(); c += kLaneStep) __builtin_prefetch(&margins[c]);
    }

    template <class VisitAt>
    void count_requests(size_t n, VisitAt&& visit) {
        by_node_.count(n, [&](size_t i) {
            const Visit& v = visit(i);
            return v.state == Visit::Margins::requested ? v.node : Groups::kNone;
        });
    }
    void place_nodes();
    template <class VisitAt>
    bool compute_counted(VisitAt&& visit) {
        rows_.resize(by_node_.n_placed());
        by_node_.for_each([&](size_t i, uint32_t node, size_t position) {
            Visit& v = visit(i);
            v.state = Visit::Margins::known;
            v.first_margin = place_[node].of(position);
            rows_[position] = v.row;
        });
        list_blocks();
        compute_blocks();
        return !rows_.empty();
    }
    void list_blocks();
    void compute_blocks();
    void make_room(size_t n_floats);

    const Forest& forest_;
    Pool& pool_;
    BlockLoop loop_;
    Groups by_node_;
    UninitialisedVector<uint32_t> rows_;    // of the grouped visits, by position
    UninitialisedVector<float> scores_;     // likewise
    UninitialisedVector<NodePlace> place_;  // per grouped node
    std::vector<BlockRows> blocks_;
    size_t n_used_ = 0;
    Buffer<float> margins_;  // the margins of a block begin at a multiple of 16
    Buffer<float> largest_;  // largest_[i]: maximum of the block at 16 i
};

}  // namespace bonsai

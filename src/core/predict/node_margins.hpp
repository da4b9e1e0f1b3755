// Margins of the children of nodes that rows visit: computed where they are requested, kept for as long as a
// ranking needs them.
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

// Bytes of margins that are kept at once, for all rows of a batch together.
inline constexpr size_t kMarginBytes = 192 << 20;

// A row at a node of a tree.
struct Visit {
    enum class Margins : uint8_t { unknown, requested, known };

    uint32_t node;
    uint32_t row;
    float score;  // sum of the log scores along the path
    Margins state;
    size_t first_margin;  // once they are known: where the margins of the node's children begin

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
          by_node_(forest.arrays().is_leaf.size(), pool) {}

    // Floats that the margins of a visit take.
    size_t width(const Visit& visit) const { return padded_lanes(forest_.n_children(visit.node)); }
    // Discards all margins, and makes room for this many floats.
    void reset(size_t n_floats);
    // Computes the margins of those visits that request them; returns whether any does. There must be room
    // for them.
    bool compute(std::span<Visit> visits);
    // The same, after discarding all margins and making room.
    bool compute_anew(std::span<Visit> visits);
    // Excludes all children but those with the n largest margins, for each visit that the last call of
    // `compute` was for; of equal ones the first are kept.
    void keep_largest(std::span<const Visit> visits, size_t n);
    // fn(scorer of the block, block, row, score of the path) for each block of each visit, instead of keeping
    // the margins; not for blocks whose children are all excluded.
    template <class Fn>
    void stream(std::span<const Visit> visits, Fn&& fn) {
        chosen_.resize(visits.size());
        std::iota(chosen_.begin(), chosen_.end(), 0u);
        group(visits);
        std::erase_if(blocks_, [&](const BlockRows& b) { return !forest_.has_allowed(b.node, b.from); });
        loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t i) {
            fn(scorer, block, row, visits[chosen_[by_node_.item(i)]].score);
        });
    }

    // Of visits whose margins are known.
    float margin(const Visit& visit, size_t child) const { return margins_[visit.first_margin + child]; }
    // Of the children of one block.
    std::span<const float> block_margins(const Visit& visit, size_t from) const {
        return {&margins_[visit.first_margin + from],
                std::min(kBlockChildren, forest_.n_children(visit.node) - from)};
    }
    // fn(from, largest margin) for each block.
    template <class Fn>
    void for_each_block(const Visit& visit, Fn&& fn) const {
        for (size_t from = 0; from < forest_.n_children(visit.node); from += kBlockChildren)
            fn(from, largest_[(visit.first_margin + from) / kLaneStep]);
    }

    // A block whose margins are known, and an upper bound of its children's scores.
    struct BoundedBlock {
        float bound;
        uint32_t visit;
        uint32_t from;
    };
    // Adds the children of visits whose margins are known to the best, as make(child, score, margin). Blocks
    // with the largest bounds come first, so that most of the others need not be scored. `blocks` is a
    // buffer.
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
        for (const BoundedBlock& block : blocks) {
            if (block.bound < best.threshold()) break;
            const Visit& visit = visits[block.visit];
            const auto margin = block_margins(visit, block.from);
            const auto child = forest_.children(visit.node).subspan(block.from);
            best.add_block(scores, visit.score, margin,
                           [&](size_t c, float score) { return make(child[c], score, margin[c]); });
        }
    }

  private:
    // What the visits of a slice request.
    struct Requests {
        size_t n = 0;
        size_t n_floats = 0;
        Requests& operator+=(const Requests& other) {
            n += other.n;
            n_floats += other.n_floats;
            return *this;
        }
    };

    bool compute_requested(std::span<Visit> visits, bool anew);
    Requests count_requests(std::span<const Visit> visits) const;
    Requests take_requests(std::span<Visit> visits, size_t begin, size_t end, Requests at);
    void group(std::span<const Visit> visits);

    const Forest& forest_;
    Pool& pool_;
    BlockLoop loop_;
    std::vector<Requests> requests_;        // of each slice
    UninitialisedVector<uint32_t> chosen_;  // visits whose margins are computed now
    Groups by_node_;                        // of the chosen
    UninitialisedVector<uint32_t> rows_;    // of the chosen, in the order of their groups
    UninitialisedVector<size_t> firsts_;    // first_margin, likewise
    std::vector<BlockRows> blocks_;
    size_t n_used_ = 0;
    Buffer<float> margins_;  // a block's begin at a multiple of 16
    Buffer<float> largest_;  // of each block: that of the block at 16 i is the i-th
};

}  // namespace bonsai

// Beam search: which leaves rows end in, and the margins of what stands there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/groups.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "model/forest.hpp"
#include "predict/block_scoring.hpp"
#include "predict/select.hpp"

namespace bonsai {

// Room for the margins of many rows.
inline constexpr size_t kMarginBytes = 192 << 20;

// A row at a node.
struct Visit {
    static constexpr size_t kUnknown = ~size_t{0}, kWanted = kUnknown - 1;
    size_t node;
    size_t first;  // where the margins of the node's children begin, or one of the above
    uint32_t row;
    float score;  // sum of the log scores along the path

    bool known() const { return first < kWanted; }
};

// fn(row, worker) for rows that lists or ranges hold, by all threads.
template <class Rows, class Fn>
void for_each_row(Pool& pool, const Rows& rows, Fn&& fn) {
    constexpr size_t together = 32;
    const auto n = static_cast<size_t>(rows.size());
    pool.run((n + together - 1) / together, [&](size_t task, unsigned worker) {
        for (size_t i = task * together; i < std::min(n, (task + 1) * together); ++i) fn(rows[i], worker);
    });
}

// Of many rows at once, node by node: each block of weights is read and unpacked once for all rows that need
// it.
class Search {
  public:
    // beam: nodes that are kept at each level, in each tree; 0: all.
    Search(const Forest& forest, const Scores& scores, size_t beam, const Kernels& kernels, Pool& pool);

    // Reads the rows of x from `begin` on, as many as there is room for; returns where they end.
    size_t read(const RowsView& x, size_t begin, bool normalize);
    const Batch& batch() const { return batch_; }

    // The leaves that each row ends in, by tree; nothing is known about their labels yet.
    void find_leaves();
    std::span<const Visit> visits(size_t row) const {
        return {visits_.data() + visits_ptr_[row], visits_ptr_[row + 1] - visits_ptr_[row]};
    }
    std::span<Visit> visits(size_t row) {
        return {visits_.data() + visits_ptr_[row], visits_ptr_[row + 1] - visits_ptr_[row]};
    }

    // Makes room for the margins of as many rows as it can, from `begin` on, up to `most`; returns where they
    // end. Nothing is known about them then.
    size_t make_room(size_t begin, size_t most);
    // Finds the margins of all rows from `begin` to `end` where they are wanted, and whether there are any.
    bool find_margins(size_t begin, size_t end);

    // fn(from, largest margin) for each block of a node whose margins are known.
    template <class Fn>
    void for_each_block(const Visit& visit, Fn&& fn) const {
        for (size_t from = 0; from < forest_.n_children(visit.node); from += kBlockChildren)
            fn(from, largest_[(visit.first + from) / kLaneStep]);
    }
    float margin(const Visit& visit, size_t child) const { return margins_[visit.first + child]; }
    // Of a block's children.
    std::span<const float> margins(const Visit& visit, size_t from) const {
        return {&margins_[visit.first + from],
                std::min(kBlockChildren, forest_.n_children(visit.node) - from)};
    }
    std::span<const int32_t> children(size_t node) const {
        return forest_.arrays().children.subspan(static_cast<size_t>(forest_.arrays().child_ptr[node]),
                                                 forest_.n_children(node));
    }
    // fn(root of the tree, visits in it) for each tree in which a row is somewhere.
    template <class SomeVisit, class Fn>
    void for_each_tree(std::span<SomeVisit> visits, Fn&& fn) const {
        const auto& tree_ptr = forest_.arrays().tree_ptr;
        for (size_t t = 0, n; !visits.empty(); visits = visits.subspan(n), ++t) {
            while (visits[0].node >= static_cast<size_t>(tree_ptr[t + 1])) ++t;
            for (n = 1; n < visits.size() && visits[n].node < static_cast<size_t>(tree_ptr[t + 1]);) ++n;
            fn(static_cast<size_t>(tree_ptr[t]), visits.first(n));
        }
    }

    // A block whose margins are known, and a score that none of its children surpasses.
    struct Bounded {
        float highest;
        uint32_t visit;
        uint32_t from;
    };
    // Offers the children of nodes whose margins are known, as make(child, score, margin), the most promising
    // blocks first, so that most others need no look. `blocks` is a buffer.
    template <class Item, class Make>
    void offer_children(std::span<const Visit> visits, std::vector<Bounded>& blocks, Best<Item>& best,
                        Make&& make) const {
        blocks.clear();
        for (uint32_t v = 0; v < visits.size(); ++v)
            if (visits[v].known())
                for_each_block(visits[v], [&](size_t from, float largest) {
                    blocks.push_back(
                        {scores_.at_most(visits[v].score, largest), v, static_cast<uint32_t>(from)});
                });
        std::sort(blocks.begin(), blocks.end(),
                  [](const Bounded& a, const Bounded& b) { return a.highest > b.highest; });
        for (const Bounded& block : blocks) {
            if (block.highest < best.bar()) break;
            const Visit& visit = visits[block.visit];
            const auto margin = margins(visit, block.from);
            const auto child = children(visit.node).subspan(block.from);
            best.offer(scores_, visit.score, margin,
                       [&](size_t c, float score) { return make(child[c], score, margin[c]); });
        }
    }

    // fn(scorer, block, row, score of the path) for each block of the leaves that rows from `begin` to `end`
    // are at; the scorer tells its margins.
    template <class Fn>
    void for_each_leaf_block(size_t begin, size_t end, Fn&& fn) {
        chosen_.clear();
        for (size_t v = visits_ptr_[begin]; v < visits_ptr_[end]; ++v)
            chosen_.push_back(static_cast<uint32_t>(v));
        group_chosen();
        loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t i) {
            fn(scorer, block, row, visits_[chosen_[by_node_.item(i)]].score);
        });
    }
    BlockLoop& loop() { return loop_; }

  private:
    // A node that a row may go to.
    struct Candidate {
        size_t node;
        float score;
        float margin;                                   // its own
        bool operator<(const Candidate& other) const {  // better first
            if (score != other.score) return score > other.score;
            if (margin != other.margin) return margin > other.margin;
            return node < other.node;
        }
    };
    // What a thread has for itself.
    struct Worker {
        std::vector<Bounded> blocks;
        Best<Candidate> best;
    };

    size_t width(size_t node) const { return padded_lanes(forest_.n_children(node)); }
    Visit arrive(size_t node, size_t row, float score) const {
        return {node, forest_.arrays().is_leaf[node] ? Visit::kUnknown : Visit::kWanted,
                static_cast<uint32_t>(row), score};
    }
    void make_room_for(size_t n_margins);
    void group_chosen();
    void go_on(Worker& mine, size_t row);

    const Forest& forest_;
    const Scores& scores_;
    const size_t beam_;
    Pool& pool_;
    Batch batch_;
    BlockLoop loop_;
    std::vector<Worker> workers_;
    std::vector<Visit> visits_;  // row by row, then by tree
    std::vector<size_t> visits_ptr_;
    std::vector<std::vector<Visit>> next_;  // of each row
    std::vector<uint32_t> chosen_;          // visits whose margins are looked for
    Groups by_node_;                        // of the chosen
    std::vector<uint32_t> rows_;            // of the chosen, as they are grouped
    std::vector<size_t> firsts_;            // likewise
    std::vector<BlockRows> blocks_;
    size_t n_margins_ = 0;
    FloatBuffer margins_;  // each block's begin at a multiple of 16
    FloatBuffer largest_;  // of each block's margins; the n-th is that of those from 16 n on
};

}  // namespace bonsai

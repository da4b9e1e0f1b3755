#include "predict/beam_search.hpp"

#include <algorithm>
#include <limits>
#include <ranges>

namespace bonsai {
namespace {

// Rows that are searched together: the more they are, the more share a block. Bounds of what they need:
constexpr size_t kBatchRows = 8192;
constexpr size_t kBatchValues = 2 << 20;
constexpr size_t kVisitBytes = 48 << 20;

}  // namespace

Search::Search(const Forest& forest, const Scores& scores, size_t beam, const Kernels& kernels, Pool& pool)
    : forest_(forest),
      scores_(scores),
      beam_(beam == 0 ? std::numeric_limits<size_t>::max() : beam),
      pool_(pool),
      loop_(batch_, kernels, pool),
      workers_(pool.threads()),
      by_node_(forest.arrays().is_leaf.size()) {}

size_t Search::read(const RowsView& x, size_t begin, bool normalize) {
    const auto& tree_ptr = forest_.arrays().tree_ptr;
    size_t nodes = 0;  // that a row may be at, at once
    for (size_t t = 0; t < forest_.n_trees(); ++t)
        nodes += std::min(beam_, static_cast<size_t>(tree_ptr[t + 1] - tree_ptr[t]));
    const size_t most =
        std::clamp<size_t>(std::min(kVisitBytes / (2 * sizeof(Visit) * nodes),
                                    kMarginBytes / (sizeof(float) * (forest_.most_choices(beam_) + 1))),
                           1, kBatchRows);
    size_t end = begin, values = 0;
    while (end < x.n_rows && end - begin < most && (values < kBatchValues || end == begin)) {
        values += x.dense ? x.n_features : static_cast<size_t>(x.ptr[end + 1] - x.ptr[end]);
        ++end;
    }
    batch_.read(x, begin, end, normalize, pool_);
    return end;
}

// Level by level, in all trees at once.
void Search::find_leaves() {
    const size_t n_rows = batch_.size();
    visits_.clear();
    visits_ptr_.assign(1, 0);
    for (size_t row = 0; row < n_rows; ++row) {
        if (batch_.row_size(row) > 0)
            for (size_t t = 0; t < forest_.n_trees(); ++t)
                visits_.push_back(arrive(static_cast<size_t>(forest_.arrays().tree_ptr[t]), row, 0));
        visits_ptr_.push_back(visits_.size());
    }
    next_.resize(n_rows);
    while (true) {
        size_t n = 0;
        for (const Visit& v : visits_) n += v.first == Visit::kWanted ? width(v.node) : 0;
        make_room_for(n);
        if (!find_margins(0, n_rows)) return;
        for_each_row(pool_, std::views::iota(size_t{0}, n_rows),
                     [&](size_t row, unsigned worker) { go_on(workers_[worker], row); });
        visits_.clear();
        for (size_t row = 0; row < n_rows; ++row) {
            visits_.insert(visits_.end(), next_[row].begin(), next_[row].end());
            visits_ptr_[row + 1] = visits_.size();
        }
    }
}

// From nodes to the best of their children; leaves stay.
void Search::go_on(Worker& mine, size_t row) {
    std::vector<Visit>& next = next_[row];
    next.clear();
    for_each_tree(visits(row), [&](size_t root, std::span<const Visit> visits) {
        mine.best.clear(beam_);
        offer_children(visits, mine.blocks, mine.best, [&](int32_t child, float score, float margin) {
            return Candidate{root + static_cast<size_t>(child), score, margin};
        });
        for (const Visit& v : visits)
            if (!v.known()) next.push_back(v);
        for (const Candidate& c : mine.best.items()) next.push_back(arrive(c.node, row, c.score));
    });
}

size_t Search::make_room(size_t begin, size_t most) {
    size_t end = begin, n = 0;
    for (; end < batch_.size() && end - begin < most; ++end) {
        size_t more = 0;
        for (const Visit& v : visits(end)) more += width(v.node);
        if (end > begin && (n + more) * sizeof(float) > kMarginBytes) break;
        n += more;
    }
    make_room_for(n);
    return end;
}

void Search::make_room_for(size_t n_margins) {
    margins_.ensure_size(n_margins);
    largest_.ensure_size(n_margins / kLaneStep);
    n_margins_ = 0;
}

bool Search::find_margins(size_t begin, size_t end) {
    chosen_.clear();
    for (size_t v = visits_ptr_[begin]; v < visits_ptr_[end]; ++v) {
        if (visits_[v].first != Visit::kWanted) continue;
        visits_[v].first = n_margins_;
        n_margins_ += width(visits_[v].node);
        chosen_.push_back(static_cast<uint32_t>(v));
    }
    group_chosen();
    loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t i) {
        const size_t at = firsts_[i] + block.from;
        largest_[at / kLaneStep] = scorer.margins(row, &margins_[at]);
    });
    return !chosen_.empty();
}

void Search::group_chosen() {
    by_node_.group(chosen_.size(), [&](size_t i) { return visits_[chosen_[i]].node; });
    // Once for all blocks of a node: visits are far apart in memory.
    rows_.resize(chosen_.size());
    firsts_.resize(chosen_.size());
    for (size_t i = 0; i < chosen_.size(); ++i) {
        const Visit& visit = visits_[chosen_[by_node_.item(i)]];
        rows_[i] = visit.row;
        firsts_[i] = visit.first;
    }
    blocks_.clear();
    for (size_t g = 0; g < by_node_.size(); ++g)
        for (size_t from = 0; from < forest_.n_children(by_node_.key(g)); from += kBlockChildren)
            blocks_.push_back({by_node_.key(g), from, by_node_.begin(g), by_node_.part(g, rows_)});
}

}  // namespace bonsai

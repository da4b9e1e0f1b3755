#include "predict/rank_blended.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bonsai {
namespace {

// log(exp(a) + exp(b))
double log_sum(double a, double b) {
    return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

// One byte per label; empty if none is excluded.
std::vector<uint8_t> allowed_labels(const Forest& one_vs_rest) {
    if (!one_vs_rest.is_restricted()) return {};
    std::vector<uint8_t> allowed(one_vs_rest.n_labels());
    for (uint32_t label = 0; label < allowed.size(); ++label)
        if (const uint32_t position = one_vs_rest.position(label); position != kAbsent)
            allowed[label] = one_vs_rest.allowed()[position];
    return allowed;
}

}  // namespace

BlendedRanking::BlendedRanking(const Model& model, const Batch& batch, const Scores& scores,
                               std::unique_ptr<Ranking> trees, size_t n_from_trees, size_t n_from_row_trees,
                               std::unique_ptr<ProbedBlocks> probed, size_t k, const Kernels& kernels,
                               Pool& pool)
    : model_(model),
      one_vs_rest_(*model.one_vs_rest()),
      batch_(batch),
      scores_(scores),
      log_own_(std::log1p(-model.blend_weight()) + std::log1p(-model.row_tree_weight())),
      log_trees_(std::log(model.blend_weight()) + std::log1p(-model.row_tree_weight())),
      log_row_trees_(std::log(model.row_tree_weight())),
      pool_(pool),
      trees_(std::move(trees)),
      n_from_trees_(trees_ ? n_from_trees : 0),
      n_from_row_trees_(model.row_trees() ? n_from_row_trees : 0),
      probed_(std::move(probed)),
      allowed_(model.row_trees() ? allowed_labels(one_vs_rest_) : std::vector<uint8_t>()),
      loop_(batch, kernels, pool),
      best_(scores, k, pool.threads()),
      ranked_(pool.threads()) {}

size_t BlendedRanking::max_rows() const {
    const size_t n_from_trees = n_from_trees_ + n_from_row_trees_;
    size_t rows = best_.max_rows(one_vs_rest_.n_labels());
    if (probed_) rows = std::min(rows, probed_->max_rows(n_from_trees));
    if (trees_) rows = std::min(rows, trees_->max_rows());
    if (n_from_trees == 0) return rows;
    const size_t bytes = n_from_trees * (sizeof(int32_t) + sizeof(float) + sizeof(FromTrees));
    return std::min(rows, std::max<size_t>(1, kMarginBytes / bytes));
}

void BlendedRanking::run(const TopKOutput& out) {
    best_.reset(batch_.size());
    if (trees_ || model_.row_trees()) score_by_trees();
    score_by_one_vs_rest();
    for_each_row(pool_, 0, batch_.size(), [&](size_t row, unsigned worker) {
        const auto best = best_.labels(row);
        ranked_[worker].assign(best.begin(), best.end());
        out.write(row, ranked_[worker]);
    });
}

void BlendedRanking::score_by_trees() {
    const size_t n_rows = batch_.size(), n = n_from_trees_ + n_from_row_trees_;
    from_trees_.resize(n_rows * n);
    from_trees_end_.assign(n_rows, 0);
    const auto add = [&](size_t k, float log_weight, auto&& rank) {
        if (k == 0) return;
        ids_.resize(n_rows * k);
        tree_scores_.resize(n_rows * k);
        rank(TopKOutput{k, ids_.data(), tree_scores_.data()});
        for_each_row(pool_, 0, n_rows, [&](size_t row, unsigned) {
            add_ranked(row, {ids_.data() + row * k, k}, {tree_scores_.data() + row * k, k}, log_weight);
        });
    };
    add(n_from_trees_, log_trees_, [&](const TopKOutput& out) { trees_->run(out); });
    add(n_from_row_trees_, log_row_trees_, [&](const TopKOutput& out) {
        const size_t begin = batch_.begin();
        model_.row_trees()->rank(batch_.source(), begin, begin + n_rows, out, allowed_, pool_);
    });
}

// Adds the scores of one kind of trees for a row. A label that the other kind has scored as well gets the
// sum.
void BlendedRanking::add_ranked(size_t row, std::span<const int32_t> ids, std::span<const float> scores,
                                float log_weight) {
    FromTrees* const begin = from_trees_.data() + row * (n_from_trees_ + n_from_row_trees_);
    FromTrees *const known = begin + from_trees_end_[row], *end = known;
    for (size_t i = 0; i < ids.size() && ids[i] >= 0; ++i)
        if (const uint32_t position = one_vs_rest_.position(static_cast<uint32_t>(ids[i]));
            position != kAbsent)
            *end++ = {position, double{log_weight} + scores[i]};
    const auto before = [](const FromTrees& a, const FromTrees& b) { return a.position < b.position; };
    std::sort(known, end, before);
    if (known != begin) {
        std::inplace_merge(begin, known, end, before);
        FromTrees* last = begin;
        for (const FromTrees* next = begin + 1; next < end; ++next) {
            if (next->position == last->position)
                last->log_part = log_sum(last->log_part, next->log_part);
            else
                *++last = *next;
        }
        end = last + 1;
    }
    from_trees_end_[row] = static_cast<uint32_t>(end - begin);
}

void BlendedRanking::score_by_one_vs_rest() {
    loop_.run(one_vs_rest_, blocks(), [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t) {
        add_block(scorer, row, block.from);
    });
}

// The blocks that the index finds and the blocks of labels that trees score; without an index, all blocks.
std::vector<BlockRows>& BlendedRanking::blocks() {
    if (probed_)
        return probed_->find([&](size_t row, auto&& add) {
            for (const FromTrees& label : of_block(row, 0, one_vs_rest_.children(0).size()))
                add(label.position / static_cast<uint32_t>(kBlockChildren));
        });
    rows_.clear();
    for (size_t row = 0; row < batch_.size(); ++row)
        if (batch_.row(row).n > 0) rows_.push_back(static_cast<uint32_t>(row));
    blocks_.clear();
    const size_t n_labels = one_vs_rest_.children(0).size();
    for (size_t from = 0; !rows_.empty() && from < n_labels; from += kBlockChildren)
        if (one_vs_rest_.has_allowed(0, from)) blocks_.push_back({0, from, 0, rows_});
    return blocks_;
}

// Labels that the trees score are few and handled one by one. Offsets are not positive: the score of any
// other label is at most the score of its margin.
void BlendedRanking::add_block(BlockScorer& scorer, size_t row, size_t from) {
    alignas(64) float margin[kBlockChildren];
    const float largest = scorer.margins(row, margin);
    const auto labels = one_vs_rest_.children(0).subspan(from, scorer.n_children());
    const std::span<const float> offsets = model_.label_offsets();
    const auto item = [&](size_t c, double score) {
        const auto label = static_cast<uint32_t>(labels[c]);
        return RankedLabel{score + (offsets.empty() ? 0.0f : offsets[label]), margin[c], label};
    };
    std::span<const FromTrees> in_block = of_block(row, from, from + labels.size());
    const bool near = scores_.upper_bound(log_own_, largest) >= best_.threshold(row);
    if (!near && in_block.empty()) return;
    best_.update(row, [&](TopK<RankedLabel>& best) {
        bool done[kBlockChildren] = {};
        for (const FromTrees& label : in_block) {
            const size_t c = label.position - from;
            done[c] = true;
            const double own = double{log_own_} + scores_.of(0, margin[c]);
            best.add(item(c, log_sum(own, label.log_part)));
        }
        if (!near) return;
        const float threshold = best.threshold();
        const float lowest = threshold == kLowest ? kLowest : scores_.lowest_margin(log_own_, threshold);
        scores_.for_each_at_least(log_own_, {margin, labels.size()}, lowest, [&](size_t c, float score) {
            if (!done[c]) best.add(item(c, score));
        });
    });
}

// The scores by trees of a row's labels at positions [begin, end).
std::span<const BlendedRanking::FromTrees> BlendedRanking::of_block(size_t row, size_t begin,
                                                                    size_t end) const {
    if (from_trees_end_.empty()) return {};
    const size_t room = n_from_trees_ + n_from_row_trees_;
    const std::span all(from_trees_.data() + row * room, from_trees_end_[row]);
    const auto before = [](const FromTrees& label, size_t position) { return label.position < position; };
    const auto first = std::lower_bound(all.begin(), all.end(), begin, before);
    return {first, std::lower_bound(first, all.end(), end, before)};
}

}  // namespace bonsai

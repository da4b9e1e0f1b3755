#include "predict/rank_blended.hpp"

#include <algorithm>
#include <cmath>

namespace bonsai {

BlendedRanking::BlendedRanking(const Model& model, const Batch& batch, const Scores& scores, size_t beam_size,
                               size_t k, const Kernels& kernels, Pool& pool)
    : model_(model),
      one_vs_rest_(*model.one_vs_rest()),
      batch_(batch),
      scores_(scores),
      log_own_(std::log1p(-model.blend_weight())),
      log_trees_(std::log(model.blend_weight())),
      pool_(pool),
      loop_(batch, kernels, pool),
      best_(scores, k, pool.threads()),
      ranked_(pool.threads()) {
    if (model.blend_weight() > 0) trees_.emplace(*model.trees(), batch, scores, beam_size, kernels, pool);
}

size_t BlendedRanking::max_rows() const {
    const size_t rows = best_.max_rows(one_vs_rest_.n_labels());
    return trees_ ? std::min(rows, trees_->search.max_rows()) : rows;
}

void BlendedRanking::run(const TopKOutput& out) {
    if (trees_) trees_->search.run();
    for (size_t begin = 0, end; begin < batch_.size(); begin = end) {
        end = begin_chunk(begin);
        best_.reset(end - begin);
        reached_.resize(std::max(reached_.size(), end - begin));
        if (trees_) score_by_trees(begin, end);
        score_by_one_vs_rest(begin, end);
        for_each_row(pool_, begin, end, [&](size_t row, unsigned worker) {
            const auto best = best_.labels(row - begin);
            ranked_[worker].assign(best.begin(), best.end());
            out.write(row, ranked_[worker]);
        });
        pool_.control().done += end - begin;
    }
}

// As many rows as have room for the margins and the scores of all labels of their leaves.
size_t BlendedRanking::begin_chunk(size_t begin) {
    if (!trees_) return batch_.size();
    size_t end = begin, n = 0;
    for (; end < batch_.size(); ++end) {
        size_t more = 0;
        for (const Visit& v : trees_->search.visits(end)) more += trees_->search.margins().width(v);
        if (end > begin && (n + more) * (sizeof(float) + sizeof(Reached)) > kMarginBytes) break;
        n += more;
    }
    trees_->search.margins().reset(n);
    return end;
}

void BlendedRanking::score_by_trees(size_t begin, size_t end) {
    for (Visit& visit : trees_->search.visits(begin, end)) visit.request();
    trees_->search.margins().compute(trees_->search.visits(begin, end));
    for_each_row(pool_, begin, end, [&](size_t row, unsigned number) {
        auto& worker = trees_->workers[number];
        if (!worker) worker = std::make_unique<LeafLabels::Worker>(model_.n_labels());
        const auto visits = trees_->search.visits(row);
        trees_->labels.find_reaching(*worker, visits, kLowest);
        trees_->labels.rank(*worker, visits, worker->occurrences);
        std::vector<Reached>& reached = reached_[row - begin];
        reached.clear();
        for (const RankedLabel& label : worker->ranked)
            if (const uint32_t position = one_vs_rest_.position(label.label); position != kAbsent)
                reached.push_back({position, static_cast<float>(label.score)});
        std::sort(reached.begin(), reached.end(),
                  [](const Reached& a, const Reached& b) { return a.position < b.position; });
    });
}

void BlendedRanking::score_by_one_vs_rest(size_t begin, size_t end) {
    rows_.clear();
    for (size_t row = begin; row < end; ++row)
        if (batch_.row(row).n > 0) rows_.push_back(static_cast<uint32_t>(row));
    blocks_.clear();
    const size_t n_labels = one_vs_rest_.children(0).size();
    for (size_t from = 0; !rows_.empty() && from < n_labels; from += kBlockChildren)
        blocks_.push_back({0, from, 0, rows_});
    loop_.run(one_vs_rest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t) {
        add_block(row - begin, scorer, row, block.from);
    });
}

// Labels that the trees reach are few and scored one by one. Offsets are not positive: the score of any other
// label is at most that of its margin.
void BlendedRanking::add_block(size_t slot, BlockScorer& scorer, size_t row, size_t from) {
    alignas(64) float margin[kBlockChildren];
    const float largest = scorer.margins(row, margin);
    const auto labels = one_vs_rest_.children(0).subspan(from, scorer.n_children());
    const std::span<const float> offsets = model_.label_offsets();
    const auto item = [&](size_t c, double score) {
        const auto label = static_cast<uint32_t>(labels[c]);
        return RankedLabel{score + (offsets.empty() ? 0.0f : offsets[label]), margin[c], label};
    };
    const std::vector<Reached>& reached = reached_[slot];
    const auto first = std::lower_bound(reached.begin(), reached.end(), from,
                                        [](const Reached& r, size_t at) { return r.position < at; });
    const bool near = scores_.upper_bound(log_own_, largest) >= best_.threshold(slot);
    if (!near && (first == reached.end() || first->position >= from + labels.size())) return;
    best_.update(slot, [&](TopK<RankedLabel>& best) {
        bool is_reached[kBlockChildren] = {};
        for (auto r = first; r != reached.end() && r->position < from + labels.size(); ++r) {
            const size_t c = r->position - from;
            is_reached[c] = true;
            best.add(item(c, blended(scores_.of(0, margin[c]), r->score)));
        }
        if (!near) return;
        const float threshold = best.threshold();
        const float lowest = threshold == kLowest ? kLowest : scores_.lowest_margin(log_own_, threshold);
        scores_.for_each_at_least(log_own_, {margin, labels.size()}, lowest, [&](size_t c, float score) {
            if (!is_reached[c]) best.add(item(c, score));
        });
    });
}

double BlendedRanking::blended(float one_vs_rest, float trees) const {
    const double own = double{log_own_} + one_vs_rest, other = double{log_trees_} + trees;
    return std::max(own, other) + std::log1p(std::exp(-std::abs(own - other)));
}

}  // namespace bonsai

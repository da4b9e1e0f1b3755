#include "predict/rank_one_vs_rest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace bonsai {

size_t SharedTopK::max_rows(size_t n_labels) const {
    return std::max<size_t>(1, kMarginBytes / (std::min(k_, n_labels) * sizeof(RankedLabel) + 1));
}

void ExactRanking::find_best() {
    best_.reset(batch_.size());
    rows_.clear();
    for (size_t row = 0; row < batch_.size(); ++row)
        if (batch_.row(row).n > 0) rows_.push_back(static_cast<uint32_t>(row));
    blocks_.clear();
    const auto labels = forest_.children(0);
    for (size_t from = 0; !rows_.empty() && from < labels.size(); from += kBlockChildren)
        if (forest_.has_allowed(0, from)) blocks_.push_back({0, from, 0, rows_});
    loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t) {
        best_.add_block(row, scorer, row, labels.subspan(block.from), 0);
    });
}

void ExactRanking::run(const TopKOutput& out) {
    find_best();
    for_each_row(pool_, 0, batch_.size(), [&](size_t row, unsigned worker) {
        const auto best = best_.labels(row);
        ranked_[worker].assign(best.begin(), best.end());
        out.write(row, ranked_[worker]);
    });
}

void LabelMargins::compute_requested(size_t n_rows) {
    requests_.clear();
    requests_ptr_.assign(1, 0);
    for (size_t r = 0; r < n_rows; ++r) {
        for (const uint32_t block : blocks_of_row_[r])
            requests_.push_back({block, static_cast<uint32_t>(begin_ + r)});
        requests_ptr_.push_back(requests_.size());
    }
    margins_.ensure_size(requests_.size() * kBlockChildren);
    by_block_.count(requests_.size(), [&](size_t r) { return requests_[r].block; });
    rows_.resize(requests_.size());
    numbers_.resize(requests_.size());
    by_block_.for_each([&](size_t r, uint32_t, size_t position) {
        rows_[position] = requests_[r].row;
        numbers_[position] = static_cast<uint32_t>(r);
    });
    blocks_.clear();
    for (size_t g = 0; g < by_block_.size(); ++g)
        blocks_.push_back(
            {0, by_block_.key(g) * kBlockChildren, by_block_.begin(g), by_block_.part(g, rows_)});
    loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows&, uint32_t row, size_t i) {
        scorer.margins(row, &margins_[numbers_[i] * kBlockChildren]);
    });
}

CandidateRanking::CandidateRanking(const Model& model, const Batch& batch, const Scores& scores,
                                   size_t beam_size, float path_weight, size_t k, const Kernels& kernels,
                                   Pool& pool)
    : trees_(*model.trees()),
      one_vs_rest_(*model.one_vs_rest()),
      offsets_(model.label_offsets()),
      batch_(batch),
      scores_(scores),
      path_weight_(path_weight),
      k_(k),
      pool_(pool),
      search_(trees_, batch, scores, beam_size, kernels, pool),
      margins_(one_vs_rest_, batch, kernels, pool),
      workers_(pool.threads()) {}

void CandidateRanking::run(const TopKOutput& out) {
    search_.run();
    for (size_t begin = 0, end; begin < batch_.size(); begin = end) {
        end = end_of_chunk(begin);
        margins_.compute(begin, end, [&](size_t row, unsigned, auto&& request) {
            for_each_candidate(search_.visits(row),
                               [&](uint32_t, uint32_t position, float) { request(position); });
        });
        for_each_row(pool_, begin, end, [&](size_t row, unsigned number) {
            auto& worker = workers_[number];
            if (!worker) worker = std::make_unique<Worker>(trees_.n_labels());
            rank(*worker, row, LabelMargins::Row(margins_, row, number));
            out.write(row, worker->ranked);
        });
    }
}

// As many rows as have room for the margins of the blocks of their candidates.
size_t CandidateRanking::end_of_chunk(size_t begin) {
    size_t end = begin, blocks = 0;
    for (; end < batch_.size(); ++end) {
        size_t labels = 0;
        for (const Visit& v : search_.visits(end)) labels += trees_.n_children(v.node);
        blocks += std::min(labels, one_vs_rest_.n_blocks(0));
        if (end > begin && blocks > LabelMargins::kMaxBlocks) break;
    }
    return end;
}

// fn(label, its position among the classifiers, score of the leaf) for each label of the leaves that has a
// classifier.
template <class Fn>
void CandidateRanking::for_each_candidate(std::span<const Visit> leaves, Fn&& fn) const {
    for (const Visit& leaf : leaves)
        for (const int32_t child : trees_.children(leaf.node)) {
            const auto label = static_cast<uint32_t>(child);
            if (const uint32_t position = one_vs_rest_.position(label);
                position != kAbsent && (!one_vs_rest_.is_restricted() || one_vs_rest_.allowed()[position]))
                fn(label, position, leaf.score);
        }
}

// log score = that of the label's own margin + path_weight * log of the mean over trees of the path's score +
// the label's offset.
void CandidateRanking::rank(Worker& worker, size_t row, const LabelMargins::Row& margins) {
    const auto leaves = search_.visits(row);
    float top = kLowest;
    for (const Visit& leaf : leaves) top = std::max(top, leaf.score);
    worker.candidates.clear();
    for_each_candidate(leaves, [&](uint32_t label, uint32_t position, float score) {
        float& path = worker.path[label];
        if (path == 0) worker.candidates.push_back({label, position});
        path += std::max(std::exp(score - top), std::numeric_limits<float>::min());
    });
    const float mean = top - static_cast<float>(std::log(static_cast<double>(trees_.n_trees())));
    worker.best.reset(k_);
    for (const auto& [label, position] : worker.candidates) {
        const float path = path_weight_ > 0 ? std::log(worker.path[label]) + mean : 0.0f;
        worker.path[label] = 0;
        const float margin = margins[position];
        const float offset = offsets_.empty() ? 0.0f : offsets_[label];
        const float score = scores_.of(0, margin) + path_weight_ * path + offset;
        if (score >= worker.best.threshold()) worker.best.add({score, margin, label});
    }
    worker.ranked.assign(worker.best.items().begin(), worker.best.items().end());
}

}  // namespace bonsai

#include "predict/rank_one_vs_rest.hpp"

#include <algorithm>

#include "predict/node_margins.hpp"

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

}  // namespace bonsai

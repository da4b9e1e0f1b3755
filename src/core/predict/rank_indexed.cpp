#include "predict/rank_indexed.hpp"

#include <algorithm>

namespace bonsai {

size_t IndexedRanking::max_rows() const {
    return std::min(best_.max_rows(forest_.n_labels()), probed_.max_rows());
}

void IndexedRanking::run(const TopKOutput& out) {
    best_.reset(batch_.size());
    const auto labels = forest_.children(0);
    loop_.run(forest_, probed_.find([](size_t, auto&&) {}),
              [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t) {
                  best_.add_block(row, scorer, row, labels.subspan(block.from), 0);
              });
    for_each_row(pool_, 0, batch_.size(), [&](size_t row, unsigned worker) {
        const auto best = best_.labels(row);
        ranked_[worker].assign(best.begin(), best.end());
        out.write(row, ranked_[worker]);
    });
}

}  // namespace bonsai

#include "predict/rank_indexed.hpp"

#include <algorithm>
#include <utility>

namespace bonsai {

IndexedRanking::~IndexedRanking() {
    for (auto& search : searches_)
        if (search) index_.searches().give_back(std::move(search));
}

size_t IndexedRanking::max_rows() const {
    constexpr size_t max_probes = 16 << 20;
    return std::min(best_.max_rows(forest_.n_labels()), std::max<size_t>(1, max_probes / n_probe_));
}

void IndexedRanking::run(const TopKOutput& out) {
    best_.reset(batch_.size());
    find_blocks();
    score_blocks();
    for_each_row(pool_, 0, batch_.size(), [&](size_t row, unsigned worker) {
        const auto best = best_.labels(row);
        ranked_[worker].assign(best.begin(), best.end());
        out.write(row, ranked_[worker]);
    });
}

void IndexedRanking::find_blocks() {
    rows_.clear();
    for (size_t row = 0; row < batch_.size(); ++row)
        if (batch_.row(row).n > 0) rows_.push_back(static_cast<uint32_t>(row));
    probes_.resize(rows_.size() * n_probe_);
    for_each_row(pool_, 0, rows_.size(), [&](size_t r, unsigned worker) {
        auto& search = searches_[worker];
        if (!search) search = index_.searches().take(index_);
        const Batch::Row& row = batch_.row(rows_[r]);
        const auto found =
            search->find_blocks({batch_.features(row), row.n}, {batch_.values(row), row.n}, row.unit,
                                n_probe_, forest_.is_restricted() ? forest_.allowed_masks() : nullptr);
        std::copy(found.begin(), found.end(), probes_.begin() + static_cast<int64_t>(r * n_probe_));
    });
}

// Each block is visited once, with all rows that need it.
void IndexedRanking::score_blocks() {
    by_block_.group(probes_.size(), [&](size_t p) { return probes_[p]; });
    rows_by_block_.resize(probes_.size());
    for (size_t i = 0; i < probes_.size(); ++i) rows_by_block_[i] = rows_[by_block_.item(i) / n_probe_];
    blocks_.clear();
    for (size_t g = 0; g < by_block_.size(); ++g)
        blocks_.push_back({0, by_block_.key(g) * kBlockChildren, 0, by_block_.part(g, rows_by_block_)});
    const auto labels = forest_.children(0);
    loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t) {
        best_.add_block(row, scorer, row, labels.subspan(block.from), 0);
    });
}

}  // namespace bonsai

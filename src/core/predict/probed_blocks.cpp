#include "predict/probed_blocks.hpp"

#include <utility>

namespace bonsai {

ProbedBlocks::~ProbedBlocks() {
    for (auto& search : searches_)
        if (search) index_.searches().give_back(std::move(search));
}

void ProbedBlocks::search(size_t row, unsigned worker, std::vector<uint32_t>& blocks) {
    blocks.clear();
    const Batch::Row& x = batch_.row(row);
    if (x.n == 0) return;
    auto& search = searches_[worker];
    if (!search) search = index_.searches().take(index_);
    const auto found =
        search->find_blocks({batch_.features(x), x.n}, {batch_.values(x), x.n}, x.unit, n_probe_,
                            forest_.is_restricted() ? forest_.allowed_masks() : nullptr);
    blocks.assign(found.begin(), found.end());
}

void ProbedBlocks::group() {
    probes_.clear();
    rows_.clear();
    for (size_t row = 0; row < batch_.size(); ++row) {
        probes_.insert(probes_.end(), of_row_[row].begin(), of_row_[row].end());
        rows_.resize(probes_.size(), static_cast<uint32_t>(row));
    }
    by_block_.count(probes_.size(), [&](size_t p) { return probes_[p]; });
    rows_by_block_.resize(probes_.size());
    by_block_.for_each([&](size_t p, uint32_t, size_t position) { rows_by_block_[position] = rows_[p]; });
    blocks_.clear();
    for (size_t g = 0; g < by_block_.size(); ++g)
        blocks_.push_back({0, by_block_.key(g) * kBlockChildren, 0, by_block_.part(g, rows_by_block_)});
}

}  // namespace bonsai

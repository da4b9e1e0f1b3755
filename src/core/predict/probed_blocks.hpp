// The blocks of one-vs-rest classifiers that an index finds for the rows of a batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/groups.hpp"
#include "base/parallel.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/block_scoring.hpp"
#include "search/candidate_search.hpp"
#include "search/label_index.hpp"

namespace bonsai {

// The blocks found for a row do not depend on the other rows. There must be more than n_probe blocks with
// labels that are not excluded.
class ProbedBlocks {
  public:
    ProbedBlocks(const Forest& one_vs_rest, const LabelIndex& index, const Batch& batch, size_t n_probe,
                 Pool& pool)
        : forest_(one_vs_rest),
          index_(index),
          batch_(batch),
          n_probe_(n_probe),
          pool_(pool),
          by_block_(one_vs_rest.n_blocks(0), pool),
          searches_(pool.threads()) {}
    ~ProbedBlocks();

    // Maximum rows of a batch if each row has up to n_others further blocks.
    size_t max_rows(size_t n_others = 0) const {
        constexpr size_t max_probes = 16 << 20;
        return std::max<size_t>(1, max_probes / (n_probe_ + n_others));
    }

    // Finds n_probe blocks for each row that has features, and adds further ones: for_each_other(row, add)
    // calls add(block) for each of these. Returns every block once, with the rows that need it; valid until
    // the next call.
    template <class Fn>
    std::vector<BlockRows>& find(Fn&& for_each_other) {
        of_row_.resize(std::max(of_row_.size(), batch_.size()));
        for_each_row(pool_, 0, batch_.size(), [&](size_t row, unsigned worker) {
            std::vector<uint32_t>& blocks = of_row_[row];
            search(row, worker, blocks);
            if (blocks.empty()) return;
            for_each_other(row, [&](uint32_t block) {
                if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
            });
        });
        group();
        return blocks_;
    }

  private:
    void search(size_t row, unsigned worker, std::vector<uint32_t>& blocks);
    void group();

    const Forest& forest_;
    const LabelIndex& index_;
    const Batch& batch_;
    const size_t n_probe_;
    Pool& pool_;
    Groups by_block_;
    std::vector<std::unique_ptr<CandidateSearch>> searches_;  // per worker
    std::vector<std::vector<uint32_t>> of_row_;               // blocks per row
    std::vector<uint32_t> probes_, rows_;                     // pairs of a block and a row, over all rows
    std::vector<uint32_t> rows_by_block_;
    std::vector<BlockRows> blocks_;
};

}  // namespace bonsai

// Turns term counts into weighted rows: TF-IDF of unit length in each block, times the block's weight, blocks
// side by side, the whole row scaled to unit length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.hpp"
#include "text/distinct.hpp"
#include "text/vocabulary.hpp"

namespace bonsai::text {

// CSR.
struct SparseRows {
    std::vector<int64_t> ptr = {0};
    std::vector<int32_t> index = {};
    std::vector<float> value = {};
};

// How the terms of a block are turned into row entries.
struct BlockWeights {
    BlockWeights(const Vocabulary& vocabulary, size_t block, size_t first_column);

    Columns columns;
    size_t first_column;
    std::vector<float> idf;  // per column of the block, raised to the block's power
    bool sublinear_tf;
    double power;
    double weight;
};

std::vector<BlockWeights> block_weights(const Vocabulary& vocabulary);

// Writes rows one after another.
class RowWriter {
  public:
    // `columns`: the distinct columns of the block in this row, counted from the block's first one. Blocks
    // come in the order of their columns.
    void add(const BlockWeights& block, std::vector<Count<uint32_t>>& columns);
    void end_row();
    SparseRows& rows() { return rows_; }

  private:
    SparseRows rows_;
    std::vector<double> values_;  // of the current row
    std::vector<int32_t> index_;
    std::vector<Count<uint32_t>> buffer_;
};

// Stacks the parts in this order and frees each part once it is copied.
SparseRows join(std::vector<SparseRows>& parts, Pool& pool);

}  // namespace bonsai::text

// Counts of terms become weighted rows: TF-IDF of unit length in each block, times the block's weight, the
// blocks side by side, and the whole row of unit length.
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

// How terms of a block become entries of a row.
struct BlockWeights {
    BlockWeights(const Vocabulary& vocabulary, size_t block, size_t first_column);

    Columns columns;
    size_t first_column;
    std::vector<float> idf;  // of each column of the block, to the block's power
    bool sublinear_tf;
    double power;
    double weight;
};

std::vector<BlockWeights> block_weights(const Vocabulary& vocabulary);

// Writes one row after another.
class RowWriter {
  public:
    // `columns`: the distinct columns of the block in this row, counted from the block's first one. Blocks
    // come in the order of their columns.
    void add(const BlockWeights& block, std::vector<Count<uint32_t>>& columns);
    void end_row();
    SparseRows& rows() { return rows_; }

  private:
    SparseRows rows_;
    std::vector<double> values_;  // of the row that is being written
    std::vector<int32_t> index_;
    std::vector<Count<uint32_t>> buffer_;
};

// All rows below each other, in this order; the parts are freed on the way.
SparseRows join(std::vector<SparseRows>& parts, Pool& pool);

}  // namespace bonsai::text

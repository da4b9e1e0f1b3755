// The columns of the rows of a tree's nodes, each divided from those of its parent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "systems/sparse_weights.hpp"

namespace bonsai {

// The columns of a node's rows that may get a weight: dense ones, with a value for each row, then sparse
// ones. Values are borrowed.
class NodeColumns {
  public:
    using Entry = Columns::Entry;

    NodeColumns() = default;

    size_t n_rows() const { return n_rows_; }
    size_t size() const { return columns_.size(); }
    size_t n_dense() const { return n_dense_; }
    uint32_t feature(size_t j) const { return columns_[j].feature; }
    // Column j < n_dense.
    const float* dense(size_t j) const { return cells_ + columns_[j].begin; }
    // Column j >= n_dense: rows ascend.
    std::span<const Entry> sparse(size_t j) const {
        return {entries_ + columns_[j].begin, columns_[j].n_entries};
    }
    // Calls fn(row, value) for the entries of a column, zeros of dense ones included.
    template <class Fn>
    void for_each(size_t j, Fn&& fn) const {
        if (j < n_dense_)
            for (size_t i = 0; i < n_rows_; ++i) fn(i, dense(j)[i]);
        else
            for (const Entry& e : sparse(j)) fn(size_t{e.row}, e.value);
    }

  private:
    friend class TreeColumns;
    friend class ColumnDivider;
    struct Column {
        uint32_t feature;
        uint32_t n_entries;  // of a sparse column
        size_t begin;        // in the cells or the entries
    };

    size_t n_rows_ = 0, n_dense_ = 0;
    std::vector<Column> columns_;
    const Entry* entries_ = nullptr;
    const float* cells_ = nullptr;
};

// The values of columns. A node has the memory of its parent's columns, divided between it and its sibling,
// so nodes of one level can be divided at the same time.
struct ColumnMemory {
    SharedVector<NodeColumns::Entry> entries;
    SharedVector<float> cells;
};

// The columns of all rows, which all trees share.
class TreeColumns {
  public:
    // c: the weight of the losses relative to the L1 penalty. Columns that get no weight are left out, here
    // and in all nodes.
    TreeColumns(const Dataset& data, double c);

    const NodeColumns& root() const { return root_; }
    // A column whose absolute values sum to this gets no weight: its gradient stays within 1 everywhere, as
    // no residual exceeds the cost of its row.
    double least() const { return least_; }
    // Memory for the columns of a tree's nodes below the root.
    ColumnMemory memory_of_tree() const;

  private:
    double least_ = 0;
    ColumnMemory memory_;
    NodeColumns root_;
};

// Divides columns of nodes; one object per worker.
class ColumnDivider {
  public:
    explicit ColumnDivider(const TreeColumns& all) : least_(all.least()) {}

    // The columns of the rows with right[i] == 0 and of those with right[i] == 1, in `memory`. They replace
    // those of `parent`, unless it is the root.
    std::array<NodeColumns, 2> divide(const NodeColumns& parent, std::span<const uint8_t> right,
                                      ColumnMemory& memory);

  private:
    using Entry = NodeColumns::Entry;
    void divide_dense(const float* from, float* to);
    // Returns the number of entries on the left.
    uint32_t divide_sparse(std::span<const Entry> from, Entry* to);

    const double least_;
    std::vector<uint32_t> place_;                // of each row: twice that in the child, + 1 on the right
    std::array<std::vector<uint32_t>, 2> rows_;  // of the children, in the parent
    std::vector<float> right_cells_;
    std::vector<Entry> right_entries_;
};

}  // namespace bonsai

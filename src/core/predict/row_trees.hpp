// Trees over rows whose leaves hold labels, as in FastXML (Prabhu, Varma, KDD 2014) and PfastreXML (Jain,
// Prabhu, Varma, KDD 2016).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "predict/ranking.hpp"

namespace bonsai {

// The nodes of a tree are stored level by level. The children of its k-th inner node, counted from 0, are the
// nodes 1 + 2k (for rows with a margin <= 0) and 2 + 2k (margin > 0) of the tree. Inner nodes and leaves are
// each numbered consecutively over all trees.
template <template <class> class Array>
struct RowTreeArraysOf {
    Array<int64_t> tree_ptr;    // n_trees + 1: the nodes of each tree
    Array<uint8_t> is_leaf;     // per node
    Array<int64_t> weight_ptr;  // start of the weights of each inner node
    Array<int32_t> features;    // ascending in each inner node
    Array<float> weights;
    Array<float> biases;         // per inner node
    Array<int64_t> leaf_ptr;     // start of the labels of each leaf
    Array<int32_t> leaf_labels;  // ascending in each leaf
    Array<float> leaf_shares;    // share of the leaf's rows with the label, in (0, 1]
    Array<int32_t> leaf_rows;    // training rows of each leaf
};
template <class T>
using OwnedArray = std::vector<T>;
template <class T>
using ArrayView = std::span<const T>;
using RowTreeArrays = RowTreeArraysOf<ArrayView>;
using OwnedRowTrees = RowTreeArraysOf<OwnedArray>;

// Calls fn(name, arrays.member...) for each array.
template <class Fn, class... Arrays>
void for_each_row_tree_array(Fn&& fn, Arrays&&... arrays) {
    fn("tree_ptr", arrays.tree_ptr...);
    fn("is_leaf", arrays.is_leaf...);
    fn("weight_ptr", arrays.weight_ptr...);
    fn("features", arrays.features...);
    fn("weights", arrays.weights...);
    fn("biases", arrays.biases...);
    fn("leaf_ptr", arrays.leaf_ptr...);
    fn("leaf_labels", arrays.leaf_labels...);
    fn("leaf_shares", arrays.leaf_shares...);
    fn("leaf_rows", arrays.leaf_rows...);
}

// The tail classifier of PfastreXML: score = alpha · log P + (1 − alpha) · log P_tail, where P_tail(l | x) =
// 1 / (1 + exp(gamma / 2 · ‖x / ‖x‖ − m‖²)) for the label's mean m.
struct RowTreeTail {
    RowsView means = {};  // one row for each label; no rows: no tail classifier
    float alpha = 1;
    float gamma = 0;
};

class RowTrees {
  public:
    // The arrays are views that `owner` keeps alive. Throws std::invalid_argument unless every pointer, id
    // and number is in its range. The indices of `tail.means` must have been checked.
    RowTrees(const RowTreeArrays& arrays, size_t n_features, size_t n_labels, bool normalize,
             const RowTreeTail& tail, std::shared_ptr<const void> owner);

    size_t n_features() const { return n_features_; }
    size_t n_labels() const { return n_labels_; }
    size_t n_trees() const { return arrays_.tree_ptr.size() - 1; }
    bool normalize() const { return normalize_; }
    bool has_tail() const { return tail_.means.n_rows > 0; }
    const RowTreeArrays& arrays() const { return arrays_; }

    // The k best labels of each row: ids (n x k, -1 where there are fewer) and log scores (n x k, -infinity
    // there), best first, ties to the smaller label. `allowed`: empty, or one byte per label, 0 for excluded
    // labels.
    void top_k(const RowsView& x, size_t k, std::span<const uint8_t> allowed, Pool& pool, int32_t* ids,
               float* scores) const;
    // The same for the rows [begin, end) of x, without adding them to the total of the progress.
    void rank(const RowsView& x, size_t begin, size_t end, const TopKOutput& out,
              std::span<const uint8_t> allowed, Pool& pool) const;
    // The leaf that each row reaches in each tree (n x n_trees), numbered consecutively over all trees.
    void leaves(const RowsView& x, Pool& pool, int32_t* leaves) const;

  private:
    class Row;
    struct Node {
        uint32_t number;  // among inner nodes, or among leaves
        uint32_t child;   // the first of two; 0: a leaf
    };
    void check_nodes();
    // Calls fn(row, i) for the rows [begin, end) of x.
    template <class Fn>
    void for_each(const RowsView& x, size_t begin, size_t end, Pool& pool, Fn&& fn) const;
    size_t leaf_of(const Row& row, size_t tree) const;
    float log_tail(const Row& row, int32_t label) const;

    RowTreeArrays arrays_;
    size_t n_features_, n_labels_;
    bool normalize_;
    RowTreeTail tail_;
    std::vector<double> squared_means_;
    std::vector<Node> nodes_;
    std::shared_ptr<const void> owner_;
};

}  // namespace bonsai

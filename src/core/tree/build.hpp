// The construction of label trees by recursive clustering.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "base/stage.hpp"
#include "data/label_vectors.hpp"
#include "data/rows.hpp"
#include "data/slice.hpp"
#include "kernels/kernels.hpp"
#include "model/label_tree.hpp"
#include "tree/kmeans.hpp"

namespace bonsai {

// The cost of a leaf is its labels times its rows, and clustering can leave a large part of all labels in one
// leaf. `split_oversized` splits leaves larger than this many times max_leaf_size at any depth.
inline constexpr size_t kOversizedFactor = 100;

// A cluster of `bounded` trees has at most this many times the mean size, or this many times max_leaf_size.
inline constexpr size_t kLargestCluster = 4;

struct TreeParams {
    KMeansParams kmeans;
    size_t max_leaf_size;  /// nodes with at most this many labels are not split
    size_t max_depth;      /// levels of nodes, the root is level 1; 0: no limit
    bool split_oversized;  /// max_depth does not hold for oversized leaves
    bool bounded;          /// too large clusters are split again, at the same level
    uint64_t seed;
};

// Nodes to split: the labels of each, ascending, and its key.
struct NodesToSplit {
    std::vector<int64_t> ptr = {0};
    std::vector<uint32_t> labels;
    std::vector<uint64_t> keys;
    bool roots = false;  // the roots of all trees, which have the same labels

    size_t size() const { return keys.size(); }
    std::span<const uint32_t> labels_of(size_t node) const {
        return {labels.data() + ptr[node], static_cast<size_t>(ptr[node + 1] - ptr[node])};
    }
};

// With many threads, some idle at the ends of loops and during serial parts; clustering several roots in
// parallel hides that. A root is clustered by at least this many threads.
inline constexpr unsigned kThreadsOfRoot = 4;

// The splits of these nodes, one unit per node.
class SplitStage final : public Stage {
  public:
    SplitStage(NodesToSplit nodes, const TreeParams& params, const Kernels& kernels);

    // Label vectors, one row per label; may be null until units are solved, and must outlive solving.
    void set_vectors(const RowsView* vectors) { vectors_ = vectors; }
    const NodesToSplit& nodes() const { return nodes_; }
    // A partition without clusters: the node stays a leaf.
    const Partition& partition(size_t node) const { return partitions_[node]; }

  protected:
    void prepare(std::span<const uint32_t> units, Pool& pool) override;
    void release() override {
        if (complete()) all_.reset();  // otherwise kept for the next units
    }
    // The first clustering of a root is large enough for several threads, and its centres need much memory.
    size_t most_beginning(unsigned threads) const override {
        return nodes_.roots ? std::max(1u, threads / kThreadsOfRoot) : Stage::most_beginning(threads);
    }
    void begin_unit(size_t unit, Pool& pool) override;
    Bytes solve_unit(size_t unit, Pool& pool, unsigned worker, Wanted wanted) override;
    void add_unit(size_t unit, std::span<const uint8_t> result) override;

  private:
    // Runs a clustering, and bounds its clusters if required.
    Partition cluster(size_t node, const RowsView& rows, Pool& pool) const;
    Partition bound(size_t node, const RowsView& rows, Partition&& found, Pool& pool) const;

    const NodesToSplit nodes_;
    const TreeParams params_;
    const Kernels& kernels_;
    const RowsView* vectors_ = nullptr;
    std::optional<SortedSlice> all_;  // the vectors that the roots share
    std::vector<Partition> partitions_;
};

// Builds trees over the given labels (ascending) level by level: while it is open, pass the splits of `nodes`
// to `advance`.
class TreeBuilder {
  public:
    TreeBuilder(std::span<const uint32_t> labels, size_t n_trees, const TreeParams& params);

    bool is_open() const;
    size_t depth() const { return depth_; }  // the current level; the root is level 1
    // Returns the nodes of the current level that must be split.
    NodesToSplit nodes() const;
    // Throws std::invalid_argument unless `splits` is complete and belongs to these nodes.
    void advance(const SplitStage& splits, Pool& pool);
    std::vector<Tree> finish() { return std::move(trees_); }

  private:
    struct OpenNode {
        std::vector<uint32_t> labels;
        uint64_t key;
    };
    bool must_split(const OpenNode& node) const;
    void append(const OpenNode& node, const Partition* partition, size_t tree, std::vector<OpenNode>& next);

    const TreeParams params_;
    std::vector<Tree> trees_;
    std::vector<std::vector<OpenNode>> open_;  // the nodes of the current level of each tree
    std::vector<size_t> n_numbered_;
    size_t depth_ = 1;
};

// The expected shape of a tree, assuming clusters of equal size.
struct ExpectedTree {
    ExpectedTree(double n_labels, const TreeParams& params);

    std::vector<double> n_nodes;  // per level; the last level holds the leaves
    double leaf_size;
    double n_leaves;  // large clusters are split once more, into small leaves
};

// Bytes to split the nodes of all trees, label vectors included.
double split_bytes(const ProblemSizes& sizes, const VectorSizes& vectors, const TreeParams& params,
                   double n_trees, unsigned threads);

}  // namespace bonsai

#include "tree/build.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/random.hpp"
#include "tree/bounded_clusters.hpp"

namespace bonsai {

SplitStage::SplitStage(NodesToSplit nodes, const TreeParams& params, const Kernels& kernels)
    : nodes_(std::move(nodes)), params_(params), kernels_(kernels), partitions_(nodes_.size()) {
    std::vector<uint64_t> costs;
    for (size_t node = 0; node < nodes_.size(); ++node) costs.push_back(nodes_.labels_of(node).size());
    set_costs(std::move(costs));
}

void SplitStage::prepare(std::span<const uint32_t>, Pool& pool) {
    if (!vectors_) throw std::invalid_argument("label vectors are needed to split nodes");
    for (const uint32_t label : nodes_.labels)
        if (label >= vectors_->n_rows) throw std::invalid_argument("a label has no vector");
    if (nodes_.roots && !all_) all_.emplace(*vectors_, nodes_.labels_of(0), pool);
}

Partition SplitStage::cluster(size_t node, const RowsView& rows, Pool& pool) const {
    return partition_rows(rows, params_.kmeans, Rng(derive(nodes_.keys[node], kForClustering)), kernels_,
                          pool);
}

Partition SplitStage::bound(size_t node, const RowsView& rows, Partition&& found, Pool& pool) const {
    const size_t mean = (rows.n_rows + params_.kmeans.k - 1) / params_.kmeans.k;
    if (params_.bounded)
        split_large_clusters(found, rows, params_.kmeans,
                             kLargestCluster * std::max(params_.max_leaf_size, mean),
                             derive(nodes_.keys[node], kForClustering), kernels_, pool);
    // There may be a single cluster, for example if all vectors are equal: then the node stays a leaf of this
    // size.
    if (found.n_clusters < 2) found = {};
    return std::move(found);
}

void SplitStage::begin_unit(size_t unit, Pool& pool) {
    if (all_) partitions_[unit] = cluster(unit, all_->rows(), pool);
}

Bytes SplitStage::solve_unit(size_t unit, Pool& pool, unsigned, Wanted wanted) {
    Partition found;
    if (all_) {
        found = bound(unit, all_->rows(), std::exchange(partitions_[unit], {}), pool);
    } else {
        const SortedSlice slice(*vectors_, nodes_.labels_of(unit), pool);
        found = bound(unit, slice.rows(), cluster(unit, slice.rows(), pool), pool);
    }
    pool.control().done += costs()[unit];
    ByteWriter out;
    if (wanted.as_bytes) {
        out.value(static_cast<uint64_t>(found.n_clusters));
        out.array(std::span<const uint32_t>(found.cluster));
    }
    if (wanted.keep) partitions_[unit] = std::move(found);
    return out.take();
}

void SplitStage::add_unit(size_t unit, std::span<const uint8_t> result) {
    ByteReader in(result);
    Partition found;
    found.n_clusters = in.value<uint64_t>();
    in.array(found.cluster);
    in.end();
    const auto fail = [] {
        throw std::invalid_argument("the result of a unit of work is not a partition of such a node");
    };
    const size_t n = nodes_.labels_of(unit).size();
    if (found.cluster.size() != (found.n_clusters == 0 ? 0 : n) || found.n_clusters > n) fail();
    std::vector<uint8_t> used(found.n_clusters, 0);
    for (const uint32_t cluster : found.cluster) {
        if (cluster >= found.n_clusters) fail();
        used[cluster] = 1;
    }
    if (std::find(used.begin(), used.end(), 0) != used.end()) fail();
    partitions_[unit] = std::move(found);
}

TreeBuilder::TreeBuilder(std::span<const uint32_t> labels, size_t n_trees, const TreeParams& params)
    : params_(params), trees_(n_trees), open_(n_trees), n_numbered_(n_trees, 1) {
    for (size_t t = 0; t < n_trees; ++t) {
        trees_[t].child_ptr.push_back(0);
        open_[t].push_back({{labels.begin(), labels.end()}, root_key(params.seed, t)});
    }
}

bool TreeBuilder::is_open() const {
    return std::any_of(open_.begin(), open_.end(), [](const auto& level) { return !level.empty(); });
}

bool TreeBuilder::must_split(const OpenNode& node) const {
    const size_t n = node.labels.size();
    if (n <= params_.max_leaf_size) return false;
    if (params_.max_depth == 0 || depth_ < params_.max_depth) return true;
    return params_.split_oversized && n / kOversizedFactor >= params_.max_leaf_size;
}

NodesToSplit TreeBuilder::nodes() const {
    NodesToSplit found;
    found.roots = depth_ == 1;
    for (const auto& level : open_)
        for (const OpenNode& node : level) {
            if (!must_split(node)) continue;
            found.labels.insert(found.labels.end(), node.labels.begin(), node.labels.end());
            found.ptr.push_back(static_cast<int64_t>(found.labels.size()));
            found.keys.push_back(node.key);
        }
    return found;
}

// Appends a node to its tree; its children, if any, to the next level.
void TreeBuilder::append(const OpenNode& node, const Partition* partition, size_t tree,
                         std::vector<OpenNode>& next) {
    Tree& out = trees_[tree];
    const bool is_leaf = !partition || partition->n_clusters == 0;
    out.is_leaf.push_back(is_leaf);
    if (is_leaf) {
        out.children.insert(out.children.end(), node.labels.begin(), node.labels.end());
    } else {
        const size_t first = next.size();
        for (size_t c = 0; c < partition->n_clusters; ++c) {
            out.children.push_back(static_cast<int32_t>(n_numbered_[tree]++));
            next.push_back({{}, derive(node.key, c)});
        }
        for (size_t i = 0; i < node.labels.size(); ++i)
            next[first + partition->cluster[i]].labels.push_back(node.labels[i]);
    }
    out.child_ptr.push_back(static_cast<int64_t>(out.children.size()));
}

void TreeBuilder::advance(const SplitStage& splits, Pool& pool) {
    std::vector<size_t> first_unit = {0};  // per tree
    for (const auto& level : open_) {
        const auto n =
            std::count_if(level.begin(), level.end(), [&](const OpenNode& node) { return must_split(node); });
        first_unit.push_back(first_unit.back() + static_cast<size_t>(n));
    }
    if (!splits.complete() || splits.n_units() != first_unit.back())
        throw std::invalid_argument("the splits are not those of this level, or not complete");
    pool.run(open_.size(), [&](size_t t, unsigned) {
        size_t unit = first_unit[t];
        std::vector<OpenNode> next;
        for (OpenNode& node : open_[t]) {
            pool.control().check();
            const Partition* partition = must_split(node) ? &splits.partition(unit++) : nullptr;
            append(node, partition, t, next);
            node = {};
        }
        open_[t] = std::move(next);
    });
    ++depth_;
}

ExpectedTree::ExpectedTree(double n_labels, const TreeParams& params)
    : n_nodes{1}, leaf_size(std::max(1.0, n_labels)) {
    const auto k = static_cast<double>(params.kmeans.k), largest = static_cast<double>(params.max_leaf_size);
    const size_t max_depth = params.max_depth > 0 ? params.max_depth : 64;
    while (leaf_size > largest && n_nodes.size() < max_depth) {
        leaf_size /= k;
        n_nodes.push_back(std::min(n_nodes.back() * k, n_labels / 2));
    }
    n_leaves = n_nodes.back();
    if (!params.kmeans.balanced && n_nodes.size() < max_depth)
        n_leaves = std::max(n_leaves, n_labels / std::max(2.0, largest / 12));
    leaf_size = std::max(2.0, leaf_size);
}

// The roots, or the largest nodes of the second level, which have about twice the mean size unless clusters
// are balanced.
double split_bytes(const ProblemSizes& sizes, const VectorSizes& vectors, const TreeParams& params,
                   double n_trees, unsigned threads) {
    const auto clustering = [&](double share) {
        return kmeans_bytes(share * sizes.n_present, vectors.used_columns(share), vectors.dense(),
                            params.kmeans);
    };
    const double n_roots = std::min<double>(n_trees, std::max(1u, threads / kThreadsOfRoot));
    double largest = n_roots * clustering(1) + 8 * sizes.n_present;
    const double k = std::min(static_cast<double>(params.kmeans.k), sizes.n_present);
    const double share = std::min(1.0, (params.kmeans.balanced ? 1 : 2) / k);
    if (sizes.n_present * share > 1) {
        const double of_node = clustering(share), n_nodes = std::min<double>(threads, n_trees / share);
        const double kept = std::min<double>(kMostKept, of_node) / 2;
        largest = std::max(largest, n_nodes * (sorting_bytes(vectors.part(share), 1) + of_node + kept));
    }
    return vectors.bytes() + 4 * sizes.n_present * n_trees * 4 + largest;
}

}  // namespace bonsai

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

#include "predict/batch.hpp"
#include "predict/row_trees.hpp"

namespace bonsai {
namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the trees are inconsistent: ") + what);
}

bool all_finite(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

// Buffers of a worker: one row at a time, as a dense vector.
class RowTrees::Row {
  public:
    Row(size_t n_features, size_t n_labels) : x(n_features), sums(n_labels) {}

    void read(const RowsView& rows, size_t i, bool normalize) {
        for (const uint32_t f : features) x[f] = 0;
        features.clear();
        norm = row_norm(rows, i);
        const float factor = normalize && norm >= kSmallestNorm ? static_cast<float>(1 / norm) : 1.0f;
        for_each_entry(rows, i, [&](uint32_t f, float value) {
            features.push_back(f);
            x[f] = value * factor;
        });
        norm *= factor;
    }

    ZeroedArray<float> x;
    std::vector<uint32_t> features;
    double norm = 0;
    ZeroedArray<double> sums;  // per label, all zero between rows
    std::vector<int32_t> labels;
    std::vector<RankedLabel> scored;
};

RowTrees::RowTrees(const RowTreeArrays& arrays, size_t n_features, size_t n_labels, bool normalize,
                   const RowTreeTail& tail, std::shared_ptr<const void> owner)
    : arrays_(arrays),
      n_features_(n_features),
      n_labels_(n_labels),
      normalize_(normalize),
      tail_(tail),
      owner_(std::move(owner)) {
    check_nodes();
    if (tail_.means.n_rows == 0) return;
    require(tail_.means.n_rows == n_labels && tail_.means.n_features == n_features,
            "the number of means must equal the number of labels");
    require(tail_.alpha >= 0 && tail_.alpha <= 1 && tail_.gamma >= 0 && std::isfinite(tail_.gamma),
            "alpha must be from 0 to 1, and gamma at least 0");
    for (size_t l = 0; l < n_labels; ++l) {
        double sum = 0;
        for_each_entry(tail_.means, l, [&](uint32_t, float value) { sum += double{value} * value; });
        require(std::isfinite(sum), "means must be finite");
        squared_means_.push_back(sum);
    }
}

void RowTrees::check_nodes() {
    const auto& a = arrays_;
    require(a.tree_ptr.size() >= 2 && a.tree_ptr.front() == 0 &&
                a.tree_ptr.back() == static_cast<int64_t>(a.is_leaf.size()),
            "tree_ptr must go from 0 to the number of nodes");
    require(a.is_leaf.size() < (uint64_t{1} << 31), "there must be fewer than 2^31 nodes");
    size_t n_inner = 0, n_leaves = 0;
    nodes_.reserve(a.is_leaf.size());
    for (size_t t = 0; t < n_trees(); ++t) {
        const int64_t begin = a.tree_ptr[t], end = a.tree_ptr[t + 1];
        require(begin < end && end <= a.tree_ptr.back(), "tree_ptr must ascend");
        int64_t known = begin + 1;  // nodes that have a parent
        for (int64_t i = begin; i < end; ++i) {
            require(i < known, "a node has no parent");
            if (a.is_leaf[i]) {
                nodes_.push_back({.number = static_cast<uint32_t>(n_leaves++), .child = 0});
            } else {
                nodes_.push_back(
                    {.number = static_cast<uint32_t>(n_inner++), .child = static_cast<uint32_t>(known)});
                known += 2;
            }
        }
        require(known == end, "a node lacks a child");
    }
    check_csr(a.weight_ptr, a.features, n_inner, n_features_, "features");
    check_csr(a.leaf_ptr, a.leaf_labels, n_leaves, n_labels_, "leaf_labels");
    require(a.weights.size() == a.features.size() && all_finite(a.weights),
            "every feature needs one finite weight");
    require(a.biases.size() == n_inner && all_finite(a.biases), "every inner node needs one finite bias");
    require(a.leaf_rows.size() == n_leaves, "leaf_rows must have one entry for each leaf");
    require(a.leaf_shares.size() == a.leaf_labels.size() &&
                std::all_of(a.leaf_shares.begin(), a.leaf_shares.end(),
                            [](float share) { return share > 0 && share <= 1; }),
            "label shares must be above 0 and at most 1");
}

float RowTrees::log_tail(const Row& row, int32_t label) const {
    const double unit = row.norm >= kSmallestNorm ? 1 / row.norm : 0;
    double product = 0;
    for_each_entry(tail_.means, static_cast<size_t>(label),
                   [&](uint32_t f, float value) { product += double{value} * row.x.data()[f]; });
    const double squared = (unit > 0 ? 1.0 : 0.0) - 2 * product * unit + squared_means_[label];
    const double z = tail_.gamma / 2 * std::max(0.0, squared);
    return static_cast<float>(-(z + std::log1p(std::exp(-z))));
}

size_t RowTrees::leaf_of(const Row& row, size_t tree) const {
    auto at = static_cast<size_t>(arrays_.tree_ptr[tree]);
    while (nodes_[at].child != 0) {
        const size_t number = nodes_[at].number;
        double margin = arrays_.biases[number];
        for (int64_t e = arrays_.weight_ptr[number]; e < arrays_.weight_ptr[number + 1]; ++e)
            margin += double{arrays_.weights[e]} * row.x.data()[arrays_.features[e]];
        at = nodes_[at].child + (margin > 0);
    }
    return nodes_[at].number;
}

template <class Fn>
void RowTrees::for_each(const RowsView& x, size_t begin, size_t end, Pool& pool, Fn&& fn) const {
    if (x.n_features != n_features_)
        throw std::invalid_argument("X has " + std::to_string(x.n_features) +
                                    " features, but the model has " + std::to_string(n_features_));
    std::vector<std::unique_ptr<Row>> rows(pool.threads());
    for_each_row(pool, begin, end, [&](size_t i, unsigned worker) {
        pool.control().check();
        if (!rows[worker]) rows[worker] = std::make_unique<Row>(n_features_, n_labels_);
        rows[worker]->read(x, i, normalize_);
        fn(*rows[worker], i);
    });
}

void RowTrees::leaves(const RowsView& x, Pool& pool, int32_t* leaves) const {
    for_each(x, 0, x.n_rows, pool, [&](const Row& row, size_t i) {
        for (size_t t = 0; t < n_trees(); ++t)
            leaves[i * n_trees() + t] = static_cast<int32_t>(leaf_of(row, t));
    });
}

void RowTrees::top_k(const RowsView& x, size_t k, std::span<const uint8_t> allowed, Pool& pool, int32_t* ids,
                     float* scores) const {
    pool.control().total = x.n_rows;
    rank(x, 0, x.n_rows, {k, ids, scores, &pool.control()}, allowed, pool);
}

void RowTrees::rank(const RowsView& x, size_t begin, size_t end, const TopKOutput& out,
                    std::span<const uint8_t> allowed, Pool& pool) const {
    if (!allowed.empty() && allowed.size() != n_labels_)
        throw std::invalid_argument("`allowed` needs one byte for each label");
    for_each(x, begin, end, pool, [&](Row& row, size_t i) {
        row.labels.clear();
        row.scored.clear();
        for (size_t t = 0; t < n_trees(); ++t) {
            const size_t leaf = leaf_of(row, t);
            for (int64_t e = arrays_.leaf_ptr[leaf]; e < arrays_.leaf_ptr[leaf + 1]; ++e) {
                double& sum = row.sums[arrays_.leaf_labels[e]];
                if (sum == 0) row.labels.push_back(arrays_.leaf_labels[e]);
                sum += arrays_.leaf_shares[e];
            }
        }
        for (const int32_t l : row.labels) {
            const double share = row.sums[l] / static_cast<double>(n_trees());
            row.sums[l] = 0;
            if (!allowed.empty() && !allowed[l]) continue;
            auto score = static_cast<float>(std::min(0.0, std::log(share)));
            if (has_tail()) score = tail_.alpha * score + (1 - tail_.alpha) * log_tail(row, l);
            row.scored.push_back({score, 0, static_cast<uint32_t>(l)});
        }
        out.write(i - begin, row.scored);
    });
}

}  // namespace bonsai

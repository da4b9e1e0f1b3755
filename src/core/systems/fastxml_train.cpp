#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/random.hpp"
#include "systems/fastxml.hpp"

namespace bonsai {
namespace {

// A node of a growing tree: a range of the tree's rows, and its address as a key.
struct Range {
    size_t begin, end;
    uint64_t key;
    NodeColumns columns;
};

// The result of training a node: weights, or the labels of a leaf.
struct Grown {
    bool is_leaf = true;
    size_t middle = 0;  // in the range: rows with a margin > 0 begin here
    std::vector<int32_t> ids;
    std::vector<float> values;
    float bias = 0;
    std::array<NodeColumns, 2> columns;  // of the children, unless both are leaves
};

// Grows nodes; one object per worker.
class Grower {
  public:
    Grower(const Dataset& data, const TreeColumns& columns, std::span<const float> label_weights,
           const FastXmlParams& params, const Kernels& kernels)
        : data_(data),
          label_weights_(label_weights),
          params_(params),
          split_(data, label_weights, params.gain),
          divider_(columns),
          solver_(kernels),
          sums_(data.n_labels(), 0.0) {}

    // Rows of the node, which are reordered by child, and their columns, in `memory` or of all rows.
    Grown grow(std::span<uint32_t> rows, const NodeColumns& columns, uint64_t key, ColumnMemory& memory,
               const Control& control) {
        control.check();
        Grown grown;
        if (rows.size() > params_.max_leaf_rows) divide(rows, columns, key, memory, control, grown);
        if (grown.is_leaf) make_leaf(rows, grown);
        return grown;
    }

  private:
    void divide(std::span<uint32_t> rows, const NodeColumns& columns, uint64_t key, ColumnMemory& memory,
                const Control& control, Grown& grown) {
        Rng rng(derive(key, kForClustering));
        side_.resize(rows.size());
        for (int8_t& side : side_) side = rng.next() >> 63 ? 1 : -1;
        split_.divide(rows, side_);
        const auto n_right = std::count(side_.begin(), side_.end(), 1);
        if (n_right == 0 || static_cast<size_t>(n_right) == rows.size()) return;
        cost_.resize(rows.size());
        for (size_t i = 0; i < rows.size(); ++i)
            cost_[i] = static_cast<float>(params_.c * data_.weight(rows[i]));
        solver_.solve(columns, side_, cost_, params_.solver, Rng(derive(key, kForSolver)), control);
        const size_t middle = divide_by_margin(rows, columns);
        if (middle == 0 || middle == rows.size()) return;
        grown.is_leaf = false;
        grown.middle = middle;
        grown.bias = solver_.bias();
        for (const auto& [feature, j] : used_) {
            grown.ids.push_back(static_cast<int32_t>(data_.feature_of(feature)));
            grown.values.push_back(solver_.weights()[j]);
        }
        if (std::max(middle, rows.size() - middle) > params_.max_leaf_rows)
            grown.columns = divider_.divide(columns, is_right_, memory);
    }
    // Margins are summed in the same order as in prediction: training rows reach the leaves they belong to.
    size_t divide_by_margin(std::span<uint32_t> rows, const NodeColumns& columns) {
        margin_.assign(rows.size(), double{solver_.bias()});
        used_.clear();
        for (size_t j = 0; j < columns.size(); ++j)
            if (solver_.weights()[j] != 0) used_.emplace_back(columns.feature(j), j);
        std::sort(used_.begin(), used_.end());
        for (const auto& [feature, j] : used_) {
            const double weight = solver_.weights()[j];
            columns.for_each(j, [&](size_t i, float value) { margin_[i] += weight * value; });
        }
        is_right_.resize(rows.size());
        right_.clear();
        size_t n_left = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
            is_right_[i] = margin_[i] > 0;
            if (is_right_[i])
                right_.push_back(rows[i]);
            else
                rows[n_left++] = rows[i];
        }
        std::copy(right_.begin(), right_.end(), rows.begin() + static_cast<ptrdiff_t>(n_left));
        return n_left;
    }
    void make_leaf(std::span<const uint32_t> rows, Grown& grown) {
        double total = 0;
        for (const uint32_t row : rows) {
            total += data_.weight(row);
            for (const int32_t l : data_.labels_of(row)) {
                if (sums_[l] == 0) grown.ids.push_back(l);
                sums_[l] += data_.weight(row) * (label_weights_.empty() ? 1.0 : label_weights_[l]);
            }
        }
        if (grown.ids.size() > params_.max_leaf_labels) {
            const auto last = grown.ids.begin() + static_cast<ptrdiff_t>(params_.max_leaf_labels);
            std::nth_element(grown.ids.begin(), last, grown.ids.end(), [&](int32_t a, int32_t b) {
                return sums_[a] != sums_[b] ? sums_[a] > sums_[b] : a < b;
            });
            for (auto it = last; it != grown.ids.end(); ++it) sums_[*it] = 0;
            grown.ids.erase(last, grown.ids.end());
        }
        std::sort(grown.ids.begin(), grown.ids.end());
        for (const int32_t l : grown.ids) {
            grown.values.push_back(std::min(1.0f, static_cast<float>(sums_[l] / total)));
            sums_[l] = 0;
        }
    }

    const Dataset& data_;
    std::span<const float> label_weights_;
    const FastXmlParams& params_;
    RankingSplit split_;
    ColumnDivider divider_;
    L1Logistic solver_;
    std::vector<int8_t> side_;
    std::vector<float> cost_;
    std::vector<double> margin_, sums_;  // sums_: per label, all zero between calls
    std::vector<uint8_t> is_right_;
    std::vector<uint32_t> right_;
    std::vector<std::pair<uint32_t, size_t>> used_;  // (feature, column) with a weight, ascending
};

template <class T>
void append(std::vector<T>& to, const std::vector<T>& values) {
    to.insert(to.end(), values.begin(), values.end());
}

void append(OwnedRowTrees& tree, const Range& range, const Grown& grown) {
    tree.is_leaf.push_back(grown.is_leaf);
    auto& ids = grown.is_leaf ? tree.leaf_labels : tree.features;
    append(ids, grown.ids);
    append(grown.is_leaf ? tree.leaf_shares : tree.weights, grown.values);
    (grown.is_leaf ? tree.leaf_ptr : tree.weight_ptr).push_back(static_cast<int64_t>(ids.size()));
    if (grown.is_leaf)
        tree.leaf_rows.push_back(static_cast<int32_t>(range.end - range.begin));
    else
        tree.biases.push_back(grown.bias);
}

// Appends level by level. The pointers do not include the initial 0.
OwnedRowTrees grow_tree(const Dataset& data, const TreeColumns& columns,
                        std::vector<std::unique_ptr<Grower>>& growers, const FastXmlParams& params,
                        uint64_t key, ProgressShare& progress, Pool& pool) {
    const double levels = 2 + std::max(0.0, std::log2(static_cast<double>(data.n_rows()) /
                                                      static_cast<double>(params.max_leaf_rows)));
    OwnedRowTrees tree;
    std::vector<uint32_t> rows(data.n_rows());
    std::iota(rows.begin(), rows.end(), 0u);
    ColumnMemory memory = columns.memory_of_tree();
    std::vector<Range> level;
    level.push_back({0, rows.size(), key, columns.root()});
    std::vector<Grown> grown;
    for (double worked = 0; !level.empty();) {
        grown.assign(level.size(), {});
        pool.run(level.size(), [&](size_t i, unsigned worker) {
            const Range& range = level[i];
            grown[i] = growers[worker]->grow({rows.data() + range.begin, range.end - range.begin},
                                             range.columns, range.key, memory, pool.control());
        });
        std::vector<Range> next;
        for (size_t i = 0; i < level.size(); ++i) {
            const auto& [begin, end, at, _] = level[i];
            append(tree, level[i], grown[i]);
            worked += static_cast<double>(end - begin);
            if (grown[i].is_leaf) continue;
            const size_t middle = begin + grown[i].middle;
            next.push_back({begin, middle, derive(at, 0), std::move(grown[i].columns[0])});
            next.push_back({middle, end, derive(at, 1), std::move(grown[i].columns[1])});
        }
        level = std::move(next);
        progress.advance_to(std::min(0.95, worked / (levels * static_cast<double>(data.n_rows()))));
    }
    progress.finish();
    return tree;
}

// The pointers of a tree continue those of the tree before it.
void append_pointers(std::vector<int64_t>& to, const std::vector<int64_t>& ptr) {
    const int64_t last = to.back();
    for (const int64_t end : ptr) to.push_back(last + end);
}

}  // namespace

OwnedRowTrees train_fastxml(const Dataset& data, std::span<const float> label_weights,
                            const FastXmlParams& params, const Kernels& kernels, Pool& pool) {
    const TreeColumns columns(data, params.c);
    std::vector<std::unique_ptr<Grower>> growers;
    for (unsigned worker = 0; worker < pool.threads(); ++worker)
        growers.push_back(std::make_unique<Grower>(data, columns, label_weights, params, kernels));
    std::vector<OwnedRowTrees> trees(params.n_trees);
    pool.control().total = params.n_trees * (data.n_rows() + 1);
    pool.run(params.n_trees, [&](size_t t, unsigned) {
        ProgressShare progress(pool.control(), data.n_rows() + 1);
        trees[t] = grow_tree(data, columns, growers, params, derive(params.seed, t), progress, pool);
    });
    growers.clear();
    OwnedRowTrees all;
    all.tree_ptr = all.weight_ptr = all.leaf_ptr = {0};
    for (OwnedRowTrees& tree : trees) {
        all.tree_ptr.push_back(all.tree_ptr.back() + static_cast<int64_t>(tree.is_leaf.size()));
        append_pointers(all.weight_ptr, tree.weight_ptr);
        append_pointers(all.leaf_ptr, tree.leaf_ptr);
        append(all.is_leaf, tree.is_leaf);
        append(all.features, tree.features);
        append(all.weights, tree.weights);
        append(all.biases, tree.biases);
        append(all.leaf_labels, tree.leaf_labels);
        append(all.leaf_shares, tree.leaf_shares);
        append(all.leaf_rows, tree.leaf_rows);
        tree = {};
    }
    return all;
}

}  // namespace bonsai

// Single parts of training, for tests; not included in wheels.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "kernels/kernels.hpp"
#include "linear/solve.hpp"
#include "python/arrays.hpp"
#include "python/bind_dataset.hpp"
#include "python/params.hpp"
#include "python/watched.hpp"
#include "systems/fastxml_split.hpp"
#include "systems/l1_logistic.hpp"
#include "systems/pd_sparse.hpp"
#include "tree/kmeans.hpp"
#include "tree/train_trees.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace bonsai;

namespace {

// k-means alone, on unit or zero rows: (cluster of each row, number of clusters, objective after each
// iteration).
nb::tuple partition(nb::object vectors, nb::dict params, uint64_t key, unsigned threads) {
    const RowsIn rows(vectors, "vectors");
    rows.check();
    const KMeansParams kmeans = kmeans_params(params);
    const Kernels& kernels = bonsai::kernels();
    Partition out;
    run_watched(threads, nb::none(), [&](Pool& pool) {
        out = partition_rows(rows.view(), kmeans, Rng(derive(key, kForClustering)), kernels, pool);
    });
    return nb::make_tuple(to_numpy(std::move(out.cluster)), out.n_clusters,
                          to_numpy(std::move(out.objective)));
}

// The classifiers of one problem before quantisation and packing: (weights, biases, iterations). Class c of
// the problem is label c of the data set.
nb::tuple solve(const PyDataset& dataset, nb::dict params, uint64_t key) {
    const LinearParams linear = linear_params(params);
    const Dataset& data = dataset.data();
    std::vector<uint32_t> ids(data.n_rows()), labels(data.n_labels());
    std::iota(ids.begin(), ids.end(), 0u);
    std::iota(labels.begin(), labels.end(), 0u);
    Control control;
    Slice::Scratch scratch;
    Pool pool(1, control);
    const Slice slice(data.x(), ids, data.factors(), scratch, pool, eliminates_singletons(linear));
    const Problem problem = build_problem(data, ids, slice, labels, labels.size(), key);
    const std::vector<uint32_t> features = data.features_of(slice.features());
    std::vector<float> w(data.n_labels() * data.n_features(), 0.0f), bias;
    std::vector<int32_t> n_iter;
    for (size_t first = 0; first < data.n_labels(); first += kMaxLanes) {
        const size_t n = std::min(kMaxLanes, data.n_labels() - first);
        const Solution s = solve_panel(problem, first, n, linear, kernels(), control);
        for (const Weight& e : s.weights) w[e.cls * data.n_features() + features[e.feature]] = e.value;
        bias.insert(bias.end(), s.bias.begin(), s.bias.end());
        n_iter.insert(n_iter.end(), s.n_iter.begin(), s.n_iter.end());
    }
    return nb::make_tuple(to_numpy(std::move(w), {data.n_labels(), data.n_features()}),
                          to_numpy(std::move(bias)), to_numpy(std::move(n_iter)));
}

// The solver of a node and its columns, in memory that nodes use one after the other, as in training.
class NodeSolver {
  public:
    NodeSolver(const Dataset& data, double c)
        : data_(data),
          c_(c),
          all_(data, c),
          memory_{all_.memory_of_tree(), all_.memory_of_tree()},
          divider_(all_),
          solver_(kernels()) {
        rows_.resize(data.n_rows());
        std::iota(rows_.begin(), rows_.end(), 0u);
        columns_ = all_.root();
        set_parent();
    }
    // The node is the parent of those that `divide` makes.
    void set_parent() {
        parent_ = columns_;
        rows_of_parent_ = rows_;
        std::swap(memory_[0], memory_[1]);
    }
    // Makes the right child of the parent the node. The parent stays.
    void divide(In<uint8_t> right) {
        columns_ = std::move(divider_.divide(parent_, span(right), memory_[0])[1]);
        rows_.clear();
        for (size_t i = 0; i < right.size(); ++i)
            if (right.data()[i]) rows_.push_back(rows_of_parent_[i]);
    }
    // The rows of the node, with 0 in columns that get no weight.
    nb::object matrix() const {
        std::vector<float> x(rows_.size() * data_.n_features(), 0.0f);
        for (size_t j = 0; j < columns_.size(); ++j)
            columns_.for_each(j, [&](size_t i, float value) {
                x[i * data_.n_features() + data_.feature_of(columns_.feature(j))] = value;
            });
        return to_numpy(std::move(x), {rows_.size(), data_.n_features()});
    }
    // L1-regularised logistic regression: (weights of all features, bias, objective, iterations).
    nb::tuple solve(In<int8_t> signs, double tol, int max_iter) {
        std::vector<float> cost(rows_.size()), w(data_.n_features(), 0.0f);
        for (size_t i = 0; i < cost.size(); ++i) cost[i] = static_cast<float>(c_ * data_.weight(rows_[i]));
        Control control;
        solver_.solve(columns_, span(signs), cost, {.tol = tol, .max_iter = max_iter}, Rng(0), control);
        for (size_t j = 0; j < columns_.size(); ++j)
            w[data_.feature_of(columns_.feature(j))] = solver_.weights()[j];
        return nb::make_tuple(to_numpy(std::move(w)), solver_.bias(), solver_.objective(), solver_.n_iter());
    }

  private:
    const Dataset& data_;
    const double c_;
    const TreeColumns all_;
    std::array<ColumnMemory, 2> memory_;  // of the node, of the parent
    ColumnDivider divider_;
    L1Logistic solver_;
    NodeColumns columns_, parent_;
    std::vector<uint32_t> rows_, rows_of_parent_;
};

// The sides of all rows after FastXML's rounds, starting from the given sides.
nb::object divide_by_ranking(const PyDataset& dataset, std::optional<In<float>> label_weights,
                             In<int8_t> sides, bool by_ranking) {
    const Dataset& data = dataset.data();
    std::vector<uint32_t> ids(data.n_rows());
    std::iota(ids.begin(), ids.end(), 0u);
    std::vector<int8_t> divided(sides.data(), sides.data() + sides.size());
    RankingSplit(data, label_weights ? span(*label_weights) : std::span<const float>(),
                 by_ranking ? SideGain::kRank : SideGain::kShare)
        .divide(ids, divided);
    return to_numpy(std::move(divided));
}

// The projection of (a, b) by `project_pairs` or `project_sums`.
nb::tuple projected(In<double> a, In<double> b, double c, bool largest) {
    std::vector<double> first(a.data(), a.data() + a.size()), second(b.data(), b.data() + b.size());
    (largest ? project_sums : project_pairs)(first, second, c);
    return nb::make_tuple(to_numpy(std::move(first)), to_numpy(std::move(second)));
}

}  // namespace

NB_MODULE(_core_testing, m) {
    nb::module_::import_("bonsai_xmc._core");  // registers the type of `dataset`
    m.def("partition", partition, "vectors"_a, "params"_a, "key"_a, "threads"_a = 1);
    m.def("solve", solve, "dataset"_a, "params"_a, "key"_a);
    nb::class_<NodeSolver>(m, "NodeSolver")
        .def(
            "__init__",
            [](NodeSolver* self, const PyDataset& dataset, double c) {
                new (self) NodeSolver(dataset.data(), c);
            },
            "dataset"_a, "C"_a, nb::keep_alive<1, 2>())
        .def("set_parent", &NodeSolver::set_parent)
        .def("divide", &NodeSolver::divide, "right"_a.noconvert())
        .def("matrix", &NodeSolver::matrix)
        .def("solve", &NodeSolver::solve, "signs"_a.noconvert(), "tol"_a, "max_iter"_a);
    m.def("divide_by_ranking", divide_by_ranking, "dataset"_a, "label_weights"_a.noconvert().none(),
          "sides"_a.noconvert(), "by_ranking"_a = true);
    m.def("project_pairs", projected, "a"_a.noconvert(), "b"_a.noconvert(), "c"_a, "largest"_a = false);
}

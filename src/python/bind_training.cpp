// Trees, and the functions that train.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "kernels/kernels.hpp"
#include "model/forest.hpp"
#include "one_vs_rest/train_one_vs_rest.hpp"
#include "python/arrays.hpp"
#include "python/bind_dataset.hpp"
#include "python/bindings.hpp"
#include "python/params.hpp"
#include "python/watched.hpp"
#include "tree/build.hpp"
#include "tree/train_trees.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

// Trees over the same labels, all of them valid.
struct Trees {
    std::vector<Tree> trees;
    size_t n_labels;

    std::vector<TreeView> views() const {
        std::vector<TreeView> all;
        for (const Tree& tree : trees) all.push_back(tree.view());
        return all;
    }
    const Tree& at(size_t tree) const {
        if (tree >= trees.size()) throw nb::index_error("no such tree");
        return trees[tree];
    }
};

// Memory that is free goes back to the system. Each phase of training has threads of its own, and with them a
// heap of its own: what one leaves there the next cannot use.
void give_back_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

template <class T>
std::vector<T> copied(nb::handle array, const char* name) {
    const auto values = span(cast_array<In<T>>(array, name));
    return {values.begin(), values.end()};
}

std::unique_ptr<Trees> trees_from_arrays(nb::sequence arrays, size_t n_labels) {
    auto made = std::make_unique<Trees>();
    made->n_labels = n_labels;
    for (nb::handle tree : arrays) {
        const auto parts = nb::cast<nb::tuple>(tree);
        if (parts.size() != 3) throw nb::type_error("a tree is (child_ptr, children, is_leaf)");
        made->trees.push_back({copied<int64_t>(parts[0], "child_ptr"), copied<int32_t>(parts[1], "children"),
                               copied<uint8_t>(parts[2], "is_leaf")});
    }
    if (made->trees.empty()) throw std::invalid_argument("there must be at least one tree");
    const nb::gil_scoped_release unlock;
    for (const TreeView& view : made->views()) validate_tree(view, n_labels);
    return made;
}

nb::list arrays_of(nb::handle self) {
    nb::list out;
    for (const Tree& tree : nb::cast<const Trees&>(self).trees)
        out.append(nb::make_tuple(view_numpy<int64_t>(tree.child_ptr, self),
                                  view_numpy<int32_t>(tree.children, self),
                                  view_numpy<uint8_t>(tree.is_leaf, self)));
    return out;
}

nb::object leaf_order(const Trees& trees, size_t tree) {
    const Tree& t = trees.at(tree);
    std::vector<uint32_t> labels;
    for (size_t v = 0; v < t.n_nodes(); ++v)
        if (t.is_leaf[v])
            labels.insert(labels.end(), t.children.begin() + t.child_ptr[v],
                          t.children.begin() + t.child_ptr[v + 1]);
    return to_numpy(std::move(labels));
}

void check_labels(std::span<const uint32_t> labels, size_t n_labels, bool ascending) {
    if (labels.empty()) throw std::invalid_argument("labels is empty");
    std::vector<bool> seen(n_labels);
    for (size_t i = 0; i < labels.size(); ++i) {
        if (labels[i] >= n_labels)
            throw std::invalid_argument("labels holds " + std::to_string(labels[i]) +
                                        ", but there are only " + std::to_string(n_labels));
        if (seen[labels[i]] || (ascending && i > 0 && labels[i] < labels[i - 1]))
            throw std::invalid_argument("labels holds " + std::to_string(labels[i]) +
                                        (ascending ? " twice or out of order" : " twice"));
        seen[labels[i]] = true;
    }
}

std::unique_ptr<Trees> build(const LabelVectors& vectors, In<uint32_t> labels, size_t n_trees,
                             nb::dict params, uint64_t seed, unsigned threads, nb::object progress) {
    const TreeParams checked = tree_params(params, seed);
    if (n_trees < 1) throw std::invalid_argument("n_trees is 0, but must be at least 1");
    const Kernels& kernels = bonsai::kernels();
    auto made = std::make_unique<Trees>();
    made->n_labels = vectors.view().n_rows;
    give_back_memory();
    run_watched(threads, progress, [&](Pool& pool) {
        check_labels(span(labels), vectors.view().n_rows, true);
        made->trees = build_trees(vectors.view(), span(labels), n_trees, checked, kernels, pool);
    });
    return made;
}

nb::tuple trained(OwnedForest&& made, const Dataset& data, bool routing_only, const TrainReport& report) {
    auto forest = std::make_shared<Forest>(std::move(made), data.n_features(), data.n_labels(), routing_only);
    give_back_memory();
    nb::dict numbers;
    numbers["n_classifiers"] = report.n_classifiers;
    numbers["n_unconverged"] = report.n_unconverged;
    numbers["max_iter"] = report.max_iter;
    return nb::make_tuple(std::move(forest), numbers);
}

nb::tuple train_classifiers_of_trees(const PyDataset& dataset, const Trees& trees, nb::dict params,
                                     uint64_t seed, bool routing_only, unsigned threads,
                                     nb::object progress) {
    const LinearParams linear = linear_params(params);
    if (trees.n_labels != dataset.data().n_labels())
        throw std::invalid_argument("the trees are made for " + std::to_string(trees.n_labels) +
                                    " labels, but the data set has " +
                                    std::to_string(dataset.data().n_labels()));
    const Kernels& kernels = bonsai::kernels();
    OwnedForest made;
    TrainReport report;
    give_back_memory();
    run_watched(threads, progress, [&](Pool& pool) {
        made = train_trees(dataset.data(), trees.views(), seed, linear, routing_only, kernels, pool, report);
    });
    return trained(std::move(made), dataset.data(), routing_only, report);
}

nb::tuple train_classifiers_of_labels(const PyDataset& dataset, In<uint32_t> labels, In<float> costs,
                                      double frequent_share, nb::dict params, uint64_t seed, unsigned threads,
                                      nb::object progress) {
    const LinearParams linear = linear_params(params);
    if (costs.size() != 0 && costs.size() != labels.size())
        throw std::invalid_argument("costs has " + std::to_string(costs.size()) + " entries for " +
                                    std::to_string(labels.size()) + " labels: one cost for each label");
    const Kernels& kernels = bonsai::kernels();
    OwnedForest made;
    TrainReport report;
    give_back_memory();
    run_watched(threads, progress, [&](Pool& pool) {
        check_labels(span(labels), dataset.data().n_labels(), false);
        made = train_one_vs_rest(dataset.data(), span(labels), span(costs), frequent_share, seed, linear,
                                 kernels, pool, report);
    });
    return trained(std::move(made), dataset.data(), false, report);
}

}  // namespace

void bind_training(nb::module_& m) {
    nb::class_<Trees>(m, "Trees", "Label trees without classifiers.")
        .def_static(
            "from_arrays", &trees_from_arrays, "arrays"_a, "n_labels"_a,
            "arrays: (child_ptr int64, children int32, is_leaf uint8) for each tree; copied, checked.")
        .def("__len__", [](const Trees& t) { return t.trees.size(); })
        .def_prop_ro("n_labels", [](const Trees& t) { return t.n_labels; })
        .def("arrays", &arrays_of, "(child_ptr, children, is_leaf) for each tree; read-only views.")
        .def("leaf_order", &leaf_order, "tree"_a,
             nb::sig("def leaf_order(self, tree: int) -> NDArray[numpy.uint32]"),
             "The labels of a tree, leaf by leaf.");
    m.def("build_trees", build, "vectors"_a, "labels"_a.noconvert(), "n_trees"_a, "params"_a, "seed"_a,
          "threads"_a, "progress"_a = nb::none(),
          "Trees over `labels` (uint32, ascending), clustered by their vectors.");
    m.def("train_trees", train_classifiers_of_trees, "dataset"_a, "trees"_a, "params"_a, "seed"_a,
          "routing_only"_a, "threads"_a, "progress"_a = nb::none(),
          nb::sig(
              "def train_trees(dataset: Dataset, trees: Trees, params: dict, seed: int, routing_only: bool, "
              "threads: int, progress: object | None = None) -> tuple[Forest, dict[str, int]]"),
          "(Forest, report): the classifiers of all nodes; of inner nodes alone if routing_only.");
    m.def("train_one_vs_rest", train_classifiers_of_labels, "dataset"_a, "labels"_a.noconvert(),
          "costs"_a.noconvert(), "frequent_share"_a, "params"_a, "seed"_a, "threads"_a,
          "progress"_a = nb::none(),
          nb::sig("def train_one_vs_rest(dataset: Dataset, labels: NDArray[numpy.uint32], costs: "
                  "NDArray[numpy.float32], frequent_share: float, params: dict, seed: int, threads: int, "
                  "progress: object | None = None) -> tuple[Forest, dict[str, int]]"),
          "(Forest, report): one classifier for each of `labels` (uint32), trained on all rows. costs, "
          "float32, multiply C; empty: all 1. Labels of more than frequent_share of the rows learn their "
          "bias.");
}

}  // namespace bonsai

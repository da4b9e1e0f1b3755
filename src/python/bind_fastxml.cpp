// FastXML and PfastreXML.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/arrays.hpp"
#include "python/bind_dataset.hpp"
#include "python/bindings.hpp"
#include "python/watched.hpp"
#include "systems/fastxml.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

nb::dict train(const PyDataset& dataset, const std::optional<In<float>>& label_weights, uint32_t n_trees,
               uint32_t max_leaf_rows, uint32_t max_leaf_labels, double c, double tol, int max_iter,
               uint64_t seed, unsigned threads, bool by_ranking, const nb::object& progress) {
    const FastXmlParams params{.n_trees = n_trees,
                               .max_leaf_rows = max_leaf_rows,
                               .max_leaf_labels = max_leaf_labels,
                               .c = c,
                               .gain = by_ranking ? SideGain::kRank : SideGain::kShare,
                               .solver = {.tol = tol, .max_iter = max_iter},
                               .seed = seed};
    const auto weights = label_weights ? span(*label_weights) : std::span<const float>();
    OwnedRowTrees grown;
    run_watched(threads, progress,
                [&](Pool& pool) { grown = train_fastxml(dataset.data(), weights, params, kernels(), pool); });
    nb::dict arrays;
    for_each_row_tree_array([&](const char* name, auto& array) { arrays[name] = to_numpy(std::move(array)); },
                            grown);
    return arrays;
}

std::shared_ptr<RowTrees> model_of(const nb::dict& arrays, size_t n_features, size_t n_labels, bool normalize,
                                   nb::handle means, float alpha, float gamma) {
    RowTreeArrays views;
    nb::list kept;
    for_each_row_tree_array(
        [&](const char* name, auto& view) {
            if (!arrays.contains(name))
                throw std::invalid_argument(std::string("the trees are incomplete; missing array: ") + name);
            using T = std::remove_const_t<typename std::decay_t<decltype(view)>::element_type>;
            view = span(cast_array<In<T>>(arrays[name], name));
            kept.append(arrays[name]);
        },
        views);
    RowTreeTail tail{.alpha = alpha, .gamma = gamma};
    if (!means.is_none()) {
        const RowsIn rows(means, "means");
        rows.check();
        tail.means = rows.view();
        kept.append(means);
    }
    const auto owner = keep_alive(kept);
    const nb::gil_scoped_release unlock;
    return std::make_shared<RowTrees>(views, n_features, n_labels, normalize, tail, owner);
}

nb::dict arrays_of(nb::handle self) {
    nb::dict arrays;
    for_each_row_tree_array([&](const char* name, auto view) { arrays[name] = view_numpy(view, self); },
                            RowTreeArrays(nb::cast<const RowTrees&>(self).arrays()));
    return arrays;
}

// Few rows need neither further threads nor a watching thread.
template <class Fn>
void run_for(const RowsIn& rows, unsigned threads, const nb::object& progress, Fn&& fn) {
    constexpr size_t few = 16;
    const auto work = [&](Pool& pool) {
        rows.check();
        fn(pool);
    };
    if (rows.view().n_rows > few) return run_watched(threads, progress, work);
    const nb::gil_scoped_release unlock;
    Control control;
    Pool pool(1, control);
    work(pool);
}

nb::tuple top_k_of(const RowTrees& model, nb::handle x, size_t k, const std::optional<In<uint8_t>>& allowed,
                   unsigned threads, const nb::object& progress) {
    const RowsIn rows(x, "X");
    const size_t n_rows = rows.view().n_rows;
    if (k > model.n_labels())
        throw std::invalid_argument("k is " + std::to_string(k) + ", but the model has " +
                                    std::to_string(model.n_labels()) + " labels");
    std::vector<int32_t> ids(n_rows * k);
    std::vector<float> scores(n_rows * k);
    run_for(rows, threads, progress, [&](Pool& pool) {
        model.top_k(rows.view(), k, allowed ? span(*allowed) : std::span<const uint8_t>(), pool, ids.data(),
                    scores.data());
    });
    return nb::make_tuple(to_numpy(std::move(ids), {n_rows, k}), to_numpy(std::move(scores), {n_rows, k}));
}

nb::object leaves_of(const RowTrees& model, nb::handle x, unsigned threads) {
    const RowsIn rows(x, "X");
    const size_t n_rows = rows.view().n_rows, n_trees = model.n_trees();
    std::vector<int32_t> leaves(n_rows * n_trees);
    run_for(rows, threads, nb::none(), [&](Pool& pool) { model.leaves(rows.view(), pool, leaves.data()); });
    return to_numpy(std::move(leaves), {n_rows, n_trees});
}

}  // namespace

void bind_fastxml(nb::module_& m) {
    m.def("train_fastxml", &train, "dataset"_a, "label_weights"_a.noconvert().none(), nb::kw_only(),
          "n_trees"_a, "max_leaf_rows"_a, "max_leaf_labels"_a, "C"_a, "tol"_a, "max_iter"_a, "seed"_a,
          "threads"_a, "by_ranking"_a = true, "progress"_a = nb::none(),
          nb::sig("def train_fastxml(dataset: Dataset, label_weights: NDArray[numpy.float32] | None, *, "
                  "n_trees: int, max_leaf_rows: int, max_leaf_labels: int, C: float, tol: float, "
                  "max_iter: int, seed: int, threads: int, by_ranking: bool = True, "
                  "progress: object | None = None) -> dict[str, NDArray]"),
          "Train trees and return their arrays. label_weights, if given, are those of PfastXML. Without "
          "by_ranking, "
          "nodes divide rows by 2-means of their labels.");
    nb::class_<RowTrees>(m, "RowTrees", "Trees over rows, of FastXML or PfastreXML. Immutable.")
        .def(nb::new_(&model_of), "arrays"_a, "n_features"_a, "n_labels"_a, "normalize"_a,
             "means"_a.none() = nb::none(), "alpha"_a = 1.0f, "gamma"_a = 0.0f,
             "Build the trees from arrays, which are checked. means, if given: the mean of each label's unit "
             "rows.")
        .def_prop_ro("n_features", &RowTrees::n_features)
        .def_prop_ro("n_labels", &RowTrees::n_labels)
        .def_prop_ro("n_trees", &RowTrees::n_trees)
        .def_prop_ro("normalize", &RowTrees::normalize)
        .def("arrays", &arrays_of, nb::sig("def arrays(self) -> dict[str, NDArray]"),
             "The arrays as the model file stores them; read-only views.")
        .def(
            "__deepcopy__", [](nb::object self, nb::handle) { return self; }, "memo"_a)
        .def("__reduce__",
             [](nb::object self) {
                 const auto& trees = nb::cast<const RowTrees&>(self);
                 if (trees.has_tail()) throw nb::type_error("trees with a tail classifier are not pickled");
                 return nb::make_tuple(self.type(), nb::make_tuple(arrays_of(self), trees.n_features(),
                                                                   trees.n_labels(), trees.normalize()));
             })
        .def("top_k", &top_k_of, "x"_a, "k"_a, nb::kw_only(), "allowed"_a.noconvert() = nb::none(),
             "threads"_a = 1, "progress"_a = nb::none(),
             nb::sig("def top_k(self, x: object, k: int, *, allowed: NDArray[numpy.uint8] | None = None, "
                     "threads: int = 1, progress: object | None = None) -> tuple[NDArray[numpy.int32], "
                     "NDArray[numpy.float32]]"),
             "(ids, log scores) of the k best labels of each row; -1 and -inf where there are fewer.")
        .def("leaves", &leaves_of, "x"_a, nb::kw_only(), "threads"_a = 1,
             nb::sig("def leaves(self, x: object, *, threads: int = 1) -> NDArray[numpy.int32]"),
             "The leaf that each row reaches in each tree, numbered consecutively over all trees.");
}

}  // namespace bonsai

// Forest, LabelIndex and Model.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "model/edit.hpp"
#include "model/forest.hpp"
#include "predict/model.hpp"
#include "predict/top_k.hpp"
#include "python/arrays.hpp"
#include "python/bindings.hpp"
#include "python/params.hpp"
#include "python/watched.hpp"
#include "search/label_index.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

// Sets a view to the array with this name and keeps the array alive.
template <class View>
void borrow(const nb::dict& arrays, const char* name, View& view, nb::list& kept) {
    if (!arrays.contains(name))
        throw std::invalid_argument(std::string("the model is incomplete; missing array: ") + name);
    using T = std::remove_const_t<typename View::element_type>;
    const auto array = cast_array<In<T>>(arrays[name], name);
    view = span(array);
    kept.append(arrays[name]);
}

std::shared_ptr<Forest> forest_from_arrays(const nb::dict& arrays, size_t n_features, size_t n_labels,
                                           std::shared_ptr<Forest> residual) {
    ForestArrays views;
    nb::list kept;
    for_each_array([&](const char* name, auto& view) { borrow(arrays, name, view, kept); }, views);
    const auto owner = keep_alive(kept);
    const nb::gil_scoped_release unlock;
    return std::make_shared<Forest>(views, n_features, n_labels, owner, std::move(residual));
}

std::shared_ptr<Forest> pruned_forest(const Forest& forest, float prune, unsigned threads) {
    std::shared_ptr<Forest> made;
    run_watched(threads, nb::none(), [&](Pool& pool) { made = pruned(forest, prune, pool); });
    return made;
}

std::shared_ptr<LabelIndex> index_from_arrays(const nb::dict& arrays, size_t n_features,
                                              size_t n_classifiers) {
    LabelIndexArrays views;
    nb::list kept;
    for_each_index_array(
        [&](const char* name, auto& view) {
            if (name != kListedFeatures || arrays.contains(name)) borrow(arrays, name, view, kept);
        },
        views);
    const auto owner = keep_alive(kept);
    const nb::gil_scoped_release unlock;
    return std::make_shared<LabelIndex>(views, n_features, n_classifiers, owner);
}

std::shared_ptr<LabelIndex> index_of(const Forest& one_vs_rest, unsigned threads,
                                     const nb::object& progress) {
    OwnedLabelIndex made;
    run_watched(threads, progress, [&](Pool& pool) { made = build_label_index(one_vs_rest, pool); });
    return std::make_shared<LabelIndex>(std::move(made), one_vs_rest.n_features(),
                                        one_vs_rest.arrays().children.size());
}

nb::dict arrays_of_index(nb::handle self) {
    nb::dict arrays;
    for_each_index_array(
        [&](const char* name, auto view) {
            if (name != kListedFeatures || !view.empty()) arrays[name] = view_numpy(view, self);
        },
        LabelIndexArrays(nb::cast<const LabelIndex&>(self).arrays()));
    return arrays;
}

nb::dict arrays_of(nb::handle self) {
    nb::dict arrays;
    for_each_array([&](const char* name, auto view) { arrays[name] = view_numpy(view, self); },
                   ForestArrays(nb::cast<const Forest&>(self).arrays()));
    return arrays;
}

// The weights of a node as arrays (child, feature, value).
nb::tuple weights_of(const Forest& forest, size_t node) {
    std::vector<uint32_t> children, features;
    std::vector<float> values;
    {
        const nb::gil_scoped_release unlock;
        forest.for_each_weight(node, [&](size_t child, size_t feature, float value) {
            children.push_back(static_cast<uint32_t>(child));
            features.push_back(static_cast<uint32_t>(feature));
            values.push_back(value);
        });
    }
    return nb::make_tuple(to_numpy(std::move(children)), to_numpy(std::move(features)),
                          to_numpy(std::move(values)));
}

// One classifier: features, integer weights, scale and bias.
nb::tuple classifier_of(const Forest& forest, size_t child) {
    std::vector<uint32_t> features;
    std::vector<int8_t> weights;
    const auto classifier = forest.classifier(child);
    {
        const nb::gil_scoped_release unlock;
        forest.for_each_weight_of(classifier, [&](size_t feature, int8_t weight) {
            features.push_back(static_cast<uint32_t>(feature));
            weights.push_back(weight);
        });
    }
    return nb::make_tuple(to_numpy(std::move(features)), to_numpy(std::move(weights)), classifier.scale,
                          classifier.bias);
}

nb::tuple top_k_of(const Model& model, nb::handle x, size_t k, size_t beam_size, bool exact, size_t n_probe,
                   unsigned threads, const nb::object& progress) {
    const RowsIn rows(x, "X");
    const size_t n_rows = rows.view().n_rows;
    if (k > model.n_labels())
        throw std::invalid_argument("k is " + std::to_string(k) + ", but the model has " +
                                    std::to_string(model.n_labels()) + " labels");
    const TopKParams params{.k = k, .beam_size = beam_size, .exact = exact, .n_probe = n_probe};
    const Kernels& kernels = bonsai::kernels();
    std::vector<int32_t> ids;
    std::vector<float> scores;
    const auto work = [&](Pool& pool) {
        rows.check();
        ids.resize(n_rows * k);
        scores.resize(n_rows * k);
        top_k(model, rows.view(), params, kernels, pool, ids.data(), scores.data());
    };
    constexpr size_t few = 16;  // starting a thread would take longer than predicting
    if (n_rows <= few) {
        const nb::gil_scoped_release unlock;
        Control control;
        Pool pool(1, control);
        work(pool);
    } else {
        run_watched(threads, progress, work);
    }
    return nb::make_tuple(to_numpy(std::move(ids), {n_rows, k}), to_numpy(std::move(scores), {n_rows, k}));
}

nb::object self_of(nb::object self, nb::handle) {
    return self;
}

}  // namespace

void bind_model(nb::module_& m) {
    nb::class_<Forest>(m, "Forest", "Trees with their classifiers, or one-vs-rest classifiers. Immutable.")
        .def(nb::new_(&forest_from_arrays), "arrays"_a, "n_features"_a, "n_labels"_a,
             "residual"_a.none() = nb::none(),
             "From its twelve arrays (docs/internals/format.md). Structure is copied and checked, weights "
             "stay where "
             "they are. The weights of residual, the same trees, are added.")
        .def_prop_ro("n_features", &Forest::n_features)
        .def_prop_ro("n_labels", &Forest::n_labels)
        .def_prop_ro("n_trees", &Forest::n_trees)
        .def_prop_ro(
            "residual", [](const Forest& forest) { return forest.residual(); },
            nb::sig("def residual(self) -> Forest | None"))
        .def("arrays", &arrays_of, nb::sig("def arrays(self) -> dict[str, NDArray]"),
             "The twelve arrays as the model file stores them; read-only views.")
        .def("weights", &weights_of, "node"_a,
             nb::sig("def weights(self, node: int) -> tuple[NDArray[numpy.uint32], NDArray[numpy.uint32], "
                     "NDArray[numpy.float32]]"),
             "(child, feature, value) of each weight of a node; with a residual, in two parts.")
        .def("classifier", &classifier_of, "child"_a,
             nb::sig("def classifier(self, child: int) -> tuple[NDArray[numpy.uint32], NDArray[numpy.int8], "
                     "float, float]"),
             "The classifier of a child, numbered as in the array `children`: features, their integer "
             "weights, scale and bias.")
        .def("pruned", &pruned_forest, "prune"_a, "threads"_a,
             "The same forest without weights up to this magnitude.")
        .def("verify", &Forest::verify, nb::call_guard<nb::gil_scoped_release>(),
             "Check every offset, feature, child and weight; raises ValueError if one is invalid.")
        .def("__deepcopy__", &self_of, "memo"_a)
        .def("__reduce__", [](nb::object self) {
            const auto& forest = nb::cast<const Forest&>(self);
            return nb::make_tuple(self.type(), nb::make_tuple(arrays_of(self), forest.n_features(),
                                                              forest.n_labels(), self.attr("residual")));
        });
    nb::class_<LabelIndex>(m, "LabelIndex", "An inverted index over one-vs-rest classifiers. Immutable.")
        .def(nb::new_(&index_from_arrays), "arrays"_a, "n_features"_a, "n_classifiers"_a,
             "Build the index from its arrays (docs/internals/format.md). Postings stay where they are, the "
             "rest is copied "
             "and checked.")
        .def_prop_ro("n_features", &LabelIndex::n_features)
        .def_prop_ro("n_classifiers", &LabelIndex::n_positions)
        .def("arrays", &arrays_of_index, nb::sig("def arrays(self) -> dict[str, NDArray]"),
             "The arrays as the model file stores them; read-only views.")
        .def("verify", &LabelIndex::verify, nb::call_guard<nb::gil_scoped_release>(),
             "Check every posting; raises ValueError if one is invalid.")
        .def("__deepcopy__", &self_of, "memo"_a)
        .def("__reduce__", [](nb::object self) {
            const auto& index = nb::cast<const LabelIndex&>(self);
            return nb::make_tuple(
                self.type(), nb::make_tuple(arrays_of_index(self), index.n_features(), index.n_positions()));
        });
    m.def("build_label_index", &index_of, "one_vs_rest"_a, "threads"_a, "progress"_a = nb::none(),
          nb::sig("def build_label_index(one_vs_rest: Forest, threads: int, progress: object | None = None) "
                  "-> LabelIndex"),
          "Build an index over one-vs-rest classifiers.");
    nb::class_<Model>(m, "Model", "Trees, one-vs-rest classifiers or both, ready for prediction. Immutable.")
        .def(
            nb::new_([](std::shared_ptr<Forest> trees, std::shared_ptr<Forest> one_vs_rest,
                        const std::string& loss, bool normalize, float blend_weight,
                        const std::optional<In<float>>& label_offsets, std::shared_ptr<LabelIndex> index,
                        bool strict_beam, std::shared_ptr<RowTrees> row_trees, float row_tree_weight) {
                const auto offsets = label_offsets ? span(*label_offsets) : std::span<const float>();
                return std::make_shared<Model>(std::move(trees), std::move(one_vs_rest), loss_named(loss),
                                               normalize,
                                               Blend{.weight = blend_weight,
                                                     .row_trees = row_tree_weight,
                                                     .label_offsets = {offsets.begin(), offsets.end()}},
                                               std::move(index), strict_beam, std::move(row_trees));
            }),
            "trees"_a.none(), "one_vs_rest"_a.none(), "loss"_a, "normalize"_a, "blend_weight"_a = 0.0f,
            "label_offsets"_a.noconvert() = nb::none(), "index"_a.none() = nb::none(),
            "strict_beam"_a = false, "row_trees"_a.none() = nb::none(), "row_tree_weight"_a = 0.0f,
            "blend_weight is that of the trees, above 0 where both rank. label_offsets, none or one for each "
            "label, are added to log scores. index, if any, finds the labels that one-vs-rest classifiers "
            "rank. strict_beam: leaves compete for the beam, and have no more labels than it has nodes. "
            "row_trees, "
            "if any, have a share of row_tree_weight in scores.")
        .def(
            "top_k", &top_k_of, "x"_a, "k"_a, nb::kw_only(), "beam_size"_a, "exact"_a, "n_probe"_a,
            "threads"_a, "progress"_a = nb::none(),
            nb::sig("def top_k(self, x: object, k: int, *, beam_size: int, exact: bool, n_probe: int, "
                    "threads: int, progress: object | None = None) -> "
                    "tuple[NDArray[numpy.int32], "
                    "NDArray[numpy.float32]]"),
            "(ids int32, log scores float32) of the k best labels of each row; -1 and -inf where there are "
            "fewer.\n\nbeam_size 0 keeps all nodes. exact ranks all labels. With an index, n_probe blocks of "
            "128 classifiers are scored, 0 for all.")
        .def_static(
            "top_k_bytes",
            [](const ProblemSizes& sizes, double n_rows, double n_nodes, double n_assumed, double n_choices,
               double k, double batch_rows) {
                return top_k_bytes(sizes, n_rows, {n_nodes, n_assumed, n_choices}, k, batch_rows);
            },
            "sizes"_a, "n_rows"_a, "n_nodes"_a, "n_assumed"_a, "n_choices"_a, "k"_a, "batch_rows"_a,
            "What top_k takes for rows like those of a problem: each visits n_nodes at once (batches assume "
            "n_assumed), and chooses among n_choices children.")
        .def(
            "restricted",
            [](const Model& model, In<uint8_t> allowed) {
                const nb::gil_scoped_release unlock;
                return std::make_shared<Model>(model, span(allowed));
            },
            "allowed"_a.noconvert(), nb::sig("def restricted(self, allowed: NDArray[numpy.uint8]) -> Model"),
            "The same model restricted to the labels whose byte is not 0; it shares the weights. For "
            "prediction alone: its arrays are those of the whole model.")
        .def_prop_ro(
            "trees", [](const Model& model) { return model.shared_trees(); },
            nb::sig("def trees(self) -> Forest | None"))
        .def_prop_ro(
            "one_vs_rest", [](const Model& model) { return model.shared_one_vs_rest(); },
            nb::sig("def one_vs_rest(self) -> Forest | None"))
        .def_prop_ro(
            "index", [](const Model& model) { return model.shared_index(); },
            nb::sig("def index(self) -> LabelIndex | None"))
        .def_prop_ro(
            "row_trees", [](const Model& model) { return model.shared_row_trees(); },
            nb::sig("def row_trees(self) -> RowTrees | None"))
        .def_prop_ro("loss",
                     [](const Model& model) {
                         return std::visit([](auto loss) { return std::string(loss.name); }, model.loss());
                     })
        .def_prop_ro("normalize", &Model::normalize)
        .def_prop_ro("strict_beam", &Model::strict_beam)
        .def_prop_ro("blend_weight", &Model::blend_weight)
        .def_prop_ro("row_tree_weight", &Model::row_tree_weight)
        .def_prop_ro(
            "label_offsets",
            [](nb::object self) { return view_numpy(nb::cast<const Model&>(self).label_offsets(), self); })
        .def_prop_ro("n_features", &Model::n_features)
        .def_prop_ro("n_labels", &Model::n_labels)
        .def("__deepcopy__", &self_of, "memo"_a)
        .def("__reduce__", [](nb::object self) {
            return nb::make_tuple(
                self.type(),
                nb::make_tuple(self.attr("trees"), self.attr("one_vs_rest"), self.attr("loss"),
                               self.attr("normalize"), self.attr("blend_weight"), self.attr("label_offsets"),
                               self.attr("index"), self.attr("strict_beam"), self.attr("row_trees"),
                               self.attr("row_tree_weight")));
        });
}

}  // namespace bonsai

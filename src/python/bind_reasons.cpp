// Reasons: the parts of a prediction for one row.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "predict/reasons.hpp"
#include "python/arrays.hpp"
#include "python/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

std::unique_ptr<Reasons> reasons_of(const Model& model, nb::handle x) {
    const RowsIn rows(x, "X");
    const Kernels& kernels = bonsai::kernels();
    const nb::gil_scoped_release unlock;
    rows.check();
    return std::make_unique<Reasons>(model, rows.view(), kernels);
}

nb::tuple decide(const Reasons& reasons, const Forest& forest, size_t child, float path) {
    auto d = reasons.decide(forest, child, path);
    return nb::make_tuple(to_numpy(std::move(d.weights)), d.sum, d.scale, d.bias, d.margin, d.score);
}

nb::tuple search(const Reasons& reasons, size_t beam_size) {
    std::vector<uint32_t> levels, nodes;
    std::vector<float> scores;
    {
        const nb::gil_scoped_release unlock;
        for (const auto& kept : reasons.search(beam_size)) {
            levels.push_back(kept.level);
            nodes.push_back(kept.node);
            scores.push_back(kept.score);
        }
    }
    return nb::make_tuple(to_numpy(std::move(levels)), to_numpy(std::move(nodes)),
                          to_numpy(std::move(scores)));
}

}  // namespace

void bind_reasons(nb::module_& m) {
    nb::class_<Reasons>(m, "Reasons",
                        "A row quantised as for prediction, and the decisions of classifiers about it.")
        .def(nb::new_(&reasons_of), "model"_a, "x"_a, nb::keep_alive<0, 2>())
        .def_prop_ro(
            "features",
            [](nb::object self) { return view_numpy(nb::cast<const Reasons&>(self).features(), self); },
            nb::sig("def features(self) -> NDArray[numpy.uint32]"),
            "The features of the row, except those whose value rounds to 0.")
        .def_prop_ro(
            "values",
            [](nb::object self) { return view_numpy(nb::cast<const Reasons&>(self).values(), self); },
            nb::sig("def values(self) -> NDArray[numpy.int16]"),
            "The values of these features, as integers times `unit`.")
        .def_prop_ro("unit", &Reasons::unit)
        .def(
            "decide", &decide, "forest"_a, "child"_a, "path"_a = 0.0f,
            nb::sig("def decide(self, forest: Forest, child: int, path: float = 0.0) -> "
                    "tuple[NDArray[numpy.int8], int, float, float, float, float]"),
            "The classifier of a child, numbered as in the array `children`: its weights of the row's "
            "features, the sum of value × weight, scale, bias, margin = sum × (unit × scale) + bias, and the "
            "log score of the margin, plus that of the path.")
        .def(
            "search", &search, "beam_size"_a,
            nb::sig("def search(self, beam_size: int) -> tuple[NDArray[numpy.uint32], NDArray[numpy.uint32], "
                    "NDArray[numpy.float32]]"),
            "(level, node, log score of the path) of each node that a search of the trees keeps; 0 keeps "
            "all.");
}

}  // namespace bonsai

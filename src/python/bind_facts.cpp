// Constants of the core that Python uses: limits, and the losses.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>
#include <variant>
#include <vector>

#include "base/memory.hpp"
#include "linear/loss.hpp"
#include "model/packed_block.hpp"
#include "one_vs_rest/row_index.hpp"
#include "one_vs_rest/solve_leaf.hpp"
#include "one_vs_rest/train_one_vs_rest.hpp"
#include "predict/rank_blended.hpp"
#include "python/arrays.hpp"
#include "python/bindings.hpp"
#include "python/params.hpp"
#include "search/label_index.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

nb::dict losses() {
    nb::dict all;
    for_each_loss([&](auto loss) {
        nb::dict facts;
        facts["usual_C"] = loss.usual_c;
        facts["score_formula"] = loss.score_formula;
        facts["has_active_sets"] = loss.has_active_sets;
        all[loss.name] = facts;
    });
    return all;
}

nb::object log_scores(const std::string& loss,
                      const nb::ndarray<const double, nb::c_contig, nb::device::cpu>& margins) {
    std::vector<size_t> shape;
    for (size_t axis = 0; axis < margins.ndim(); ++axis) shape.push_back(margins.shape(axis));
    UninitialisedVector<double> out(margins.size());
    std::visit(
        [&](auto any) {
            for (size_t i = 0; i < out.size(); ++i) out[i] = -any.at(margins.data()[i]);
        },
        loss_named(loss));
    return to_numpy(std::move(out), std::move(shape));
}

}  // namespace

void bind_facts(nb::module_& m) {
    m.attr("BLOCK_LABELS") = kBlockChildren;           // classifiers stored and scored together
    m.attr("MIN_SEARCHED_LABELS") = kIndexedLabels;    // from this number on, training finds rows by an index
    m.attr("MAX_SEARCHED_ROWS") = RowIndex::kMaxRows;  // rows that such an index can hold
    m.attr("LARGE_LEAF") = kLargeLeaf;          // labels from which the classifiers of a leaf are one-vs-rest
    m.attr("FREQUENT_SHARE") = kFrequentShare;  // of the rows, above which a one-vs-rest bias is learnt
    m.attr("MAX_INDEX_LABELS") = kMaxPositions;                // classifiers that a label index can hold
    m.attr("FROM_TREES") = BlendedRanking::kFromTrees;         // labels of a row that trees score in a blend
    m.attr("FROM_ROW_TREES") = BlendedRanking::kFromRowTrees;  // labels of a row that trees over rows score
    m.def(
        "losses", &losses, nb::sig("def losses() -> dict[str, dict[str, object]]"),
        "The losses by name: usual_C, score_formula (of a margin), has_active_sets (one-vs-rest classifiers "
        "with a bias of -1 or below are trained on few rows).");
    m.def("log_scores", &log_scores, "loss"_a, "margins"_a,
          nb::sig("def log_scores(loss: str, margins: NDArray[numpy.floating]) -> NDArray[numpy.float64]"),
          "The log score of each margin, which is minus its loss; for any shape.");
}

}  // namespace bonsai

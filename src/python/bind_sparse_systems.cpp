// Training of ProXML, PD-Sparse and PPD-Sparse.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "python/arrays.hpp"
#include "python/bind_dataset.hpp"
#include "python/bindings.hpp"
#include "python/watched.hpp"
#include "systems/l1_hinge.hpp"
#include "systems/pd_sparse.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {
namespace {

// The arrays that pack_node takes, then the largest number of iterations and the number of unconverged
// labels.
nb::tuple arrays_of(SparseWeights&& weights) {
    return nb::make_tuple(to_numpy(std::move(weights.bias)), to_numpy(std::move(weights.ptr)),
                          to_numpy(std::move(weights.feature)), to_numpy(std::move(weights.value)),
                          weights.max_iter, weights.n_unconverged);
}

nb::tuple l1_hinge(const PyDataset& dataset, double l1, double l2, double c, double tol, int max_rounds,
                   unsigned threads, const nb::object& progress) {
    const L1HingeParams params{.l1 = l1, .l2 = l2, .c = c, .tol = tol, .max_rounds = max_rounds};
    SparseWeights weights;
    run_watched(threads, progress,
                [&](Pool& pool) { weights = train_l1_hinge(dataset.data(), params, pool); });
    return arrays_of(std::move(weights));
}

nb::tuple pd_sparse(const PyDataset& dataset, double l1, double c, bool largest, int max_epochs, int patience,
                    double held_out, bool refit, uint64_t seed, const nb::object& progress) {
    const PdSparseParams params{.l1 = l1,
                                .c = c,
                                .largest = largest,
                                .max_epochs = max_epochs,
                                .patience = patience,
                                .held_out = held_out,
                                .refit = refit,
                                .seed = seed};
    SparseWeights weights;
    run_watched(1, progress,
                [&](Pool& pool) { weights = train_pd_sparse(dataset.data(), params, pool.control()); });
    return arrays_of(std::move(weights));
}

}  // namespace

void bind_sparse_systems(nb::module_& m) {
    m.def("train_l1_hinge", l1_hinge, "dataset"_a, nb::kw_only(), "l1"_a, "l2"_a, "c"_a, "tol"_a,
          "max_rounds"_a, "threads"_a, "progress"_a = nb::none(),
          nb::sig("def train_l1_hinge(dataset: Dataset, *, l1: float, l2: float, c: float, tol: float, "
                  "max_rounds: int, threads: int, progress: object | None = None) -> "
                  "tuple[NDArray[numpy.float32], NDArray[numpy.int64], NDArray[numpy.uint32], "
                  "NDArray[numpy.float32], int, int]"),
          "(bias, ptr, feature, value) of one classifier for each label, as `pack_node` takes them, then the "
          "working sets of the slowest label and the number of labels whose relative duality gap stayed "
          "above tol.");
    m.def("train_pd_sparse", pd_sparse, "dataset"_a, nb::kw_only(), "l1"_a, "c"_a, "largest"_a,
          "max_epochs"_a, "patience"_a, "held_out"_a, "refit"_a, "seed"_a, "progress"_a = nb::none(),
          nb::sig("def train_pd_sparse(dataset: Dataset, *, l1: float, c: float, largest: bool, "
                  "max_epochs: int, patience: int, held_out: float, refit: bool, seed: int, "
                  "progress: object | None = None) -> tuple[NDArray[numpy.float32], NDArray[numpy.int64], "
                  "NDArray[numpy.uint32], NDArray[numpy.float32], int, int]"),
          "The same for PD-Sparse, with epochs instead of working sets. One thread.");
}

}  // namespace bonsai

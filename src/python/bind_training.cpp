// Trees, and the stages of training.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
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

// Valid trees over the same labels.
struct Trees {
    std::shared_ptr<const std::vector<Tree>> trees;
    size_t n_labels;

    const Tree& at(size_t tree) const {
        if (tree >= trees->size()) throw nb::index_error("no such tree");
        return (*trees)[tree];
    }
};

// Returns free memory to the system. Each phase of training has its own threads with their own heaps, and
// free memory in these heaps is unusable for the next phase.
void give_back_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

// Large arrays get their own pages, which return to the system when they are freed. By default glibc raises
// this limit up to 32 MB while a program runs. Then long-lived results of units lie between short-lived rows
// of units and fragment the memory: up to half of the peak. Free memory at the end of a heap is kept: threads
// free and allocate all the time, and would wait for the system.
void give_large_arrays_own_pages() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

template <class T>
std::vector<T> copied(nb::handle array, const char* name) {
    const auto values = span(cast_array<In<T>>(array, name));
    return {values.begin(), values.end()};
}

std::unique_ptr<Trees> trees_from_arrays(nb::sequence arrays, size_t n_labels) {
    std::vector<Tree> trees;
    for (nb::handle tree : arrays) {
        const auto parts = nb::cast<nb::tuple>(tree);
        if (parts.size() != 3) throw nb::type_error("a tree is (child_ptr, children, is_leaf)");
        trees.push_back({copied<int64_t>(parts[0], "child_ptr"), copied<int32_t>(parts[1], "children"),
                         copied<uint8_t>(parts[2], "is_leaf")});
    }
    if (trees.empty()) throw std::invalid_argument("there must be at least one tree");
    const nb::gil_scoped_release unlock;
    for (const Tree& tree : trees) validate_tree(tree.view(), n_labels);
    return std::make_unique<Trees>(
        Trees{std::make_shared<const std::vector<Tree>>(std::move(trees)), n_labels});
}

nb::list arrays_of(nb::handle self) {
    nb::list out;
    for (const Tree& tree : *nb::cast<const Trees&>(self).trees)
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

// A stage as a Python object.
class PyStage {
  public:
    virtual ~PyStage() = default;
    virtual Stage& stage() = 0;
    const Stage& stage() const { return const_cast<PyStage*>(this)->stage(); }

    // Finished results are queued for the thread that holds the GIL.
    void solve(In<uint32_t> units, unsigned threads, nb::object progress, nb::object save) {
        std::mutex mutex;
        std::vector<std::pair<size_t, Bytes>> finished;
        Stage::Save push;
        if (!save.is_none())
            push = [&](size_t unit, Bytes&& result) {
                const std::lock_guard lock(mutex);
                finished.emplace_back(unit, std::move(result));
            };
        const auto hand_over = [&] {
            std::vector<std::pair<size_t, Bytes>> some;
            {
                const std::lock_guard lock(mutex);
                some.swap(finished);
            }
            if (some.empty()) return;
            nb::list results;
            for (const auto& [unit, result] : some)
                results.append(nb::make_tuple(
                    unit, nb::bytes(reinterpret_cast<const char*>(result.data()), result.size())));
            save(results);
        };
        give_large_arrays_own_pages();
        give_back_memory();
        run_watched(
            threads, progress, [&](Pool& pool) { stage().solve(span(units), pool, push); }, hand_over);
    }

    // Returns (units, ptr, data) with the results one after the other. Called for batch after batch of units:
    // memory freed by threads is kept for the next batch.
    nb::tuple solve_for_others(In<uint32_t> units, unsigned threads) {
        std::mutex mutex;
        std::vector<std::pair<uint32_t, Bytes>> finished;
        if (!caches_) {
            give_large_arrays_own_pages();
            give_back_memory();
            caches_ = std::make_unique<Pool::Caches>();
        }
        const auto push = [&](size_t unit, Bytes&& result) {
            const std::lock_guard lock(mutex);
            finished.emplace_back(static_cast<uint32_t>(unit), std::move(result));
        };
        run_watched(
            threads, nb::none(), [&](Pool& pool) { stage().solve_for_others(span(units), pool, push); },
            [] {}, caches_.get());
        std::vector<uint32_t> solved;
        std::vector<int64_t> ptr = {0};
        for (const auto& [unit, result] : finished) {
            solved.push_back(unit);
            ptr.push_back(ptr.back() + static_cast<int64_t>(result.size()));
        }
        UninitialisedVector<uint8_t> data(static_cast<size_t>(ptr.back()));
        for (size_t i = 0; i < finished.size(); ++i) {
            std::ranges::copy(finished[i].second, data.begin() + ptr[i]);
            finished[i].second = {};
        }
        return nb::make_tuple(to_numpy(std::move(solved)), to_numpy(std::move(ptr)),
                              to_numpy(std::move(data)));
    }

    // Adds results that `solve_for_others` returned in another process.
    void add_all(In<uint32_t> units, In<int64_t> ptr, In<uint8_t> data, unsigned threads) {
        const nb::gil_scoped_release unlock;
        const auto unit = span(units);
        const auto begin = span(ptr);
        const auto bytes = span(data);
        std::vector<uint32_t> sorted(unit.begin(), unit.end());
        std::ranges::sort(sorted);
        if (std::ranges::adjacent_find(sorted) != sorted.end())
            throw std::invalid_argument("units holds a unit twice");
        if (begin.size() != unit.size() + 1 || begin[0] != 0 || !std::ranges::is_sorted(begin) ||
            begin.back() != static_cast<int64_t>(bytes.size()))
            throw std::invalid_argument("ptr does not divide data into a result for each unit");
        Control control;
        Pool pool(threads, control);
        pool.run(unit.size(), [&](size_t i, unsigned) {
            stage().add(unit[i], bytes.subspan(static_cast<size_t>(begin[i]),
                                               static_cast<size_t>(begin[i + 1] - begin[i])));
        });
    }

  private:
    std::unique_ptr<Pool::Caches> caches_;
};

// The stage; an error after finish has consumed its results.
template <class AnyStage>
AnyStage& not_used_up(const std::unique_ptr<AnyStage>& stage) {
    if (!stage) throw std::invalid_argument("the stage is used up");
    return *stage;
}

const Choices<Representation> kRepresentations = {
    {"input", Representation::input}, {"output", Representation::output}, {"joint", Representation::joint}};

// None for vectors given by the caller.
std::optional<Representation> representation(const std::string& kind) {
    if (kind == "custom") return {};
    return choice<Representation>("kind", kind, kRepresentations);
}

class PyLabelVectorStage final : public PyStage {
  public:
    PyLabelVectorStage(const PyDataset& dataset, const std::string& kind)
        : stage_(label_vector_stage(dataset.data(), choice<Representation>("kind", kind, kRepresentations))) {
    }
    Stage& stage() override { return not_used_up(stage_); }
    std::unique_ptr<LabelVectors> finish(unsigned threads) {
        Rows rows;
        LabelVectorStage& stage = not_used_up(stage_);
        run_watched(threads, nb::none(), [&](Pool& pool) { rows = stage.finish(pool); });
        stage_.reset();
        return std::make_unique<LabelVectors>(std::move(rows));
    }

  private:
    std::unique_ptr<LabelVectorStage> stage_;
};

class PySplitStage final : public PyStage {
  public:
    PySplitStage(NodesToSplit nodes, const TreeParams& params)
        : stage_(std::move(nodes), params, kernels()) {}
    Stage& stage() override { return stage_; }
    SplitStage& splits() { return stage_; }
    const SplitStage& splits() const { return stage_; }
    void set_vectors(nb::object vectors) {
        stage_.set_vectors(&nb::cast<const LabelVectors&>(vectors).view());
        vectors_ = std::move(vectors);
    }

  private:
    SplitStage stage_;
    nb::object vectors_;  // kept alive
};

std::unique_ptr<PySplitStage> split_stage(In<int64_t> ptr, In<uint32_t> labels, In<uint64_t> keys, bool roots,
                                          nb::dict params) {
    const auto bounds = span(ptr);
    if (bounds.size() != keys.size() + 1 || bounds.front() != 0 ||
        bounds.back() != static_cast<int64_t>(labels.size()) || !std::is_sorted(bounds.begin(), bounds.end()))
        throw std::invalid_argument("the lengths of ptr, labels and keys do not match");
    NodesToSplit nodes;
    nodes.ptr.assign(bounds.begin(), bounds.end());
    nodes.labels.assign(labels.data(), labels.data() + labels.size());
    nodes.keys.assign(keys.data(), keys.data() + keys.size());
    nodes.roots = roots;
    return std::make_unique<PySplitStage>(std::move(nodes), tree_params(params, 0));
}

nb::tuple nodes_of(nb::handle self) {
    const NodesToSplit& nodes = nb::cast<const PySplitStage&>(self).splits().nodes();
    return nb::make_tuple(view_numpy<int64_t>(nodes.ptr, self), view_numpy<uint32_t>(nodes.labels, self),
                          view_numpy<uint64_t>(nodes.keys, self), nodes.roots);
}

// Builds trees, stage by stage.
class PyTreeBuilder {
  public:
    PyTreeBuilder(In<uint32_t> labels, size_t n_labels, size_t n_trees, nb::dict params, uint64_t seed)
        : params_(tree_params(params, seed)), n_labels_(n_labels) {
        if (n_trees < 1) throw std::invalid_argument("n_trees is 0, but must be at least 1");
        check_labels(span(labels), n_labels, true);
        builder_.emplace(span(labels), n_trees, params_);
    }
    bool is_open() const { return builder_->is_open(); }
    size_t depth() const { return builder_->depth(); }
    std::unique_ptr<PySplitStage> splits() const {
        return std::make_unique<PySplitStage>(builder_->nodes(), params_);
    }
    void advance(const PySplitStage& splits, unsigned threads) {
        run_watched(threads, nb::none(), [&](Pool& pool) { builder_->advance(splits.splits(), pool); });
    }
    std::unique_ptr<Trees> finish() {
        if (is_open()) throw std::invalid_argument("the trees are not complete");
        return std::make_unique<Trees>(
            Trees{std::make_shared<const std::vector<Tree>>(builder_->finish()), n_labels_});
    }

  private:
    TreeParams params_;
    size_t n_labels_;
    std::optional<TreeBuilder> builder_;
};

// Results from other processes or from files are checked like a model file.
std::shared_ptr<Forest> checked(OwnedForest&& made, size_t n_features, size_t n_labels) {
    const auto owned = std::make_shared<OwnedForest>(std::move(made));
    auto forest = std::make_shared<Forest>(owned->arrays(), n_features, n_labels, owned);
    forest->verify();
    return forest;
}

// Stages of classifiers; the binding keeps the data set alive.
class PyClassifierStage final : public PyStage {
  public:
    template <class Make>
    PyClassifierStage(const PyDataset& dataset, unsigned threads, Make&& make) : data_(dataset.data()) {
        run_watched(threads, nb::none(), [&](Pool& pool) { stage_ = make(data_, pool); });
    }
    Stage& stage() override { return not_used_up(stage_); }
    bool leave_weights() { return not_used_up(stage_).leave_weights(); }

    nb::tuple finish(unsigned threads, nb::object stored) {
        stage();
        TrainReport report;
        std::shared_ptr<Forest> forest;
        const auto fetch = stored.is_none() ? nullptr : fetch_from(nb::cast<nb::tuple>(stored));
        run_watched(threads, nb::none(), [&](Pool& pool) {
            OwnedForest made = stage_->finish(pool, report, fetch);
            const auto make = [&](auto&&... args) {
                return fetch || stage_->has_foreign()
                           ? checked(std::forward<decltype(args)>(args)...)
                           : std::make_shared<Forest>(std::forward<decltype(args)>(args)...);
            };
            forest = make(std::move(made), data_.n_features(), data_.n_labels());
        });
        stage_.reset();
        give_back_memory();
        nb::dict numbers;
        numbers["n_classifiers"] = report.n_classifiers;
        numbers["n_unconverged"] = report.n_unconverged;
        numbers["max_iter"] = report.max_iter;
        return nb::make_tuple(std::move(forest), numbers);
    }

  private:
    // Reads the results of units from an open file, without the GIL: (descriptor, begin and size of each).
    ClassifierStage::Fetch fetch_from(const nb::tuple& stored) const {
        if (stored.size() != 3) throw nb::type_error("stored is (descriptor, begin, size)");
        const auto places = [&](size_t i, const char* name) { return copied<int64_t>(stored[i], name); };
        std::vector<int64_t> begin = places(1, "begin"), size = places(2, "size");
        if (begin.size() != stage_->n_units() || size.size() != begin.size())
            throw std::invalid_argument("begin and size have no entry for each unit");
        return [file = nb::cast<int>(stored[0]), begin = std::move(begin), size = std::move(size)](size_t u) {
            Bytes result(static_cast<size_t>(std::max<int64_t>(0, size[u])));
            for (size_t done = 0; done < result.size();) {
                const ssize_t n = pread(file, result.data() + done, result.size() - done,
                                        begin[u] + static_cast<int64_t>(done));
                if (n < 0 && errno == EINTR) continue;
                if (n <= 0)
                    throw std::runtime_error("the checkpoint was cut off during training; train again");
                done += static_cast<size_t>(n);
            }
            return result;
        };
    }

    const Dataset& data_;
    std::unique_ptr<ClassifierStage> stage_;
};

std::unique_ptr<PyClassifierStage> tree_classifiers(const PyDataset& dataset, const Trees& trees,
                                                    nb::dict params, uint64_t seed, unsigned threads) {
    const LinearParams linear = linear_params(params);
    if (trees.n_labels != dataset.data().n_labels())
        throw std::invalid_argument("the trees are over " + std::to_string(trees.n_labels) +
                                    " labels, but the data set has " +
                                    std::to_string(dataset.data().n_labels()));
    const Kernels& kernels = bonsai::kernels();
    return std::make_unique<PyClassifierStage>(dataset, threads, [&](const Dataset& data, Pool& pool) {
        return classifiers_of_trees(data, trees.trees, seed, linear, kernels, pool);
    });
}

std::unique_ptr<PyClassifierStage> label_classifiers(const PyDataset& dataset, In<uint32_t> labels,
                                                     In<float> costs, double frequent_share, nb::dict params,
                                                     uint64_t seed, std::shared_ptr<Forest> old,
                                                     size_t n_old_rows) {
    const LinearParams linear = linear_params(params);
    if (costs.size() != 0 && costs.size() != labels.size())
        throw std::invalid_argument("costs has " + std::to_string(costs.size()) + " entries for " +
                                    std::to_string(labels.size()) + " labels: one cost for each label");
    if (old && (!old->is_one_leaf() || old->n_labels() != dataset.data().n_labels() ||
                old->n_features() != dataset.data().n_features()))
        throw std::invalid_argument(
            "the old classifiers must be one-vs-rest with the same labels and features");
    const Kernels& kernels = bonsai::kernels();
    return std::make_unique<PyClassifierStage>(dataset, 1, [&](const Dataset& data, Pool& pool) {
        check_labels(span(labels), data.n_labels(), false);
        return classifiers_of_labels(data, span(labels), span(costs), frequent_share, seed, linear, kernels,
                                     pool, {.forest = old, .n_rows = n_old_rows});
    });
}

}  // namespace

void bind_training(nb::module_& m) {
    nb::class_<Trees>(m, "Trees", "Label trees without classifiers.")
        .def_static(
            "from_arrays", &trees_from_arrays, "arrays"_a, "n_labels"_a,
            "arrays: (child_ptr int64, children int32, is_leaf uint8) for each tree; copied, checked.")
        .def("__len__", [](const Trees& t) { return t.trees->size(); })
        .def_prop_ro("n_labels", [](const Trees& t) { return t.n_labels; })
        .def("arrays", &arrays_of, "(child_ptr, children, is_leaf) for each tree; read-only views.")
        .def("leaf_order", &leaf_order, "tree"_a,
             nb::sig("def leaf_order(self, tree: int) -> NDArray[numpy.uint32]"),
             "The labels of a tree, leaf by leaf.");
    nb::class_<PyStage>(m, "Stage",
                        "A stage of training: independent units of work. A unit's result depends on the "
                        "data, the parameters and its number alone.")
        .def_prop_ro("n_units", [](const PyStage& s) { return s.stage().n_units(); })
        .def_prop_ro("complete", [](const PyStage& s) { return s.stage().complete(); })
        .def(
            "costs",
            [](const PyStage& s) {
                const auto costs = s.stage().costs();
                return to_numpy(std::vector<uint64_t>(costs.begin(), costs.end()));
            },
            nb::sig("def costs(self) -> NDArray[numpy.uint64]"), "The work of each unit, in arbitrary units.")
        .def(
            "missing", [](const PyStage& s) { return to_numpy(s.stage().missing()); },
            nb::sig("def missing(self) -> NDArray[numpy.uint32]"), "The units without a result.")
        .def(
            "solve",
            [](PyStage& s, In<uint32_t> units, unsigned threads, nb::object progress, nb::object save) {
                s.solve(units, threads, progress, save);
            },
            "units"_a.noconvert(), "threads"_a, "progress"_a = nb::none(), "save"_a = nb::none(),
            "Solve those of `units` (uint32) that are missing. save([(unit, bytes)]), if given, receives "
            "their results.")
        .def("solve_for_others", &PyStage::solve_for_others, "units"_a.noconvert(), "threads"_a,
             nb::sig("def solve_for_others(self, units: NDArray[numpy.uint32], threads: int) -> "
                     "tuple[NDArray[numpy.uint32], NDArray[numpy.int64], NDArray[numpy.uint8]]"),
             "Solve `units`, but leave them missing here. Returns (units, ptr, data): the result of the i-th "
             "is "
             "data[ptr[i]:ptr[i + 1]].")
        .def(
            "add",
            [](PyStage& s, size_t unit, nb::bytes result) {
                const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(result.c_str()),
                                                     result.size());
                const nb::gil_scoped_release unlock;
                s.stage().add(unit, bytes);
            },
            "unit"_a, "result"_a, "Add a result from elsewhere, checked.")
        .def("add_all", &PyStage::add_all, "units"_a.noconvert(), "ptr"_a.noconvert(), "data"_a.noconvert(),
             "threads"_a,
             "Add results that `solve_for_others` of the same stage returned elsewhere, checked.");
    nb::class_<PyLabelVectorStage, PyStage>(m, "LabelVectorStage", "Label vectors, in blocks of labels.")
        .def(nb::init<const PyDataset&, const std::string&>(), "dataset"_a, "kind"_a, nb::keep_alive<1, 2>(),
             "kind: 'input' (sums of rows), 'output' (co-occurrence of labels) or 'joint'.")
        .def("finish", &PyLabelVectorStage::finish, "threads"_a)
        .def_static(
            "bytes",
            [](const ProblemSizes& sizes, const std::string& kind, unsigned threads) {
                return VectorSizes(sizes, representation(kind)).making_bytes(threads);
            },
            "sizes"_a, "kind"_a, "threads"_a, "Bytes to solve and finish it. kind: as above, or 'custom'.");
    nb::class_<PySplitStage, PyStage>(m, "SplitStage", "The nodes of one level of all trees.")
        .def_static("from_nodes", &split_stage, "ptr"_a.noconvert(), "labels"_a.noconvert(),
                    "keys"_a.noconvert(), "roots"_a, "params"_a,
                    "Build the stage from the arrays that `nodes` returns.")
        .def("nodes", &nodes_of,
             nb::sig("def nodes(self) -> tuple[NDArray[numpy.int64], NDArray[numpy.uint32], "
                     "NDArray[numpy.uint64], bool]"),
             "(ptr, labels, keys, roots): read-only views.")
        .def("set_vectors", &PySplitStage::set_vectors, "vectors"_a,
             nb::sig("def set_vectors(self, vectors: LabelVectors) -> None"),
             "Label vectors, without which no unit is solved.")
        .def_static(
            "bytes",
            [](const ProblemSizes& sizes, const std::string& kind, nb::dict params, unsigned n_trees,
               unsigned threads) {
                return split_bytes(sizes, {sizes, representation(kind)}, tree_params(params, 0), n_trees,
                                   threads);
            },
            "sizes"_a, "kind"_a, "params"_a, "n_trees"_a, "threads"_a,
            "Bytes to split all nodes, label vectors included.");
    m.def(
        "expected_tree",
        [](double n_labels, nb::dict params) {
            const ExpectedTree tree(n_labels, tree_params(params, 0));
            return nb::make_tuple(to_numpy(std::vector(tree.n_nodes)), tree.leaf_size, tree.n_leaves);
        },
        "n_labels"_a, "params"_a,
        nb::sig("def expected_tree(n_labels: float, params: dict) -> "
                "tuple[NDArray[numpy.float64], float, float]"),
        "(nodes of each level, labels of a leaf, leaves) of a tree before it is built, if clusters were "
        "equal.");
    nb::class_<PyTreeBuilder>(m, "TreeBuilder", "Label trees, level by level.")
        .def(nb::init<In<uint32_t>, size_t, size_t, nb::dict, uint64_t>(), "labels"_a.noconvert(),
             "n_labels"_a, "n_trees"_a, "params"_a, "seed"_a, "labels: uint32, ascending, below n_labels.")
        .def_prop_ro("is_open", &PyTreeBuilder::is_open)
        .def_prop_ro("depth", &PyTreeBuilder::depth)
        .def("splits", &PyTreeBuilder::splits, "The splits of the current level.")
        .def("advance", &PyTreeBuilder::advance, "splits"_a, "threads"_a = 1,
             "The next level, given these splits.")
        .def("finish", &PyTreeBuilder::finish);
    nb::class_<PyClassifierStage, PyStage>(m, "ClassifierStage", "The classifiers of trees or of labels.")
        .def_static("of_trees", &tree_classifiers, "dataset"_a, "trees"_a, "params"_a, "seed"_a,
                    "threads"_a = 1, nb::keep_alive<0, 1>(), "The classifiers of all nodes.")
        .def_static(
            "of_labels", &label_classifiers, "dataset"_a, "labels"_a.noconvert(), "costs"_a.noconvert(),
            "frequent_share"_a, "params"_a, "seed"_a, "old"_a.none() = nb::none(), "n_old_rows"_a = 0,
            nb::keep_alive<0, 1>(),
            "One classifier for each of `labels` (uint32), trained on all rows. costs, float32, "
            "multiply C; empty: all 1. Labels of more than frequent_share of the rows learn their "
            "bias. Others go on from their classifier in `old`, trained on the first n_old_rows rows, "
            "if they have one.")
        .def_static(
            "bytes_of_trees",
            [](const ProblemSizes& sizes, nb::dict tree, unsigned n_trees, nb::dict params, unsigned threads,
               double model_bytes, bool stored) {
                return tree_classifier_bytes(sizes, tree_params(tree, 0), n_trees, linear_params(params),
                                             threads, model_bytes, stored);
            },
            "sizes"_a, "tree"_a, "n_trees"_a, "params"_a, "threads"_a, "model_bytes"_a, "stored"_a,
            "Bytes of training classifiers of such trees, which take model_bytes when packed. stored: "
            "results "
            "leave their weights elsewhere.")
        .def_static(
            "bytes_of_labels",
            [](const ProblemSizes& sizes, nb::dict params, unsigned threads, double model_bytes) {
                return label_classifier_bytes(sizes, linear_params(params), threads, model_bytes);
            },
            "sizes"_a, "params"_a, "threads"_a, "model_bytes"_a, "The same for one classifier per label.")
        .def("leave_weights", &PyClassifierStage::leave_weights,
             "Keep no weights of the results that follow, if this stage can; returns whether it can.")
        .def("finish", &PyClassifierStage::finish, "threads"_a, "stored"_a = nb::none(),
             nb::sig("def finish(self, threads: int, stored: tuple[int, NDArray[numpy.int64], "
                     "NDArray[numpy.int64]] | None = None) -> tuple[Forest, dict[str, int]]"),
             "(Forest, report); the stage is used up. stored: where the results of units are that left "
             "their weights, as (descriptor of a file, begin, size).");
}

}  // namespace bonsai

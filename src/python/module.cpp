// The boundary: contiguous arrays, numbers, and two opaque objects (Dataset, Forest). No algorithm here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <memory>
#include <numeric>
#include <thread>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/parallel.hpp"
#include "data/label_vectors.hpp"
#include "kernels/kernels.hpp"
#include "linear/linear.hpp"
#include "model/forest.hpp"
#include "one_vs_rest/train_one_vs_rest.hpp"
#include "predict/predict.hpp"
#include "python/arrays.hpp"
#include "tree/kmeans.hpp"
#include "tree/label_tree.hpp"
#include "tree/train_trees.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace bonsai;

void bind_textio(nb::module_& m);

namespace {

using InDense = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// X as it crosses the boundary: a tuple (indptr, indices, values, n_features), or a 2-D array. Keeps the
// arrays alive.
struct RowsIn {
    explicit RowsIn(nb::object x) : keep(x) {
        if (nb::isinstance<nb::tuple>(x)) {
            const auto parts = nb::cast<nb::tuple>(x);
            const auto ptr = nb::cast<In<int64_t>>(parts[0], false);
            const auto index = nb::cast<In<int32_t>>(parts[1], false);
            const auto value = nb::cast<In<float>>(parts[2], false);
            view.n_features = nb::cast<size_t>(parts[3]);
            view.n_rows = ptr.size() == 0 ? 0 : ptr.size() - 1;
            check_csr(span(ptr), span(index), view.n_rows, view.n_features, "X");
            if (value.size() != index.size()) throw std::invalid_argument("X: one value for each index");
            view.ptr = ptr.data();
            view.index = index.data();
            view.value = value.data();
        } else {
            const auto dense = nb::cast<InDense>(x, false);
            view.n_rows = dense.shape(0);
            view.n_features = dense.shape(1);
            view.dense = dense.data();
        }
    }
    nb::object keep;
    RowsView view;
};

// Runs fn(pool) without the GIL on threads of its own, while this thread stays responsive: it delivers
// signals (Ctrl-C ends the work within a moment) and calls progress(done, total) a few times a second.
template <class Fn>
void run_watched(unsigned threads, const nb::object& progress, Fn&& fn) {
    using namespace std::chrono_literals;
    Control control;
    std::mutex mutex;
    std::condition_variable finished;
    bool done = false;
    std::exception_ptr error;
    {
        nb::gil_scoped_release unlock;
        std::thread driver([&] {
            try {
                Pool pool(threads, control);
                fn(pool);
            } catch (...) {
                error = std::current_exception();
            }
            std::lock_guard lock(mutex);
            done = true;
            finished.notify_all();
        });
        std::unique_lock lock(mutex);
        std::exception_ptr python_error;
        while (!finished.wait_for(lock, 100ms, [&] { return done; })) {
            if (control.stop) continue;
            nb::gil_scoped_acquire hold;
            try {
                if (PyErr_CheckSignals() != 0) throw nb::python_error();
                if (!progress.is_none()) progress(control.done.load(), control.total.load());
            } catch (...) {
                python_error = std::current_exception();
                control.stop = true;
            }
        }
        lock.unlock();
        driver.join();
        if (python_error) error = python_error;
    }
    if (error) std::rethrow_exception(error);
    if (!progress.is_none()) progress(control.total.load(), control.total.load());
}

// Memory that is free goes back to the system. Each phase of training has threads of its own, and with them a
// heap of its own: what one leaves there the next cannot use.
void give_back_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

template <class T>
T choice(const std::string& name, std::initializer_list<std::pair<const char*, T>> choices) {
    for (const auto& [known, value] : choices)
        if (name == known) return value;
    throw std::invalid_argument("unknown name: " + name);
}
Loss loss_named(const std::string& name) {
    return choice<Loss>(name, {{"squared_hinge", Loss::squared_hinge}, {"logistic", Loss::logistic}});
}
LinearParams linear_params(const nb::dict& p) {
    return {.loss = loss_named(nb::cast<std::string>(p["loss"])),
            .solver = choice<Solver>(nb::cast<std::string>(p["solver"]),
                                     {{"dual", Solver::dual}, {"newton", Solver::newton}}),
            .c = nb::cast<double>(p["C"]),
            .tol = nb::cast<double>(p["tol"]),
            .max_iter = nb::cast<int>(p["max_iter"]),
            .learn_bias = nb::cast<bool>(p["learn_bias"]),
            .fixed_bias = nb::cast<float>(p["fixed_bias"]),
            .prune = nb::cast<float>(p["prune"])};
}
KMeansParams kmeans_params(const nb::dict& p) {
    return {.k = nb::cast<size_t>(p["branching"]),
            .tol = nb::cast<double>(p["kmeans_tol"]),
            .max_iter = nb::cast<int>(p["kmeans_max_iter"]),
            .plus_plus = nb::cast<bool>(p["plus_plus"]),
            .balanced = nb::cast<bool>(p["balanced"])};
}

struct PyDataset {
    PyDataset(nb::object x, In<int64_t> label_ptr, In<int32_t> labels, size_t n_labels, In<float> weights,
              bool normalize)
        : rows(std::move(x)),
          keep(nb::make_tuple(label_ptr, labels, weights)),
          data(rows.view, span(label_ptr), span(labels), n_labels, span(weights), normalize) {}
    RowsIn rows;
    nb::object keep;
    Dataset data;
};

nb::object rows_to_numpy(Rows&& rows) {
    if (rows.ptr.empty()) return to_numpy(std::move(rows.dense), {rows.n_rows, rows.n_features});
    return nb::make_tuple(to_numpy(std::move(rows.ptr)), to_numpy(std::move(rows.index)),
                          to_numpy(std::move(rows.value)), rows.n_features);
}

nb::object py_label_vectors(const PyDataset& dataset, const std::string& kind, unsigned threads,
                            nb::object progress) {
    const auto representation = choice<Representation>(kind, {{"input", Representation::input},
                                                              {"output", Representation::output},
                                                              {"joint", Representation::joint}});
    Rows rows;
    run_watched(threads, progress,
                [&](Pool& pool) { rows = label_vectors(dataset.data, representation, pool); });
    return rows_to_numpy(std::move(rows));
}

nb::list py_build_trees(nb::object vectors, In<uint32_t> labels, size_t n_trees, nb::dict params,
                        uint64_t seed, unsigned threads, nb::object progress) {
    const RowsIn rows(vectors);
    for (size_t i = 0; i < labels.size(); ++i)
        if (labels.data()[i] >= rows.view.n_rows) throw std::invalid_argument("a label without a vector");
    const TreeParams tree_params{.kmeans = kmeans_params(params),
                                 .max_leaf = nb::cast<size_t>(params["max_leaf"]),
                                 .max_depth = nb::cast<size_t>(params["max_depth"]),
                                 .seed = seed};
    const Kernels& kernels = bonsai::kernels();
    give_back_memory();
    std::vector<Tree> trees;
    run_watched(threads, progress, [&](Pool& pool) {
        trees = build_trees(rows.view, span(labels), n_trees, tree_params, kernels, pool);
    });
    nb::list out;
    for (Tree& tree : trees)
        out.append(nb::make_tuple(to_numpy(std::move(tree.child_ptr)), to_numpy(std::move(tree.children)),
                                  to_numpy(std::move(tree.is_leaf))));
    return out;
}

nb::tuple trained(OwnedForest f, const TrainReport& report) {
    give_back_memory();
    nb::dict arrays, numbers;
    arrays["tree_ptr"] = to_numpy(std::move(f.tree_ptr));
    arrays["child_ptr"] = to_numpy(std::move(f.child_ptr));
    arrays["children"] = to_numpy(std::move(f.children));
    arrays["is_leaf"] = to_numpy(std::move(f.is_leaf));
    arrays["bias"] = to_numpy(std::move(f.bias));
    arrays["scale"] = to_numpy(std::move(f.scale));
    arrays["block_ptr"] = to_numpy(std::move(f.block_ptr));
    arrays["bucket_ptr"] = to_numpy(std::move(f.bucket_ptr));
    arrays["record_ptr"] = to_numpy(std::move(f.record_ptr));
    arrays["shift"] = to_numpy(std::move(f.shift));
    arrays["buckets"] = to_numpy(std::move(f.buckets));
    arrays["records"] = to_numpy(std::move(f.records));
    numbers["n_classifiers"] = report.n_classifiers;
    numbers["n_unconverged"] = report.n_unconverged;
    numbers["max_iter"] = report.max_iter;
    return nb::make_tuple(arrays, numbers);
}

nb::tuple py_train(const PyDataset& dataset, nb::list trees, nb::dict params, uint64_t seed, bool bare,
                   unsigned threads, nb::object progress) {
    std::vector<TreeView> views;
    for (nb::handle tree : trees) {
        const auto parts = nb::cast<nb::tuple>(tree);
        views.push_back({span(nb::cast<In<int64_t>>(parts[0], false)),
                         span(nb::cast<In<int32_t>>(parts[1], false)),
                         span(nb::cast<In<uint8_t>>(parts[2], false))});
    }
    const LinearParams linear = linear_params(params);
    const Kernels& kernels = bonsai::kernels();
    OwnedForest f;
    TrainReport report;
    give_back_memory();
    run_watched(threads, progress, [&](Pool& pool) {
        f = train_forest(dataset.data, views, seed, linear, bare, kernels, pool, report);
    });
    return trained(std::move(f), report);
}

nb::tuple py_train_ranker(const PyDataset& dataset, In<uint32_t> labels, In<float> costs, double learn_above,
                          nb::dict params, uint64_t seed, unsigned threads, nb::object progress) {
    if (costs.size() != 0 && costs.size() != labels.size())
        throw std::invalid_argument("one cost for each label");
    const LinearParams linear = linear_params(params);
    for (size_t i = 0; i < labels.size(); ++i)
        if (labels.data()[i] >= dataset.data.n_labels()) throw std::invalid_argument("an unknown label");
    const Kernels& kernels = bonsai::kernels();
    OwnedForest f;
    TrainReport report;
    give_back_memory();
    run_watched(threads, progress, [&](Pool& pool) {
        f = train_ranker(dataset.data, span(labels), span(costs), learn_above, seed, linear, kernels, pool,
                         report);
    });
    return trained(std::move(f), report);
}

struct PyForest {
    PyForest(nb::dict arrays, size_t n_features, size_t n_labels, bool bare)
        : keep(arrays), forest(read(arrays), n_features, n_labels, bare) {}

    static ForestArrays read(const nb::dict& a) {
        const auto get = [&]<class T>(const char* name, T) { return span(nb::cast<In<T>>(a[name], false)); };
        return {.tree_ptr = get("tree_ptr", int64_t{}),
                .child_ptr = get("child_ptr", int64_t{}),
                .children = get("children", int32_t{}),
                .is_leaf = get("is_leaf", uint8_t{}),
                .bias = get("bias", float{}),
                .scale = get("scale", float{}),
                .block_ptr = get("block_ptr", int64_t{}),
                .bucket_ptr = get("bucket_ptr", int64_t{}),
                .record_ptr = get("record_ptr", int64_t{}),
                .shift = get("shift", uint8_t{}),
                .buckets = get("buckets", uint32_t{}),
                .records = get("records", uint8_t{})};
    }

    // The weights of a node as (child, feature, value).
    nb::tuple weights(size_t node) const {
        const ForestArrays& a = forest.arrays();
        if (node >= a.is_leaf.size()) throw std::invalid_argument("no such node");
        std::vector<uint32_t> children, features;
        std::vector<float> values;
        for (int64_t b = a.block_ptr[node]; b < a.block_ptr[node + 1]; ++b) {
            const auto shift =
                static_cast<uint32_t>(b - a.block_ptr[node]) * static_cast<uint32_t>(kBlockChildren);
            forest.block(static_cast<size_t>(b))
                .for_each_feature([&](size_t feature, const FeatureWeights& found) {
                    if (feature >= forest.n_features()) return;
                    found.for_each([&](size_t c, StoredWeight weight) {
                        const uint32_t child = shift + static_cast<uint32_t>(c);
                        if (child >= a.child_ptr[node + 1] - a.child_ptr[node]) return;
                        children.push_back(child);
                        features.push_back(static_cast<uint32_t>(feature));
                        values.push_back(a.scale[static_cast<size_t>(a.child_ptr[node]) + child] * weight);
                    });
                });
        }
        return nb::make_tuple(to_numpy(std::move(children)), to_numpy(std::move(features)),
                              to_numpy(std::move(values)));
    }

    nb::tuple top_k(nb::object x, size_t k, size_t beam, const std::string& loss, bool normalize,
                    unsigned threads, nb::object progress, const PyForest* ranker, float path_power) const {
        if (forest.is_bare() != (ranker != nullptr) || (ranker && !ranker->forest.is_one_leaf()) ||
            (ranker && ranker->forest.n_labels() != forest.n_labels()) ||
            (ranker && ranker->forest.n_features() != forest.n_features()))
            throw std::invalid_argument("trees without classifiers at their leaves need a ranker that fits");
        const RowsIn rows(x);
        if (rows.view.n_features != forest.n_features())
            throw std::invalid_argument("another number of features");
        const PredictParams params{
            .loss = loss_named(loss), .beam = beam, .k = k, .normalize = normalize, .path_power = path_power};
        std::vector<int32_t> ids(rows.view.n_rows * k);
        std::vector<float> scores(ids.size());
        const auto work = [&](Pool& pool) {
            predict_top_k(forest, ranker ? &ranker->forest : nullptr, rows.view, params, pool, ids.data(),
                          scores.data());
        };
        constexpr size_t few = 16;  // starting a thread would cost more than the answer
        if (rows.view.n_rows <= few) {
            nb::gil_scoped_release unlock;
            Control control;
            Pool pool(1, control);
            work(pool);
        } else {
            run_watched(threads, progress, work);
        }
        return nb::make_tuple(to_numpy(std::move(ids), {rows.view.n_rows, k}),
                              to_numpy(std::move(scores), {rows.view.n_rows, k}));
    }

    nb::dict keep;
    Forest forest;
};

// For the tests: k-means alone, on unit or zero rows.
nb::tuple py_partition(nb::object vectors, nb::dict params, uint64_t key, unsigned threads) {
    const RowsIn rows(vectors);
    const KMeansParams kmeans = kmeans_params(params);
    const Kernels& kernels = bonsai::kernels();
    Partition out;
    run_watched(threads, nb::none(), [&](Pool& pool) {
        out = partition_rows(rows.view, kmeans, Rng(derive(key, kForClustering)), kernels, pool);
    });
    return nb::make_tuple(to_numpy(std::move(out.cluster)), out.n_clusters,
                          to_numpy(std::move(out.objective)));
}

// For the tests: the classifiers of one problem before pruning by the model, quantisation and packing. Class
// c of the problem is label c of the data set.
nb::tuple py_solve(const PyDataset& dataset, nb::dict params, uint64_t key) {
    const LinearParams linear = linear_params(params);
    const Dataset& data = dataset.data;
    std::vector<uint32_t> ids(data.n_rows()), labels(data.n_labels());
    std::iota(ids.begin(), ids.end(), 0u);
    std::iota(labels.begin(), labels.end(), 0u);
    Slice::Scratch scratch;
    const Slice slice(data.x(), ids, data.factors(), scratch, holds_apart(linear));
    const Problem problem = build_problem(data, ids, slice, labels, labels.size(), key);
    Control control;
    std::vector<float> w(data.n_labels() * data.n_features(), 0.0f), bias;
    std::vector<int32_t> n_iter;
    for (size_t first = 0; first < data.n_labels(); first += kMaxLanes) {
        const size_t n = std::min(kMaxLanes, data.n_labels() - first);
        const Solution s = solve_panel(problem, first, n, linear, bonsai::kernels(), control);
        for (const Weight& e : s.weights)
            w[e.cls * data.n_features() + slice.features()[e.feature]] = e.value;
        bias.insert(bias.end(), s.bias.begin(), s.bias.end());
        n_iter.insert(n_iter.end(), s.n_iter.begin(), s.n_iter.end());
    }
    return nb::make_tuple(to_numpy(std::move(w), {data.n_labels(), data.n_features()}),
                          to_numpy(std::move(bias)), to_numpy(std::move(n_iter)));
}

}  // namespace

NB_MODULE(_core, m) {
    m.def("isa", [] { return std::string(kernels().name); });
    m.def("available_threads", available_threads);
    nb::class_<PyDataset>(m, "Dataset")
        .def(nb::init<nb::object, In<int64_t>, In<int32_t>, size_t, In<float>, bool>(), "x"_a,
             "label_ptr"_a.noconvert(), "labels"_a.noconvert(), "n_labels"_a, "weights"_a.noconvert(),
             "normalize"_a);
    nb::class_<PyForest>(m, "Forest")
        .def(nb::init<nb::dict, size_t, size_t, bool>(), "arrays"_a, "n_features"_a, "n_labels"_a,
             "bare"_a = false)
        .def("weights", &PyForest::weights, "node"_a)
        .def("verify", [](const PyForest& f) { f.forest.verify(); })
        .def("top_k", &PyForest::top_k, "x"_a, "k"_a, "beam"_a, "loss"_a, "normalize"_a, "threads"_a,
             "progress"_a = nb::none(), "ranker"_a = nb::none(), "path_power"_a = 0.0f);
    m.def("label_vectors", py_label_vectors, "dataset"_a, "kind"_a, "threads"_a, "progress"_a = nb::none());
    m.def("build_trees", py_build_trees, "vectors"_a, "labels"_a.noconvert(), "n_trees"_a, "params"_a,
          "seed"_a, "threads"_a, "progress"_a = nb::none());
    m.def("train", py_train, "dataset"_a, "trees"_a, "params"_a, "seed"_a, "bare"_a, "threads"_a,
          "progress"_a = nb::none());
    m.def("train_ranker", py_train_ranker, "dataset"_a, "labels"_a.noconvert(), "costs"_a.noconvert(),
          "learn_above"_a, "params"_a, "seed"_a, "threads"_a, "progress"_a = nb::none());
    m.def("partition", py_partition, "vectors"_a, "params"_a, "key"_a, "threads"_a = 1);
    m.def("solve", py_solve, "dataset"_a, "params"_a, "key"_a);
    bind_textio(m);
}

// Results of units from a checkpoint or another node are rejected, or safe to use.
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "data/label_vectors.hpp"
#include "input.hpp"
#include "one_vs_rest/train_one_vs_rest.hpp"
#include "predict/model.hpp"
#include "predict/top_k.hpp"
#include "training_data.hpp"
#include "tree/build.hpp"
#include "tree/train_trees.hpp"

using namespace bonsai;
using fuzz::Input;

namespace {

constexpr size_t kFeatures = fuzz::kTrainedFeatures, kLabels = fuzz::kTrainedLabels;

constexpr TreeParams kTrees{
    .kmeans = {.k = 3, .tol = 0.001, .max_iter = 10, .plus_plus = true, .balanced = false},
    .max_leaf_size = 2,
    .max_depth = 0,
    .split_oversized = true,
    .bounded = true,
    .seed = 3};
const LinearParams kLinear{.loss = SquaredHinge{},
                           .solver = Solver::dual,
                           .c = 1,
                           .tol = 0.1,
                           .max_iter = 20,
                           .learn_bias = false,
                           .fixed_bias = -1,
                           .prune = 0.01f};

// Shared by all inputs: data, label vectors, trees and the results of each stage.
struct Trained {
    Trained()
        : set(data.rows.view(), data.label_ptr, data.labels, kLabels, {}, true),
          dense(data.dense()),
          dense_set(dense.view(), data.label_ptr, data.labels, kLabels, {}, true),
          pool(1, control) {
        for (uint32_t l = 0; l < kLabels; ++l) labels.push_back(l);
        const auto vector_stage = label_vector_stage(set, Representation::input);
        results[0] = solve(*vector_stage);
        vectors = vector_stage->finish(pool);
        view = vectors.view();
        TreeBuilder builder(labels, 2, kTrees);
        while (builder.is_open()) {
            SplitStage splits(builder.nodes(), kTrees, kernels());
            splits.set_vectors(&view);
            const auto solved = solve(splits);
            if (results[1].empty()) results[1] = solved;
            builder.advance(splits, pool);
        }
        trees = std::make_shared<std::vector<Tree>>(builder.finish());
        results[2] = solve(*of_trees());
        results[3] = solve(*of_labels());
        results[4] = solve(*label_vector_stage(dense_set, Representation::input));
    }
    std::unique_ptr<ClassifierStage> of_trees() {
        return classifiers_of_trees(set, trees, 3, kLinear, kernels(), pool);
    }
    std::unique_ptr<ClassifierStage> of_labels() {
        return classifiers_of_labels(set, labels, {}, 0.4, 3, kLinear, kernels(), pool);
    }
    std::vector<Bytes> solve(Stage& stage) {
        std::vector<Bytes> found(stage.n_units());
        stage.solve(stage.missing(), pool,
                    [&](size_t unit, Bytes&& result) { found[unit] = std::move(result); });
        return found;
    }

    fuzz::TrainingData data;
    Dataset set;
    Rows dense;
    Dataset dense_set;
    Control control;
    Pool pool;
    std::vector<uint32_t> labels;
    Rows vectors;
    RowsView view;
    std::shared_ptr<std::vector<Tree>> trees;
    std::vector<Bytes> results[5];
};

// Adds edited results, and solves the units whose results are rejected.
void add_all(Stage& stage, std::vector<Bytes> results, Input& input, Pool& pool) {
    for (size_t n = 1 + input.below(4); n > 0 && !input.empty(); --n)
        input.edit(results[input.below(results.size())]);
    for (size_t unit = 0; unit < results.size(); ++unit) try {
            stage.add(unit, Bytes(results[unit]));
        } catch (const std::invalid_argument&) {
            REQUIRE(!stage.has(unit));
        }
    stage.solve_all(pool);
    REQUIRE(stage.complete());
}

void predict(OwnedForest&& made, bool one_vs_rest, Trained& t) {
    const auto exact = std::make_shared<OwnedForest>(made);
    const auto forest = std::make_shared<const Forest>(exact->arrays(), kFeatures, kLabels, exact);
    const Model model(one_vs_rest ? nullptr : forest, one_vs_rest ? forest : nullptr, SquaredHinge{}, true);
    RowsView rows = t.data.rows.view();
    rows.n_rows = 4;
    std::vector<int32_t> ids(rows.n_rows * 3);
    std::vector<float> scores(ids.size());
    const TopKParams params{.k = 3, .beam_size = 2, .exact = false, .n_probe = 0};
    top_k(model, rows, params, kernels(), t.pool, ids.data(), scores.data());
    for (const int32_t id : ids) REQUIRE(id >= -1 && id < static_cast<int32_t>(kLabels));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static Trained t;
    Input input(data, size);
    TrainReport report;
    const uint8_t which = input.value<uint8_t>();
    try {
        switch (which % 4) {
            case 0: {
                const bool dense = which >= 128;
                const auto stage = label_vector_stage(dense ? t.dense_set : t.set, Representation::input);
                add_all(*stage, t.results[dense ? 4 : 0], input, t.pool);
                const Rows rows = stage->finish(t.pool);
                for (const int32_t f : rows.index) REQUIRE(f >= 0 && static_cast<size_t>(f) < kFeatures);
                for (const float v : rows.dense) REQUIRE(std::abs(v) <= 1.1f);
                for (const float v : rows.value) REQUIRE(std::abs(v) <= 1.1f);
                break;
            }
            case 1: {
                TreeBuilder builder(t.labels, 2, kTrees);
                SplitStage splits(builder.nodes(), kTrees, kernels());
                splits.set_vectors(&t.view);
                add_all(splits, t.results[1], input, t.pool);
                builder.advance(splits, t.pool);
                break;
            }
            case 2: {
                const auto stage = t.of_trees();
                add_all(*stage, t.results[2], input, t.pool);
                predict(stage->finish(t.pool, report), false, t);
                break;
            }
            default: {
                const auto stage = t.of_labels();
                add_all(*stage, t.results[3], input, t.pool);
                predict(stage->finish(t.pool, report), true, t);
            }
        }
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

// Arrays of a model file are rejected, or safe for prediction, explanation, restriction and edits.
#include <cmath>
#include <memory>
#include <stdexcept>

#include "input.hpp"
#include "model/edit.hpp"
#include "predict/model.hpp"
#include "predict/reasons.hpp"
#include "predict/top_k.hpp"
#include "small_models.hpp"
#include "systems/fastxml.hpp"
#include "training_data.hpp"

using namespace bonsai;
using fuzz::Input;

namespace {

// The content of a file; each part may be absent.
struct Parts {
    OwnedForest trees, residual, one_vs_rest;
    OwnedLabelIndex index;
    OwnedRowTrees row_trees;
    size_t n_features;
    bool has_trees, has_residual, has_one_vs_rest, has_index, has_row_trees;
};

Parts made(size_t n_features, bool one_tree) {
    Parts parts{};
    parts.n_features = n_features;
    parts.trees = fuzz::small_trees(1, n_features, one_tree);
    parts.residual = fuzz::small_trees(2, n_features, one_tree);
    parts.one_vs_rest = fuzz::small_leaf(3, n_features);
    const Forest leaf(parts.one_vs_rest.arrays(), n_features, fuzz::kLabels);
    Control control;
    Pool pool(1, control);
    parts.index = build_label_index(leaf, pool);
    const fuzz::TrainingData rows;
    RowsView x = rows.rows.view();
    x.n_features = n_features;
    parts.row_trees = train_fastxml(
        Dataset(x, rows.label_ptr, rows.labels, fuzz::kLabels, {}, true), {},
        {.n_trees = 2, .max_leaf_rows = 4, .max_leaf_labels = 5, .solver = {.max_iter = 5}, .seed = 1},
        kernels(), pool);
    return parts;
}

void edit_forest(Input& input, OwnedForest& forest) {
    const size_t which = input.below(12);
    size_t number = 0;
    for_each_array(
        [&](const char*, auto& array) {
            if (number++ == which) input.edit(array);
        },
        forest);
}

void edit_index(Input& input, OwnedLabelIndex& index) {
    const size_t which = input.below(4);
    size_t number = 0;
    for_each_index_array(
        [&](const char*, auto& array) {
            if (number++ == which) input.edit(array);
        },
        index);
}

Parts edited(Input& input) {
    static const Parts two_trees = made(fuzz::kFeatures, false);
    static const Parts one_tree = made(fuzz::kManyFeatures, true);
    const uint8_t kind = input.value<uint8_t>();
    Parts parts = kind >= 192 ? one_tree : two_trees;
    parts.has_trees = kind & 1;
    parts.has_one_vs_rest = !parts.has_trees || kind & 2;
    parts.has_residual = kind & 4;
    parts.has_index = parts.has_one_vs_rest && kind & 8;
    parts.has_row_trees = parts.has_one_vs_rest && kind & 16;
    for (size_t n = input.below(8); n > 0 && !input.empty(); --n) switch (input.below(4)) {
            case 0:
                edit_forest(input, parts.trees);
                break;
            case 1:
                edit_forest(input, parts.one_vs_rest);
                break;
            case 2:
                edit_forest(input, parts.residual);
                break;
            default:
                edit_index(input, parts.index);
        }
    return parts;
}

std::shared_ptr<const Forest> load(const OwnedForest& owned, size_t n_features, size_t n_labels,
                                   std::shared_ptr<const Forest> residual = nullptr) {
    const auto exact = std::make_shared<OwnedForest>(owned);  // a sanitizer sees the first byte beyond
    return std::make_shared<Forest>(exact->arrays(), n_features, n_labels, exact, std::move(residual));
}

Model load(const Parts& parts, Input& input) {
    // a file also states the numbers of features and labels
    const auto other = [&] { return size_t{input.value<uint16_t>()} >> input.below(8); };
    const size_t n_features = input.below(16) == 0 ? other() : parts.n_features;
    const size_t n_labels = input.below(16) == 0 ? other() : fuzz::kLabels;
    std::shared_ptr<const Forest> trees, residual, one_vs_rest;
    std::shared_ptr<const LabelIndex> index;
    if (parts.has_residual) residual = load(parts.residual, n_features, n_labels);
    if (parts.has_trees) trees = load(parts.trees, n_features, n_labels, residual);
    if (parts.has_one_vs_rest) one_vs_rest = load(parts.one_vs_rest, n_features, n_labels);
    if (parts.has_index) {
        const auto exact = std::make_shared<OwnedLabelIndex>(parts.index);
        index = std::make_shared<LabelIndex>(exact->arrays(), n_features,
                                             one_vs_rest->arrays().children.size(), exact);
    }
    std::shared_ptr<const RowTrees> row_trees;
    if (parts.has_row_trees) {
        const auto exact = std::make_shared<OwnedRowTrees>(parts.row_trees);
        RowTreeArrays views;
        for_each_row_tree_array([](const char*, auto& view, const auto& owned) { view = owned; }, views,
                                *exact);
        row_trees = std::make_shared<RowTrees>(views, n_features, n_labels, true, RowTreeTail{}, exact);
    }
    Blend blend;
    if (row_trees) blend.row_trees = 0.25f;
    if (trees && one_vs_rest) blend.weight = static_cast<float>(input.below(4)) / 4;
    if (input.flag()) blend.label_offsets.assign(n_labels, -0.5f);
    const Loss loss = input.flag() ? Loss(SquaredHinge{}) : Loss(Logistic{});
    const bool normalize = input.flag(), strict_beam = input.flag();
    return {std::move(trees), std::move(one_vs_rest), loss, normalize, blend, std::move(index),
            strict_beam,      std::move(row_trees)};
}

const Kernels& chosen_kernels(Input& input) {
    return input.below(4) == 0 ? kernels() : kernels_named("portable");
}

void predict(const Model& model, Input& input) {
    const Rows rows = fuzz::small_rows(model.n_features(), input.below(3));
    const Kernels& kernels = chosen_kernels(input);
    const TopKParams params{.k = std::min(input.below(9), model.n_labels()),
                            .beam_size = input.below(4),
                            .exact = input.flag(),
                            .n_probe = input.below(3)};
    std::vector<int32_t> ids(rows.n_rows * params.k, -9);
    std::vector<float> scores(rows.n_rows * params.k);
    Control control;
    Pool pool(1, control);
    top_k(model, rows.view(), params, kernels, pool, ids.data(), scores.data());
    for (size_t i = 0; i < ids.size(); ++i) {
        REQUIRE(ids[i] >= -1 && ids[i] < static_cast<int64_t>(model.n_labels()));
        REQUIRE(!std::isnan(scores[i]));
        REQUIRE(i % params.k == 0 || scores[i] <= scores[i - 1]);
    }
}

void explain(const Model& model, Input& input) {
    const Rows rows = fuzz::small_rows(model.n_features(), 1);
    RowsView one = rows.view();
    one.n_rows = 1;
    const Reasons reasons(model, one, chosen_kernels(input));
    for (const Forest* forest : {model.trees(), model.one_vs_rest()}) {
        if (!forest) continue;
        const size_t child = input.below(forest->arrays().children.size() + 1);
        if (child < forest->arrays().children.size()) (void)reasons.decide(*forest, child, -1.0f);
        forest->for_each_weight(input.below(forest->arrays().is_leaf.size()), [](size_t, size_t, float) {});
    }
    if (model.trees()) (void)reasons.search(input.below(3));
}

// Drops a label of the one-vs-rest classifiers, as an edit does, and lists the others for the search.
void edit(const Model& model, Input& input) {
    const Forest* const from = model.one_vs_rest();
    if (!from || from->arrays().children.size() < 2) return;
    const size_t n = from->arrays().children.size(), dropped = input.below(n);
    OwnedForest made;
    made.tree_ptr = {0, 1};
    made.child_ptr = {0, static_cast<int64_t>(n - 1)};
    made.is_leaf = {1};
    std::vector<int64_t> child;
    for (size_t c = 0; c < n; ++c) {
        if (c == dropped) continue;
        made.children.push_back(from->arrays().children[c]);
        child.push_back(static_cast<int64_t>(c));
    }
    const std::vector<uint32_t> source(n - 1, 0);
    Control control;
    Pool pool(1, control);
    assemble(made, {std::span(&from, 1), source, child}, pool);
    const auto edited = load(made, model.n_features(), model.n_labels());
    std::shared_ptr<const LabelIndex> index;
    if (input.flag())
        index = std::make_shared<LabelIndex>(build_label_index(*edited, pool), model.n_features(), n - 1);
    predict(Model(nullptr, edited, SquaredHinge{}, true, {}, std::move(index)), input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    try {
        const Model model = load(edited(input), input);
        for (size_t n = input.below(2) + 1; n > 0; --n) {
            predict(model, input);
            if (input.flag()) explain(model, input);
            if (input.flag()) edit(model, input);
        }
        std::vector<uint8_t> allowed(model.n_labels(), 1);
        for (size_t l = input.below(3); l < allowed.size(); l += 3) allowed[l] = 0;
        predict(Model(model, allowed), input);
        if (model.index()) model.index()->verify();
        if (model.one_vs_rest()) model.one_vs_rest()->verify();
        if (model.trees()) model.trees()->verify();
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

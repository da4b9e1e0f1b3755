// Trees of FastXML and PfastreXML in a model file are rejected, or safe for prediction.
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "input.hpp"
#include "systems/fastxml.hpp"
#include "training_data.hpp"

using namespace bonsai;
using fuzz::Input;

namespace {

constexpr size_t kFeatures = fuzz::kTrainedFeatures, kLabels = fuzz::kTrainedLabels;

const fuzz::TrainingData& data() {
    static const fuzz::TrainingData made;
    return made;
}

OwnedRowTrees trained() {
    const Dataset set(data().rows.view(), data().label_ptr, data().labels, kLabels, {}, true);
    Control control;
    Pool pool(1, control);
    return train_fastxml(set, {},
                         {.n_trees = 2,
                          .max_leaf_rows = 4,
                          .max_leaf_labels = 5,
                          .c = 5,
                          .gain = SideGain::kRank,
                          .solver = {.tol = 0.01, .max_iter = 10},
                          .seed = 1},
                         kernels(), pool);
}

struct Means {
    Rows rows = {.n_rows = kLabels, .n_features = kFeatures, .ptr = {0}};
    Means() {
        for (size_t l = 0; l < kLabels; ++l) {
            rows.index.push_back(static_cast<int32_t>(l));
            rows.value.push_back(0.5f);
            rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
        }
    }
};

void predict(const RowTrees& model, Input& input) {
    RowsView rows = data().rows.view();
    rows.n_rows = 5;
    Control control;
    Pool pool(1, control);
    const size_t k = std::min(input.below(6), model.n_labels());
    std::vector<uint8_t> allowed;
    if (input.flag()) {
        allowed.resize(model.n_labels(), 1);
        for (size_t l = 0; l < allowed.size(); l += 2) allowed[l] = 0;
    }
    std::vector<int32_t> ids(rows.n_rows * k), leaves(rows.n_rows * model.n_trees());
    std::vector<float> scores(rows.n_rows * k);
    model.top_k(rows, k, allowed, pool, ids.data(), scores.data());
    for (size_t i = 0; i < ids.size(); ++i) {
        REQUIRE(ids[i] >= -1 && ids[i] < static_cast<int64_t>(model.n_labels()));
        REQUIRE(!std::isnan(scores[i]) && (i % k == 0 || scores[i] <= scores[i - 1]));
        REQUIRE(ids[i] < 0 || allowed.empty() || allowed[static_cast<size_t>(ids[i])]);
    }
    model.leaves(rows, pool, leaves.data());
    for (const int32_t leaf : leaves)
        REQUIRE(leaf >= 0 && static_cast<size_t>(leaf) + 1 < model.arrays().leaf_ptr.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    static const OwnedRowTrees valid = trained();
    Input input(bytes, size);
    try {
        OwnedRowTrees arrays = valid;
        for (size_t n = input.below(8); n > 0 && !input.empty(); --n) {
            const size_t which = input.below(10);
            size_t number = 0;
            for_each_row_tree_array(
                [&](const char*, auto& array) {
                    if (number++ == which) input.edit(array);
                },
                arrays);
        }
        Means means;
        RowTreeTail tail;
        if (input.flag()) {
            for (size_t n = input.below(3); n > 0 && !input.empty(); --n) input.edit(means.rows.value);
            means.rows.value.resize(means.rows.index.size());
            tail = {.means = means.rows.view(), .alpha = input.value<float>(), .gamma = input.value<float>()};
            if (input.flag()) tail.alpha = 0.5f, tail.gamma = 30;
        }
        const size_t n_labels = input.below(8) == 0 ? input.value<uint8_t>() : kLabels;
        const auto exact = std::make_shared<OwnedRowTrees>(arrays);
        RowTreeArrays views;
        for_each_row_tree_array([](const char*, auto& view, const auto& owned) { view = owned; }, views,
                                *exact);
        const RowTrees model(views, kFeatures, n_labels, input.flag(), tail, exact);
        for (size_t n = input.below(3) + 1; n > 0; --n) predict(model, input);
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

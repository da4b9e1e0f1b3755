#include "predict/reasons.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "predict/beam_search.hpp"

namespace bonsai {

Reasons::Reasons(const Model& model, const RowsView& x, const Kernels& kernels)
    : model_(model), kernels_(kernels), scores_(model.loss(), kernels) {
    if (x.n_rows != 1)
        throw std::invalid_argument("X has " + std::to_string(x.n_rows) + " rows instead of one");
    if (x.n_features != model.n_features())
        throw std::invalid_argument("X has " + std::to_string(x.n_features) +
                                    " features, but the model has " + std::to_string(model.n_features()));
    Control control;
    Pool pool(1, control);
    batch_.read(x, 0, 1, model.normalize(), pool);
}

Reasons::Decision Reasons::decide(const Forest& forest, size_t child, float path) const {
    const Forest::Classifier at = forest.classifier(child);
    const PackedBlock block = forest.block(at.block);
    Decision d{.weights = {}, .sum = 0, .scale = at.scale, .bias = at.bias, .margin = 0, .score = 0};
    uint32_t sum = 0;  // wraps around as in rankings: a damaged file may have several weights for a feature
    for (size_t i = 0; i < features().size(); ++i) {
        StoredWeight weight = 0;
        block.find(features()[i]).for_each([&](size_t c, StoredWeight w) {
            if (c == at.lane) weight = w;
        });
        d.weights.push_back(weight);
        sum += static_cast<uint32_t>(int32_t{values()[i]} * weight);
    }
    d.sum = static_cast<int32_t>(sum);
    alignas(64) int32_t sums[kLaneStep] = {d.sum};
    alignas(64) float scale[kLaneStep] = {d.scale}, bias[kLaneStep] = {d.bias}, margin[kLaneStep];
    kernels_.dequantise_margins(sums, kLaneStep, unit(), scale, bias, margin);
    d.margin = margin[0];
    if (forest.residual()) {
        const Decision finer = decide(*forest.residual(), child, 0);
        sums[0] = finer.sum;
        scale[0] = finer.scale;
        kernels_.dequantise_margins(sums, kLaneStep, unit(), scale, margin, margin);
        d.margin = margin[0];
    }
    d.score = scores_.of(path, d.margin);
    return d;
}

std::vector<Reasons::Kept> Reasons::search(size_t beam_size) const {
    if (!model_.trees()) throw std::invalid_argument("the model has no trees");
    Control control;
    Pool pool(1, control);
    BeamSearch search(*model_.trees(), batch_, scores_, beam_size, kernels_, pool, model_.strict_beam());
    std::vector<Kept> kept;
    search.run([&](uint32_t level) {
        for (const Visit& v : search.visits(0)) kept.push_back({level, v.node, v.score});
    });
    return kept;
}

}  // namespace bonsai

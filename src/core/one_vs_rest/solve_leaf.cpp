#include "one_vs_rest/solve_leaf.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "one_vs_rest/label_rows.hpp"
#include "one_vs_rest/label_units.hpp"

namespace bonsai {
namespace {

LinearParams with_fixed_bias(LinearParams params) {
    params.learn_bias = false;
    params.fixed_bias = -1;
    return params;
}

}  // namespace

bool is_large_leaf(size_t n_labels, bool dense, LinearParams params) {
    return n_labels >= kLargeLeaf && params.learn_bias && can_use_active_sets(dense, with_fixed_bias(params));
}

PackedNode solve_leaf(const Dataset& data, std::span<const uint32_t> labels, std::span<const uint32_t> rows,
                      uint64_t key, LinearParams params, const Kernels& kernels, Pool& pool,
                      ProgressShare& progress) {
    params = with_fixed_bias(params);
    const LabelRows of_labels(data, labels, rows);
    const Plan plan(of_labels, kFrequentShare);
    const PreparedRows prepared(plan, true, key, pool);
    Control within;  // progress within the leaf
    UnitSolver solver(plan, prepared, {}, key, params, nullptr, kernels, pool, within);
    std::vector<QuantisedClassifier> classifiers(labels.size());
    uint64_t total = 0;
    for (size_t u = 0; u < plan.n_units(); ++u) total += plan.unit_cost(u);
    std::mutex mutex;
    pool.run(plan.n_units(), [&](size_t u, unsigned) {
        std::vector<QuantisedClassifier> found = solver.solve(u);
        const auto positions = plan.unit(u);
        for (size_t c = 0; c < found.size(); ++c) classifiers[positions[c]] = std::move(found[c]);
        const std::lock_guard lock(mutex);
        progress.advance_to(static_cast<double>(within.done) / static_cast<double>(total));
    });
    std::vector<PackedNode> blocks((labels.size() + kBlockChildren - 1) / kBlockChildren);
    pool.run(blocks.size(), [&](size_t b, unsigned) {
        const size_t first = b * kBlockChildren;
        const size_t n = std::min(kBlockChildren, classifiers.size() - first);
        blocks[b] = pack_block(std::span(classifiers).subspan(first, n), data);
    });
    return join(blocks, pool);
}

}  // namespace bonsai

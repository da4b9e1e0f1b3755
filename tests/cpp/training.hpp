// The stages of training, with all units solved by one call.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "one_vs_rest/train_one_vs_rest.hpp"
#include "tree/build.hpp"
#include "tree/train_trees.hpp"

namespace bonsai {

// The vectors of the labels are the rows of `vectors`.
inline std::vector<Tree> build_trees(const RowsView& vectors, std::span<const uint32_t> labels,
                                     size_t n_trees, const TreeParams& params, const Kernels& kernels,
                                     Pool& pool) {
    TreeBuilder builder(labels, n_trees, params);
    while (builder.is_open()) {
        SplitStage splits(builder.nodes(), params, kernels);
        splits.set_vectors(&vectors);
        splits.solve_all(pool);
        builder.advance(splits, pool);
    }
    return builder.finish();
}

inline OwnedForest train_trees(const Dataset& data, std::span<const TreeView> trees, uint64_t seed,
                               const LinearParams& params, const Kernels& kernels, Pool& pool,
                               TrainReport& report) {
    auto copies = std::make_shared<std::vector<Tree>>();
    for (const TreeView& tree : trees)
        copies->push_back({{tree.child_ptr.begin(), tree.child_ptr.end()},
                           {tree.children.begin(), tree.children.end()},
                           {tree.is_leaf.begin(), tree.is_leaf.end()}});
    const auto stage = classifiers_of_trees(data, std::move(copies), seed, params, kernels, pool);
    stage->solve_all(pool);
    return stage->finish(pool, report);
}

inline OwnedForest train_one_vs_rest(const Dataset& data, std::span<const uint32_t> labels,
                                     std::span<const float> costs, double frequent_share, uint64_t seed,
                                     const LinearParams& params, const Kernels& kernels, Pool& pool,
                                     TrainReport& report) {
    const auto stage =
        classifiers_of_labels(data, labels, costs, frequent_share, seed, params, kernels, pool);
    stage->solve_all(pool);
    return stage->finish(pool, report);
}

}  // namespace bonsai

#include "predict/top_k.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "predict/batch.hpp"
#include "predict/node_margins.hpp"
#include "predict/rank_blended.hpp"
#include "predict/rank_indexed.hpp"
#include "predict/rank_leaves.hpp"
#include "predict/rank_one_vs_rest.hpp"
#include "predict/scores.hpp"

namespace bonsai {
namespace {

void check(const Model& model, const RowsView& x, const TopKParams& params) {
    if (x.n_features != model.n_features())
        throw std::invalid_argument("X has " + std::to_string(x.n_features) +
                                    " features, but the model has " + std::to_string(model.n_features()));
    if (params.k > model.n_labels())
        throw std::invalid_argument("k is " + std::to_string(params.k) + ", but the model has " +
                                    std::to_string(model.n_labels()) + " labels");
}

std::unique_ptr<Ranking> rank_leaves(const Forest& trees, const Batch& batch, const Scores& scores,
                                     size_t beam_size, size_t k, const Kernels& kernels, Pool& pool,
                                     bool strict_beam = false) {
    if (trees.n_trees() == 1 && !strict_beam)
        return std::make_unique<OneTreeRanking>(trees, batch, scores, beam_size, k, kernels, pool);
    return std::make_unique<ForestRanking>(trees, batch, scores, beam_size, k, kernels, pool, strict_beam);
}

// The number of one-vs-rest blocks with at least one label that is not excluded.
size_t n_allowed_blocks(const Forest& one_vs_rest) {
    if (!one_vs_rest.is_restricted()) return one_vs_rest.n_blocks(0);
    size_t n = 0;
    for (size_t from = 0; from < one_vs_rest.n_children(0); from += kBlockChildren)
        n += one_vs_rest.has_allowed(0, from);
    return n;
}

std::unique_ptr<Ranking> make_ranking(const Model& model, const TopKParams& params, const Batch& batch,
                                      const Scores& scores, const Kernels& kernels, Pool& pool) {
    const Forest *trees = model.trees(), *one_vs_rest = model.one_vs_rest();
    const size_t beam_size = params.exact ? 0 : params.beam_size;
    if (!one_vs_rest)
        return rank_leaves(*trees, batch, scores, beam_size, params.k, kernels, pool, model.strict_beam());
    const bool plain = model.blend_weight() == 0 && model.label_offsets().empty() && !model.row_trees();
    const bool indexed = model.index() && !params.exact && params.n_probe > 0 &&
                         params.n_probe < n_allowed_blocks(*one_vs_rest);
    if (plain && indexed)
        return std::make_unique<IndexedRanking>(*one_vs_rest, *model.index(), batch, scores, params.n_probe,
                                                params.k, kernels, pool);
    if (plain) return std::make_unique<ExactRanking>(*one_vs_rest, batch, scores, params.k, kernels, pool);
    const size_t n_labels = model.n_labels();
    const size_t n_from_trees = params.exact ? n_labels : std::min(n_labels, BlendedRanking::kFromTrees);
    std::unique_ptr<Ranking> leaves;
    if (model.blend_weight() > 0)
        leaves = rank_leaves(*trees, batch, scores, beam_size, n_from_trees, kernels, pool);
    std::unique_ptr<ProbedBlocks> probed;
    if (indexed)
        probed = std::make_unique<ProbedBlocks>(*one_vs_rest, *model.index(), batch, params.n_probe, pool);
    const size_t n_from_row_trees =
        params.exact ? n_labels : std::min(n_labels, BlendedRanking::kFromRowTrees);
    return std::make_unique<BlendedRanking>(model, batch, scores, std::move(leaves), n_from_trees,
                                            n_from_row_trees, std::move(probed), params.k, kernels, pool);
}

// The end of a batch that begins at this row. In larger batches, more rows share a block.
size_t end_of_batch(const RowsView& x, size_t begin, size_t max_rows) {
    constexpr size_t batch_entries = 2 << 20;
    size_t end = begin, entries = 0;
    while (end < x.n_rows && end - begin < max_rows && (entries < batch_entries || end == begin))
        entries += x.row_size(end++);
    return end;
}

// Batches that are predicted side by side. Some steps of a batch run on one thread, and at the end of each
// loop threads wait for the slowest one: with many threads, another batch keeps them busy.
size_t batches_at_once(const RowsView& x, Pool& pool, size_t max_rows) {
    constexpr size_t threads_per_batch = 8;
    return std::clamp<size_t>(x.n_rows / max_rows, 1,
                              std::max<size_t>(1, pool.threads() / threads_per_batch));
}

}  // namespace

void top_k(const Model& model, const RowsView& x, const TopKParams& params, const Kernels& kernels,
           Pool& pool, int32_t* ids, float* scores) {
    check(model, x, params);
    pool.control().done = 0;
    pool.control().total = x.n_rows;
    const Scores score(model.loss(), kernels);
    size_t next = 0;
    std::mutex mutex;
    pool.run(batches_at_once(x, pool, kBatchRows), [&](size_t, unsigned) {
        Batch batch;
        const auto ranking = make_ranking(model, params, batch, score, kernels, pool);
        const size_t max_rows = std::min(ranking->max_rows(), kBatchRows);
        while (true) {
            size_t begin, end;
            {
                const std::lock_guard lock(mutex);
                begin = next;
                end = next = end_of_batch(x, begin, max_rows);
            }
            if (begin == end) return;
            batch.read(x, begin, end, model.normalize(), pool);
            ranking->run({params.k, ids + begin * params.k, scores + begin * params.k, &pool.control()});
        }
    });
}

double top_k_bytes(const ProblemSizes& sizes, double n_rows, const ExpectedVisits& visits, double k,
                   double batch_rows) {
    double batch = std::min({n_rows, batch_rows, double{kBatchRows}});
    if (visits.n_nodes > 0) {
        batch = std::min(batch, std::max(1.0, kVisitBytes / (2 * sizeof(Visit) * visits.n_assumed)));
        batch = std::min(batch, std::max(1.0, kMarginBytes / (4 * (visits.n_choices + 1))));
    }
    // Visits are stored in one array for all rows and in one growing array per row.
    const double of_row = 16 * sizes.n_entries / std::max(1.0, sizes.n_rows) +
                          sizeof(Visit) * (1 + kGrowth) * visits.n_nodes + 4.25 * visits.n_choices + 24 * k;
    return batch * of_row + n_rows * k * 8 + 4 * sizes.n_features;
}

}  // namespace bonsai

#include "predict/beam_search.hpp"

#include <algorithm>
#include <limits>

namespace bonsai {

BeamSearch::BeamSearch(const Forest& forest, const Batch& batch, const Scores& scores, size_t beam_size,
                       const Kernels& kernels, Pool& pool, bool strict)
    : forest_(forest),
      batch_(batch),
      scores_(scores),
      beam_size_(beam_size == 0 ? std::numeric_limits<size_t>::max() : beam_size),
      strict_(strict),
      pool_(pool),
      margins_(forest, batch, kernels, pool),
      workers_(pool.threads()) {}

size_t BeamSearch::max_rows() const {
    const auto& tree_ptr = forest_.arrays().tree_ptr;
    size_t visits = 0;  // of a row at the same time
    for (size_t t = 0; t < forest_.n_trees(); ++t)
        visits += std::min(beam_size_, static_cast<size_t>(tree_ptr[t + 1] - tree_ptr[t]));
    return std::max<size_t>(1,
                            std::min(kVisitBytes / (2 * sizeof(Visit) * visits),
                                     kMarginBytes / (sizeof(float) * (forest_.max_choices(beam_size_) + 1))));
}

// Leaves are visited for their labels, which some rankings do not need.
Visit BeamSearch::visit(size_t node, size_t row, float score) const {
    return {.node = static_cast<uint32_t>(node),
            .row = static_cast<uint32_t>(row),
            .score = score,
            .state = forest_.arrays().is_leaf[node] ? Visit::Margins::unknown : Visit::Margins::requested,
            .first_margin = 0};
}

void BeamSearch::run(const std::function<void(uint32_t)>& after_level) {
    const size_t n_rows = batch_.size();
    visits_.clear();
    visits_ptr_.assign(1, 0);
    for (size_t row = 0; row < n_rows; ++row) {
        if (batch_.row(row).n > 0)
            for (size_t t = 0; t < forest_.n_trees(); ++t)
                visits_.push_back(visit(static_cast<size_t>(forest_.arrays().tree_ptr[t]), row, 0));
        visits_ptr_.push_back(visits_.size());
    }
    next_.resize(n_rows);
    margins_.reset(n_rows * forest_.max_choices(
                                beam_size_));  // allocated in one step: growing would discard touched pages
    for (uint32_t level = 0;; ++level) {
        if (after_level) after_level(level);
        if (level > 0 && std::ranges::none_of(workers_, &Worker::found_inner)) return;
        if (!margins_.compute_anew(visits_)) return;
        for (Worker& worker : workers_) worker.found_inner = false;
        for_each_row(pool_, 0, n_rows, [&](size_t row, unsigned worker) {
            if (row + 1 < n_rows) margins_.prefetch(visits(row + 1));
            expand(workers_[worker], row);
        });
        for (size_t row = 0; row < n_rows; ++row) visits_ptr_[row + 1] = visits_ptr_[row] + next_[row].size();
        visits_.clear();  // cleared first: growing need not copy them
        visits_.resize(visits_ptr_.back());
        Slices(n_rows, pool_, 4 * visits_.size()).for_each(pool_, [&](size_t, size_t begin, size_t end) {
            for (size_t row = begin; row < end; ++row)
                std::copy(next_[row].begin(), next_[row].end(), visits(row).begin());
        });
    }
}

// Moves from inner nodes to their best children. Leaves stay; with a strict beam they must be among the best
// as well.
void BeamSearch::expand(Worker& worker, size_t row) {
    std::vector<Visit>& next = next_[row];
    next.clear();
    for_each_tree(visits(row), [&](size_t root, std::span<const Visit> visits) {
        worker.best.reset(beam_size_);
        margins_.add_children(visits, scores_, worker.blocks, worker.best,
                              [&](int32_t child, float score, float margin) {
                                  return Candidate{root + static_cast<size_t>(child), score, margin};
                              });
        for (const Visit& v : visits)
            if (v.known())
                continue;
            else if (strict_)
                worker.best.add({v.node, v.score, 0.0f});
            else
                next.push_back(v);
        for (const Candidate& c : worker.best.items()) {
            next.push_back(visit(c.node, row, c.score));
            worker.found_inner |= next.back().state == Visit::Margins::requested;
        }
    });
}

}  // namespace bonsai

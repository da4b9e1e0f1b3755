#include "predict/rank_leaves.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace bonsai {

void OneTreeRanking::run(const TopKOutput& out) {
    search_.run();
    for (size_t begin = 0, end; begin < batch_.size(); begin = end) {
        end = std::min(batch_.size(), begin + best_.max_rows(tree_.n_labels()));
        best_.reset(end - begin);
        search_.margins().stream(search_.visits(begin, end), [&](BlockScorer& scorer, const BlockRows& block,
                                                                 uint32_t row, float path) {
            best_.add_block(row - begin, scorer, row, tree_.children(block.node).subspan(block.from), path);
        });
        for_each_row(pool_, begin, end, [&](size_t row, unsigned worker) {
            const auto best = best_.labels(row - begin);
            ranked_[worker].assign(best.begin(), best.end());
            out.write(row, ranked_[worker]);
        });
    }
}

void ForestRanking::run(const TopKOutput& out) {
    search_.run();
    begin_batch();
    for (size_t begin = 0, end; begin < batch_.size(); begin = end) {
        end = begin_chunk(begin);
        Slices(end - begin, pool_, 4 * search_.visits(begin, end).size())
            .for_each(pool_, [&](size_t, size_t first, size_t last) {
                for (size_t row = begin + first; row < begin + last; ++row) request_promising(row);
            });
        open_.resize(end - begin);
        std::iota(open_.begin(), open_.end(), static_cast<uint32_t>(begin));
        const std::span<Visit> visits = search_.visits(begin, end);
        search_.margins().compute(visits.size(), [&](size_t v) -> Visit& { return visits[v]; });
        while (true) {
            if (strict_beam_) search_.margins().keep_largest(visits, search_.beam_size());
            for_each_row(pool_, 0, open_.size(), [&](size_t i, unsigned number) {
                auto& worker = workers_[number];
                if (!worker) worker = std::make_unique<LeafLabels::Worker>(trees_.n_labels());
                if (rank(*worker, open_[i], out)) is_ranked_[open_[i]] = 1;
            });
            std::erase_if(open_, [&](size_t row) { return is_ranked_[row]; });
            if (open_.empty()) break;
            list_requested();
            search_.margins().compute(requested_.size(), [&](size_t i) -> Visit& { return *requested_[i]; });
        }
        if (!learned_) learn_gap(begin, end);
    }
}

void ForestRanking::begin_batch() {
    n_margins_.resize(batch_.size());
    waiting_.resize(batch_.size());
    gaps_.resize(batch_.size());
    is_ranked_.assign(batch_.size(), 0);
    const size_t work = 4 * search_.visits(0, batch_.size()).size();
    Slices(batch_.size(), pool_, work).for_each(pool_, [&](size_t, size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            waiting_[row].clear();
            n_margins_[row] = 0;
            for (const Visit& v : search_.visits(row)) n_margins_[row] += search_.margins().width(v);
        }
    });
}

// A chunk has as many rows as there is room for the margins of all their leaves. The first chunk is small: it
// sets gap_.
size_t ForestRanking::begin_chunk(size_t begin) {
    constexpr size_t first_rows = 64;
    const size_t most = learned_ ? batch_.size() : std::min(batch_.size(), begin + first_rows);
    size_t end = begin, n = 0;
    while (end < most && (end == begin || (n + n_margins_[end]) * sizeof(float) <= kMarginBytes))
        n += n_margins_[end++];
    search_.margins().reset(n);
    return end;
}

// Requests the leaves that are most likely needed. How far their score may be below the row's best leaf is
// estimated from the first rows; this affects the amount of work, not the result.
void ForestRanking::request_promising(size_t row) {
    float best = kLowest;
    for (const Visit& v : search_.visits(row)) best = std::max(best, v.score);
    for (Visit& v : search_.visits(row))
        if (v.score >= best - gap_) v.request();
    gaps_[row] = std::max(best, std::numeric_limits<float>::lowest());
}

void ForestRanking::learn_gap(size_t begin, size_t end) {
    const auto first = gaps_.begin() + static_cast<int64_t>(begin);
    const auto most = first + static_cast<int64_t>((end - begin) * 2 / 3);
    std::nth_element(first, most, gaps_.begin() + static_cast<int64_t>(end));
    gap_ = *most;
    learned_ = true;
}

// For rows that are still unranked.
void ForestRanking::list_requested() {
    requested_.clear();
    for (const uint32_t row : open_)
        for (Visit& visit : search_.visits(row))
            if (visit.state == Visit::Margins::requested) requested_.push_back(&visit);
}

// Writes the best labels of a row, or requests the margins of more leaves. Returns whether the labels were
// written.
bool ForestRanking::rank(LeafLabels::Worker& worker, size_t row, const TopKOutput& out) {
    const std::span<Visit> visits = search_.visits(row);
    if (!waiting_[row].empty()) {
        write(worker, row, waiting_[row], out);
        return true;
    }
    const float threshold = labels_.kth_lower_bound(worker, visits, k_);
    bool enough = true;
    const auto need = [&](Visit& v) {
        v.request();
        enough &= v.known();
    };
    for (Visit& v : visits)
        if (v.score >= threshold) need(v);
    if (!enough) return false;
    gaps_[row] -= threshold;
    labels_.find_reaching(worker, visits, threshold);
    for (const LeafLabels::Occurrence& o : worker.occurrences) need(visits[o.visit]);
    if (enough)
        write(worker, row, worker.occurrences, out);
    else
        waiting_[row] = worker.occurrences;
    return enough;
}

void ForestRanking::write(LeafLabels::Worker& worker, size_t row,
                          std::span<const LeafLabels::Occurrence> occurrences, const TopKOutput& out) {
    labels_.rank(worker, search_.visits(row), occurrences);
    out.write(row, worker.ranked);
}

}  // namespace bonsai

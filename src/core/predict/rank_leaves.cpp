#include "predict/rank_leaves.hpp"

#include <algorithm>
#include <limits>

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
    waiting_.resize(batch_.size());
    gaps_.resize(batch_.size());
    for (size_t begin = 0, end; begin < batch_.size(); begin = end) {
        end = begin_chunk(begin);
        open_.clear();
        for (size_t row = begin; row < end; ++row) {
            request_promising(row);
            waiting_[row].clear();
            open_.push_back(static_cast<uint32_t>(row));
        }
        while (!open_.empty()) {
            search_.margins().compute(search_.visits(begin, end));
            if (strict_beam_)
                search_.margins().keep_largest(search_.visits(begin, end), search_.beam_size(), pool_);
            for_each_row(pool_, 0, open_.size(), [&](size_t i, unsigned number) {
                const size_t row = open_[i];
                auto& worker = workers_[number];
                if (!worker) worker = std::make_unique<LeafLabels::Worker>(trees_.n_labels());
                if (waiting_[row].empty())
                    rank(*worker, row, out);
                else
                    write(*worker, row, waiting_[row], out);
            });
            std::erase_if(open_, [&](size_t row) {
                const auto visits = search_.visits(row);
                return std::none_of(visits.begin(), visits.end(),
                                    [](const Visit& v) { return v.state == Visit::Margins::requested; });
            });
        }
        if (!learned_) learn_gap(begin, end);
    }
}

// As many rows as have room for the margins of all their leaves; the first rows are few, to learn from.
size_t ForestRanking::begin_chunk(size_t begin) {
    constexpr size_t first_rows = 64;
    const size_t most = learned_ ? batch_.size() : std::min(batch_.size(), begin + first_rows);
    size_t end = begin, n = 0;
    for (; end < most; ++end) {
        size_t more = 0;
        for (const Visit& v : search_.visits(end)) more += search_.margins().width(v);
        if (end > begin && (n + more) * sizeof(float) > kMarginBytes) break;
        n += more;
    }
    search_.margins().reset(n);
    return end;
}

// The leaves that are most likely needed: how far they may be below a row's best one is learnt from the first
// rows. It changes what is computed, not what is found.
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

// Writes the best labels of a row, or requests margins of more leaves.
void ForestRanking::rank(LeafLabels::Worker& worker, size_t row, const TopKOutput& out) {
    const std::span<Visit> visits = search_.visits(row);
    const float threshold = labels_.kth_lower_bound(worker, visits, k_);
    bool enough = true;
    const auto need = [&](Visit& v) {
        v.request();
        enough &= v.known();
    };
    for (Visit& v : visits)
        if (v.score >= threshold) need(v);
    if (!enough) return;
    gaps_[row] -= threshold;
    labels_.find_reaching(worker, visits, threshold);
    for (const LeafLabels::Occurrence& o : worker.occurrences) need(visits[o.visit]);
    if (enough)
        write(worker, row, worker.occurrences, out);
    else
        waiting_[row] = worker.occurrences;
}

void ForestRanking::write(LeafLabels::Worker& worker, size_t row,
                          std::span<const LeafLabels::Occurrence> occurrences, const TopKOutput& out) {
    labels_.rank(worker, search_.visits(row), occurrences);
    out.write(row, worker.ranked);
}

}  // namespace bonsai

#include "predict/node_margins.hpp"

#include <functional>

namespace bonsai {

void NodeMargins::reset(size_t n_floats) {
    margins_.ensure_size(n_floats);
    largest_.ensure_size(n_floats / kLaneStep);
    n_used_ = 0;
}

bool NodeMargins::compute(std::span<Visit> visits) {
    return compute_requested(visits, false);
}

bool NodeMargins::compute_anew(std::span<Visit> visits) {
    return compute_requested(visits, true);
}

NodeMargins::Requests NodeMargins::count_requests(std::span<const Visit> visits) const {
    Requests found;
    for (const Visit& visit : visits)
        if (visit.state == Visit::Margins::requested) {
            ++found.n;
            found.n_floats += width(visit);
        }
    return found;
}

// Chooses those of a slice; `at` says what others come first. Returns where the next slice begins.
NodeMargins::Requests NodeMargins::take_requests(std::span<Visit> visits, size_t begin, size_t end,
                                                 Requests at) {
    for (size_t v = begin; v < end; ++v) {
        if (visits[v].state != Visit::Margins::requested) continue;
        visits[v].state = Visit::Margins::known;
        visits[v].first_margin = n_used_ + at.n_floats;
        at.n_floats += width(visits[v]);
        chosen_[at.n++] = static_cast<uint32_t>(v);
    }
    return at;
}

bool NodeMargins::compute_requested(std::span<Visit> visits, bool anew) {
    const Slices slices(visits.size(), pool_);
    Requests all{.n = visits.size()};
    if (slices.size() > 1) {
        requests_.assign(slices.size() + 1, {});
        slices.for_each(pool_, [&](size_t s, size_t begin, size_t end) {
            requests_[s + 1] = count_requests(visits.subspan(begin, end - begin));
        });
        for (size_t s = 0; s < slices.size(); ++s) requests_[s + 1] += requests_[s];
        all = requests_.back();
    } else {
        requests_.assign(1, {});
    }
    if (anew) n_used_ = 0;
    chosen_.resize(all.n);
    slices.for_each(pool_, [&](size_t s, size_t begin, size_t end) {
        const Requests found = take_requests(visits, begin, end, requests_[s]);
        if (slices.size() == 1) all = found;  // counted on the way
    });
    chosen_.resize(all.n);
    if (anew) reset(all.n_floats);
    n_used_ += all.n_floats;
    group(visits);
    // Once for all blocks of a node: visits are far apart in memory.
    firsts_.resize(chosen_.size());
    Slices(chosen_.size(), pool_).for_each(pool_, [&](size_t, size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) firsts_[i] = visits[chosen_[by_node_.item(i)]].first_margin;
    });
    loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t i) {
        const size_t at = firsts_[i] + block.from;
        largest_[at / kLaneStep] = scorer.margins(row, &margins_[at]);
    });
    return !chosen_.empty();
}

void NodeMargins::keep_largest(std::span<const Visit> visits, size_t n) {
    for_each_row(pool_, 0, chosen_.size(), [&](size_t i, unsigned) {
        const Visit& visit = visits[chosen_[i]];
        const size_t size = forest_.n_children(visit.node);
        if (size <= n) return;
        const std::span<float> margins(&margins_[visit.first_margin], size);
        std::vector<float> best(margins.begin(), margins.end());
        const auto end = best.begin() + static_cast<int64_t>(n);
        std::nth_element(best.begin(), end - 1, best.end(), std::greater<>());
        const float least = *(end - 1);
        auto n_equal = std::count(best.begin(), end, least);  // of those that are kept
        for (float& margin : margins)
            if (margin < least || (margin == least && n_equal-- <= 0)) margin = kExcluded;
        for (size_t from = 0; from < size; from += kBlockChildren)
            largest_[(visit.first_margin + from) / kLaneStep] = std::ranges::max(block_margins(visit, from));
    });
}

void NodeMargins::group(std::span<const Visit> visits) {
    by_node_.group(chosen_.size(), [&](size_t i) { return visits[chosen_[i]].node; });
    rows_.resize(chosen_.size());
    Slices(chosen_.size(), pool_).for_each(pool_, [&](size_t, size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) rows_[i] = visits[chosen_[by_node_.item(i)]].row;
    });
    blocks_.clear();
    for (size_t g = 0; g < by_node_.size(); ++g)
        for (size_t from = 0; from < forest_.n_children(by_node_.key(g)); from += kBlockChildren)
            blocks_.push_back({by_node_.key(g), from, by_node_.begin(g), by_node_.part(g, rows_)});
}

}  // namespace bonsai

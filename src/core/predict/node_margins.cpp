#include "predict/node_margins.hpp"

#include <functional>

namespace bonsai {

void NodeMargins::reset(size_t n_floats) {
    make_room(n_floats);
    n_used_ = 0;
}

void NodeMargins::make_room(size_t n_floats) {
    margins_.ensure_size(n_floats);
    largest_.ensure_size(n_floats / kLaneStep);
}

bool NodeMargins::compute_anew(std::span<Visit> visits) {
    const auto visit = [&](size_t v) -> Visit& { return visits[v]; };
    count_requests(visits.size(), visit);
    n_used_ = 0;
    place_nodes();
    make_room(n_used_);
    return compute_counted(visit);
}

void NodeMargins::place_nodes() {
    for (size_t g = 0; g < by_node_.size(); ++g) {
        const size_t width = padded_lanes(forest_.n_children(by_node_.key(g)));
        place_[by_node_.key(g)] = {n_used_ - by_node_.begin(g) * width, width};
        n_used_ += (by_node_.end(g) - by_node_.begin(g)) * width;
    }
}

void NodeMargins::list_blocks() {
    blocks_.clear();
    for (size_t g = 0; g < by_node_.size(); ++g)
        for (size_t from = 0; from < forest_.n_children(by_node_.key(g)); from += kBlockChildren)
            blocks_.push_back({by_node_.key(g), from, by_node_.begin(g), by_node_.part(g, rows_)});
}

void NodeMargins::compute_blocks() {
    loop_.run(forest_, blocks_, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, size_t i) {
        const size_t at = place_[block.node].of(i) + block.from;
        largest_[at / kLaneStep] = scorer.margins(row, &margins_[at]);
    });
}

void NodeMargins::keep_largest(std::span<const Visit> visits, size_t n) {
    for_each_row(pool_, 0, visits.size(), [&](size_t i, unsigned) {
        const Visit& visit = visits[i];
        const size_t size = forest_.n_children(visit.node);
        if (!visit.known() || size <= n) return;
        const std::span<float> margins(&margins_[visit.first_margin], size);
        std::vector<float> best(margins.begin(), margins.end());
        const auto end = best.begin() + static_cast<int64_t>(n);
        std::nth_element(best.begin(), end - 1, best.end(), std::greater<>());
        const float least = *(end - 1);
        auto n_equal = std::count(best.begin(), end, least);  // ties among the kept margins
        for (float& margin : margins)
            if (margin < least || (margin == least && n_equal-- <= 0)) margin = kExcluded;
        for (size_t from = 0; from < size; from += kBlockChildren)
            largest_[(visit.first_margin + from) / kLaneStep] = std::ranges::max(block_margins(visit, from));
    });
}

}  // namespace bonsai

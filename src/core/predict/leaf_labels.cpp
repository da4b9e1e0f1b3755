#include "predict/leaf_labels.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace bonsai {
namespace {

// The log of a sum of exponentials, kept as (largest exponent, sum relative to its exponential).
class LogSum {
  public:
    void add(float x) {
        if (x > largest_) {
            sum_ = sum_ * std::exp(largest_ - x) + 1.0;
            largest_ = x;
        } else {
            sum_ += std::exp(x - largest_);
        }
    }
    double value() const { return largest_ + std::log(sum_); }

  private:
    double largest_ = -std::numeric_limits<double>::infinity();
    double sum_ = 0;
};

// At least e^x, at most 7 % more, for x from -80 to 80: linear between powers of two.
float exp_upper_bound(float x) {
    constexpr float log2_e = 1.442695f, one = 1 << 23;
    const auto bits = static_cast<int32_t>((std::clamp(x, -80.0f, 80.0f) * log2_e + 127.0f) * one);
    return std::bit_cast<float>(bits);
}

}  // namespace

// The k best labels of each tree, combined.
float LeafLabels::kth_lower_bound(Worker& worker, std::span<const Visit> visits, size_t k) const {
    worker.votes.clear();
    search_.for_each_tree(visits, [&](size_t, std::span<const Visit> in_tree) {
        worker.best.reset(k);
        search_.margins().add_children(in_tree, scores_, worker.blocks, worker.best,
                                       [](int32_t label, float score, float margin) {
                                           return Vote{static_cast<uint32_t>(label), score, margin};
                                       });
        worker.votes.insert(worker.votes.end(), worker.best.items().begin(), worker.best.items().end());
    });
    average(worker);
    if (worker.ranked.size() < k || k == 0) return kLowest;
    const auto kth = worker.ranked.begin() + static_cast<int64_t>(k) - 1;
    std::nth_element(worker.ranked.begin(), kth, worker.ranked.end());
    const auto score = static_cast<float>(kth->score);
    return score - 1e-5f * (1 + std::abs(score));  // slack for rounding
}

// A label whose score is below the threshold in each tree has a mean below it. The same holds for labels that
// are only in leaves below the threshold.
void LeafLabels::find_reaching(Worker& worker, std::span<const Visit> visits, float threshold) const {
    choose_reaching(worker, visits, threshold);
    find_chosen(worker, visits);
    if (threshold > kLowest) drop_below(worker, threshold);
}

void LeafLabels::choose_reaching(Worker& worker, std::span<const Visit> visits, float threshold) const {
    const NodeMargins& margins = search_.margins();
    for (const Visit& visit : visits) {
        if (visit.score < threshold) continue;
        const float lowest = scores_.lowest_margin(visit.score, threshold);
        const auto label = trees_.children(visit.node);
        margins.for_each_block(visit, [&](size_t from, float largest) {
            if (largest < lowest) return;
            scores_.for_each_at_least(
                visit.score, margins.block_margins(visit, from), lowest,
                [&](size_t c, float) { choose(worker, static_cast<uint32_t>(label[from + c])); });
        });
    }
}

void LeafLabels::find_chosen(Worker& worker, std::span<const Visit> visits) const {
    auto& occurrences = worker.occurrences;
    occurrences.clear();
    for (uint32_t v = 0; v < visits.size(); ++v) {
        const Visit& visit = visits[v];
        const auto label = trees_.children(visit.node);
        if (worker.where.size() < label.size() + kLaneStep) worker.where.resize(label.size() + kLaneStep);
        const size_t n =
            kernels_.find_in_bitset(&worker.chosen[0], label.data(), label.size(), worker.where.data());
        for (const uint32_t c : std::span(worker.where).first(n))
            occurrences.push_back(
                {static_cast<uint32_t>(label[c]), v, c,
                 visit.known() ? scores_.of(visit.score, search_.margins().margin(visit, c)) : visit.score});
    }
    for (const Occurrence& o : occurrences) worker.chosen[o.label / 32] = 0;
}

// Drops labels whose mean is certainly below the threshold. In some rows hundreds of labels reach it in one
// tree, but nearly all of them have a mean below it.
void LeafLabels::drop_below(Worker& worker, float threshold) const {
    auto& occurrences = worker.occurrences;
    for (const Occurrence& o : occurrences) worker.bound[o.label] = 0;
    for (const Occurrence& o : occurrences) worker.bound[o.label] += exp_upper_bound(o.score - threshold);
    const float lowest = static_cast<float>(trees_.n_trees()) * 0.999f;
    worker.kept.clear();
    for (const Occurrence& o : occurrences)
        if (worker.bound[o.label] >= lowest) worker.kept.push_back(o);
    occurrences.swap(worker.kept);
}

void LeafLabels::rank(Worker& worker, std::span<const Visit> visits,
                      std::span<const Occurrence> occurrences) const {
    worker.votes.clear();
    for (const Occurrence& o : occurrences) {
        const float margin = search_.margins().margin(visits[o.visit], o.child);
        if (margin <= kExcluded) continue;
        worker.votes.push_back({o.label, scores_.of(visits[o.visit].score, margin), margin});
    }
    average(worker);
}

// Sets worker.ranked to the labels of worker.votes. Votes are in tree order, so that the order of addition is
// fixed.
void LeafLabels::average(Worker& worker) const {
    const double log_trees = std::log(static_cast<double>(trees_.n_trees()));
    auto& votes = worker.votes;
    std::stable_sort(votes.begin(), votes.end(),
                     [](const Vote& a, const Vote& b) { return a.label < b.label; });
    worker.ranked.clear();
    for (size_t begin = 0, end; begin < votes.size(); begin = end) {
        const uint32_t label = votes[begin].label;
        LogSum score;
        double margin = 0;
        for (end = begin; end < votes.size() && votes[end].label == label; ++end) {
            score.add(votes[end].score);
            margin += votes[end].margin;
        }
        worker.ranked.push_back(
            {score.value() - log_trees, margin / static_cast<double>(end - begin), label});
    }
}

}  // namespace bonsai

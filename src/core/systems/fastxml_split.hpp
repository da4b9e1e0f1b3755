// Divides the rows of a FastXML node by rankings of labels, one for each side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.hpp"

namespace bonsai {

// The gain of a row on a side by one of its labels.
enum class SideGain {
    kRank,   // 1 / log(1 + rank of the label), which adds up to nDCG
    kShare,  // the label's entry in the side's unit label vector: 2-means, for comparison
};

// Alternates until no row moves: rows move to the side whose ranking has the larger gain for them, and
// rankings are computed from the rows of their side (Prabhu, Varma: FastXML, KDD 2014, algorithm 2 with w =
// 0).
class RankingSplit {
  public:
    // label_weights: none, or one for each label, by which every occurrence is weighted (PfastXML); then
    // gains are not divided by the best gain of the row.
    RankingSplit(const Dataset& data, std::span<const float> label_weights, SideGain gain = SideGain::kRank);

    // `side` holds +1 or -1 for each of `rows`, as initial value and as result. Returns the number of rounds.
    int divide(std::span<const uint32_t> rows, std::span<int8_t> side);

  private:
    struct Label {
        double score[2] = {0, 0};  // on the side -1, on the side +1
        double gain[2] = {0, 0};
    };
    double label_weight(int32_t label) const { return label_weights_.empty() ? 1 : label_weights_[label]; }
    double discount(size_t rank);
    // 1 / the gain of the best ranking for a row with n labels.
    double best_gain_inverse(size_t n);
    void find_gains(size_t side);

    const Dataset& data_;
    std::span<const float> label_weights_;
    SideGain gain_;
    std::vector<Label> labels_;       // all zero between calls
    std::vector<int32_t> occurring_;  // labels of the node's rows, in the order of the last ranking
    std::vector<double> discounts_;   // for ranks 1, 2, …
    std::vector<double> inverse_;     // for 0, 1, … labels
};

}  // namespace bonsai

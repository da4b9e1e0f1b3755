// How a node of FastXML divides its rows: by rankings of labels, one for each side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.hpp"

namespace bonsai {

// What a label gives to a row on a side.
enum class SideGain {
    kRank,   // 1 / log(1 + its rank there), so that rows add up to nDCG
    kShare,  // its part of the unit vector of labels there: 2-means of label vectors, for comparison
};

// Rows move to the side whose ranking of labels suits them better, rankings follow the rows of their side, in
// turns, until no row moves (Prabhu, Varma: FastXML, KDD 2014, algorithm 2 with w = 0).
class RankingSplit {
  public:
    // label_weights: none, or one for each label, which every occurrence counts by (PfastXML); then gains are
    // not divided by the best gain of the row.
    RankingSplit(const Dataset& data, std::span<const float> label_weights, SideGain gain = SideGain::kRank);

    // `side` holds +1 or -1 for each of `rows`, at first and in the end. Returns the number of rounds.
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
    std::vector<double> discounts_;   // of ranks 1, 2, …
    std::vector<double> inverse_;     // of 0, 1, … labels
};

}  // namespace bonsai

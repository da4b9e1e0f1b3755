#include "systems/fastxml_split.hpp"

#include <algorithm>
#include <cmath>

namespace bonsai {

RankingSplit::RankingSplit(const Dataset& data, std::span<const float> label_weights, SideGain gain)
    : data_(data), label_weights_(label_weights), gain_(gain), labels_(data.n_labels()), inverse_{0.0} {}

double RankingSplit::discount(size_t rank) {
    while (discounts_.size() < rank)
        discounts_.push_back(1 / std::log(2.0 + static_cast<double>(discounts_.size())));
    return discounts_[rank - 1];
}

double RankingSplit::best_gain_inverse(size_t n) {
    if (!label_weights_.empty()) return 1;
    while (inverse_.size() <= n) {
        const double before = inverse_.size() == 1 ? 0 : 1 / inverse_.back();
        inverse_.push_back(1 / (before + discount(inverse_.size())));
    }
    return inverse_[n];
}

void RankingSplit::find_gains(size_t side) {
    if (gain_ == SideGain::kShare) {
        double squares = 0;
        for (const int32_t l : occurring_) squares += labels_[l].score[side] * labels_[l].score[side];
        const double norm = squares > 0 ? std::sqrt(squares) : 1;
        for (const int32_t l : occurring_) labels_[l].gain[side] = labels_[l].score[side] / norm;
        return;
    }
    std::sort(occurring_.begin(), occurring_.end(), [&](int32_t a, int32_t b) {
        const double of_a = labels_[a].score[side], of_b = labels_[b].score[side];
        return of_a != of_b ? of_a > of_b : a < b;
    });
    for (size_t i = 0; i < occurring_.size(); ++i) labels_[occurring_[i]].gain[side] = discount(i + 1);
}

int RankingSplit::divide(std::span<const uint32_t> rows, std::span<int8_t> side) {
    constexpr int kMostRounds = 100;  // the gain rises with each moved row; this guards against rounding
    occurring_.clear();
    for (const uint32_t row : rows)
        for (const int32_t l : data_.labels_of(row)) {
            if (labels_[l].score[0] == 0) occurring_.push_back(l);
            labels_[l].score[0] = 1;
        }
    int round = 0;
    for (bool moved = true; moved && round < kMostRounds; ++round) {
        for (const int32_t l : occurring_) labels_[l].score[0] = labels_[l].score[1] = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
            const auto labels = data_.labels_of(rows[i]);
            const double gain = data_.weight(rows[i]) * best_gain_inverse(labels.size());
            for (const int32_t l : labels) labels_[l].score[side[i] > 0] += gain * label_weight(l);
        }
        find_gains(0);
        find_gains(1);
        moved = false;
        for (size_t i = 0; i < rows.size(); ++i) {
            double gain[2] = {0, 0};
            for (const int32_t l : data_.labels_of(rows[i]))
                for (const size_t s : {0, 1}) gain[s] += label_weight(l) * labels_[l].gain[s];
            if (gain[0] == gain[1]) continue;
            const int8_t better = gain[1] > gain[0] ? 1 : -1;
            moved |= side[i] != better;
            side[i] = better;
        }
    }
    for (const int32_t l : occurring_) labels_[l] = {};
    return round;
}

}  // namespace bonsai

#include "data/dataset.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace bonsai {

Dataset::Dataset(const RowsView& x, std::span<const int64_t> label_ptr, std::span<const int32_t> labels,
                 size_t n_labels, std::span<const float> weights, bool normalize)
    : x_(x),
      n_features_(x.n_features),
      label_ptr_(label_ptr.data()),
      labels_(labels.data()),
      weights_(weights) {
    check_csr(label_ptr, labels, x.n_rows, n_labels, "Y");
    if (!weights.empty() && weights.size() != x.n_rows)
        throw std::invalid_argument("sample weights: " + std::to_string(weights.size()) + " for " +
                                    std::to_string(x.n_rows) + " rows; one weight is needed for each row");
    factors_.assign(x.n_rows, 1.0f);
    for (size_t i = 0; i < x.n_rows; ++i) {
        const double norm = row_norm(x, i);
        if (normalize && norm > kSmallestNorm) factors_[i] = static_cast<float>(1.0 / norm);
        if (!normalize && norm > kLargestNorm)
            throw std::invalid_argument("row " + std::to_string(i) +
                                        " of X has a norm above 1e15, too large for the solvers: rescale "
                                        "the features, or set normalize=True");
    }
    rows_of_label_ = transpose(label_ptr_, labels_, x.n_rows, n_labels);
    number_features();
}

void Dataset::number_features() {
    if (x_.is_dense() || static_cast<size_t>(x_.ptr[x_.n_rows]) >= x_.n_features) return;
    const std::span entries(x_.index, static_cast<size_t>(x_.ptr[x_.n_rows]));
    occurring_.assign(entries.begin(), entries.end());
    std::sort(occurring_.begin(), occurring_.end());
    occurring_.erase(std::unique(occurring_.begin(), occurring_.end()), occurring_.end());
    occurring_.shrink_to_fit();
    if (occurring_.empty()) occurring_.push_back(0);  // rows without entries need a column as well
    column_.resize(entries.size());
    for (size_t e = 0; e < entries.size(); ++e)
        column_[e] = static_cast<int32_t>(column_of(static_cast<uint32_t>(entries[e])));
    x_.index = column_.data();
    x_.n_features = occurring_.size();
}

std::vector<uint32_t> Dataset::features_of(std::span<const uint32_t> columns) const {
    std::vector<uint32_t> features(columns.begin(), columns.end());
    for (uint32_t& f : features) f = feature_of(f);
    return features;
}

uint32_t Dataset::column_of(uint32_t feature) const {
    if (occurring_.empty()) return feature;
    const auto place = std::lower_bound(occurring_.begin(), occurring_.end(), feature);
    return place != occurring_.end() && *place == feature ? static_cast<uint32_t>(place - occurring_.begin())
                                                          : kNoColumn;
}

}  // namespace bonsai

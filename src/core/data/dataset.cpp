#include "data/dataset.hpp"

#include <stdexcept>
#include <string>

namespace bonsai {

Dataset::Dataset(const RowsView& x, std::span<const int64_t> label_ptr, std::span<const int32_t> labels,
                 size_t n_labels, std::span<const float> weights, bool normalize)
    : x_(x), label_ptr_(label_ptr.data()), labels_(labels.data()), weights_(weights) {
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
}

}  // namespace bonsai

// A few rows with labels, for training.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.hpp"
#include "data/rows.hpp"

namespace fuzz {

inline constexpr size_t kTrainedFeatures = 24;
inline constexpr size_t kTrainedLabels = 9;

struct TrainingData {
    TrainingData() : rows{.n_rows = 30, .n_features = kTrainedFeatures} {
        rows.ptr.push_back(0);
        for (size_t i = 0; i < rows.n_rows; ++i) {
            for (size_t f = i % 3; f < kTrainedFeatures; f += 3 + i % 4) {
                rows.index.push_back(static_cast<int32_t>(f));
                rows.value.push_back(1.0f + static_cast<float>((i * f) % 5));
            }
            rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
            labels.push_back(static_cast<int32_t>(i % 4));
            labels.push_back(static_cast<int32_t>(4 + i % 5));
            label_ptr.push_back(static_cast<int64_t>(labels.size()));
        }
    }
    TrainingData(const TrainingData&) = delete;

    // The same rows, dense; each has a value.
    bonsai::Rows dense() const {
        bonsai::Rows same{.n_rows = rows.n_rows, .n_features = rows.n_features};
        same.dense.assign(rows.n_rows * rows.n_features, 0.0f);
        for (size_t i = 0; i < rows.n_rows; ++i)
            for (auto e = static_cast<size_t>(rows.ptr[i]); e < static_cast<size_t>(rows.ptr[i + 1]); ++e)
                same.dense[i * rows.n_features + static_cast<size_t>(rows.index[e])] = rows.value[e];
        return same;
    }

    bonsai::Rows rows;
    std::vector<int64_t> label_ptr = {0};
    std::vector<int32_t> labels;
};

}  // namespace fuzz

// Sparse linear classifiers of all labels, and their training rows stored by column.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "data/dataset.hpp"

namespace bonsai {

// max(0, |v| − t) with the sign of v.
inline double soft_threshold(double v, double t) {
    return std::copysign(std::max(0.0, std::abs(v) - t), v);
}

// One classifier. Features are columns of the data set, ascending.
struct SparseClassifier {
    std::vector<uint32_t> feature;
    std::vector<float> value;
    float bias = 0;
    int n_iter = 0;
    bool converged = true;
};

// Classifiers of labels 0, 1, …: label l has the weights [ptr[l], ptr[l + 1]), by ascending feature of X.
struct SparseWeights {
    std::vector<float> bias;
    std::vector<int64_t> ptr = {0};
    std::vector<uint32_t> feature;
    std::vector<float> value;
    int max_iter = 0;  // of the slowest classifier
    size_t n_unconverged = 0;

    void add(const SparseClassifier& classifier, const Dataset& data) {
        bias.push_back(classifier.bias);
        for (const uint32_t column : classifier.feature) feature.push_back(data.feature_of(column));
        value.insert(value.end(), classifier.value.begin(), classifier.value.end());
        ptr.push_back(static_cast<int64_t>(feature.size()));
        max_iter = std::max(max_iter, classifier.n_iter);
        n_unconverged += !classifier.converged;
    }
};

// The entries of a data set by column, rows ascending, times the factors of the rows.
class Columns {
  public:
    struct Entry {
        uint32_t row;
        float value;
    };
    // Entries of a cache line: filling many columns at once takes less time if the next line of each is
    // prefetched for writing.
    static constexpr size_t kAhead = 64 / sizeof(Entry);

    explicit Columns(const Dataset& data) : ptr_(data.x().n_features + 1, 0) {
        const RowsView& x = data.x();
        for (size_t i = 0; i < x.n_rows; ++i) for_each_entry(x, i, [&](uint32_t f, float) { ++ptr_[f + 1]; });
        for (size_t f = 0; f + 1 < ptr_.size(); ++f) ptr_[f + 1] += ptr_[f];
        entries_.resize(static_cast<size_t>(ptr_.back()));
        std::vector<int64_t> next(ptr_.begin(), ptr_.end() - 1);
        for (size_t i = 0; i < x.n_rows; ++i)
            for_each_entry(x, i, [&](uint32_t f, float v) {
                Entry* const entry = entries_.data() + next[f]++;
                __builtin_prefetch(entry + kAhead, 1);
                *entry = {static_cast<uint32_t>(i), v * data.factors()[i]};
            });
    }

    size_t size() const { return ptr_.size() - 1; }
    size_t n_entries() const { return entries_.size(); }
    std::span<const Entry> operator[](size_t column) const {
        return {entries_.data() + ptr_[column], static_cast<size_t>(ptr_[column + 1] - ptr_[column])};
    }

  private:
    std::vector<int64_t> ptr_;
    SharedVector<Entry> entries_;
};

}  // namespace bonsai

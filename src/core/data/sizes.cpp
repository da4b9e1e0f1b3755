#include "data/sizes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "data/label_vectors.hpp"

namespace bonsai {
namespace {

constexpr size_t kSampledLabels = 256;
constexpr size_t kFrequentLabels = 64;  // these are counted as well

// Counts the distinct numbers below a limit, one group of numbers after the other.
class DistinctCounter {
  public:
    explicit DistinctCounter(size_t limit) : last_(limit, 0) {}
    void begin() { ++group_, n_ = 0; }
    void add(size_t number) {
        n_ += last_[number] != group_;
        last_[number] = group_;
    }
    double n() const { return static_cast<double>(n_); }

  private:
    std::vector<uint32_t> last_;
    uint32_t group_ = 0;
    size_t n_ = 0;
};

void count_features(const Dataset& data, ProblemSizes& sizes) {
    constexpr size_t steps = 4;  // of an octave
    const RowsView& x = data.x();
    std::vector<uint32_t> frequency(x.n_features, 0);
    for (size_t i = 0; i < x.n_rows; ++i)
        for_each_entry(x, i, [&](uint32_t feature, float) { ++frequency[feature]; });
    std::vector<std::pair<double, double>> groups(steps * 32 + 1);
    for (const uint32_t n : frequency) {
        if (n == 0) continue;
        auto& [features, entries] =
            groups[static_cast<size_t>(std::lround(steps * std::log2(static_cast<double>(n))))];
        features += 1;
        entries += n;
        sizes.n_entries += n;
        sizes.n_used_features += 1;
        sizes.n_singletons += n == 1 && !x.is_dense();
    }
    for (const auto& [features, entries] : groups)
        if (features > 0) sizes.frequencies.emplace_back(features, entries / sizes.n_entries);
}

// Labels at equal distances in the order of frequency, and the most frequent labels.
void count_vectors(const Dataset& data, std::vector<uint32_t> present, ProblemSizes& sizes) {
    std::stable_sort(present.begin(), present.end(),
                     [&](uint32_t a, uint32_t b) { return data.rows_of(a).size() < data.rows_of(b).size(); });
    const size_t n_rare = present.size() - std::min(present.size(), kFrequentLabels);
    const size_t n_sampled = std::min(n_rare, kSampledLabels);
    DistinctCounter features(data.x().n_features), labels(data.n_labels());
    const auto count = [&](uint32_t label, double weight) {
        features.begin();
        labels.begin();
        for (const int32_t row : data.rows_of(label)) {
            for (const int32_t other : data.labels_of(static_cast<size_t>(row)))
                labels.add(static_cast<size_t>(other));
            if (!data.x().is_dense())
                for_each_entry(data.x(), static_cast<size_t>(row),
                               [&](uint32_t feature, float) { features.add(feature); });
        }
        const double n_input = data.x().is_dense() ? sizes.n_features : features.n();
        sizes.output_entries += weight * (labels.n() - 1);
        sizes.input_entries += weight * n_input;
        sizes.kept_output += weight * std::min<double>(labels.n() - 1, kKeptEntries);
        sizes.kept_input += weight * std::min<double>(n_input, kKeptEntries);
    };
    for (size_t s = 0; s < n_sampled; ++s)
        count(present[(2 * s + 1) * n_rare / (2 * n_sampled)],
              static_cast<double>(n_rare) / static_cast<double>(n_sampled));
    for (size_t p = n_rare; p < present.size(); ++p) count(present[p], 1);
}

}  // namespace

double ProblemSizes::distinct_features(double entries) const {
    double sum = 0;
    for (const auto& [n, share] : frequencies) sum += n * -std::expm1(-share / n * entries);
    return sum;
}

ProblemSizes sizes_of(const Dataset& data) {
    ProblemSizes sizes{.n_rows = static_cast<double>(data.n_rows()),
                       .n_features = static_cast<double>(data.x().n_features),
                       .n_entries = 0,
                       .n_used_features = 0,
                       .n_singletons = 0,
                       .dense = data.x().is_dense(),
                       .n_labels = static_cast<double>(data.n_labels()),
                       .n_pairs = 0,
                       .n_present = 0,
                       .input_entries = 0,
                       .output_entries = 0,
                       .kept_input = 0,
                       .kept_output = 0,
                       .n_products = n_products(data)};
    std::vector<uint32_t> present;
    for (uint32_t label = 0; label < data.n_labels(); ++label) {
        sizes.n_pairs += static_cast<double>(data.rows_of(label).size());
        if (!data.rows_of(label).empty()) present.push_back(label);
    }
    sizes.n_present = static_cast<double>(present.size());
    count_features(data, sizes);
    count_vectors(data, std::move(present), sizes);
    return sizes;
}

double vector_entries(const Dataset& data, uint32_t label) {
    if (data.x().is_dense()) return static_cast<double>(data.x().n_features);
    std::vector<uint32_t> features;
    for (const int32_t row : data.rows_of(label))
        for_each_entry(data.x(), static_cast<size_t>(row),
                       [&](uint32_t feature, float) { features.push_back(feature); });
    std::sort(features.begin(), features.end());
    return static_cast<double>(std::unique(features.begin(), features.end()) - features.begin());
}

std::vector<uint32_t> similar_rows(const Dataset& data, uint32_t label, size_t n) {
    const RowsView& x = data.x();
    std::vector<float> sum(x.n_features, 0.0f), similarity(x.n_rows, 0.0f);
    for (const int32_t row : data.rows_of(label))
        for_each_entry(x, static_cast<size_t>(row), [&](uint32_t feature, float v) { sum[feature] += v; });
    for (size_t i = 0; i < x.n_rows; ++i)
        for_each_entry(x, i, [&](uint32_t feature, float v) { similarity[i] += v * sum[feature]; });
    std::vector<uint32_t> order(x.n_rows);
    std::iota(order.begin(), order.end(), 0u);
    n = std::min(n, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(n), order.end(),
                      [&](uint32_t a, uint32_t b) {
                          return similarity[a] != similarity[b] ? similarity[a] > similarity[b] : a < b;
                      });
    order.resize(n);
    return order;
}

}  // namespace bonsai

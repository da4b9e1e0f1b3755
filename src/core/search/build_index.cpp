// From packed blocks to posting lists.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "search/label_index.hpp"

namespace bonsai {
namespace {

constexpr double kKeptMass = 0.75;  // share of a classifier's squared norm that its largest weights keep

// Magnitudes as floats with four bits of mantissa: kLevels levels from the largest down, eight octaves.
class Levels {
  public:
    explicit Levels(float largest) : first_(std::bit_cast<uint32_t>(largest) >> kDropped) {}

    // Returns kLevels if the magnitude is too small for any level.
    size_t of(float magnitude) const {
        return std::min<size_t>(kLevels, first_ - (std::bit_cast<uint32_t>(magnitude) >> kDropped));
    }
    // The midpoint of each level, 0 below the smallest number.
    std::vector<float> magnitudes() const {
        std::vector<float> all;
        for (uint32_t l = 0; l < kLevels; ++l)
            all.push_back(
                first_ < l ? 0.0f : std::bit_cast<float>(((first_ - l) << kDropped) | 1u << (kDropped - 1)));
        return all;
    }

  private:
    static constexpr unsigned kDropped = 23 - 4;
    uint32_t first_;
};

// Calls fn(feature, position, weight) for all weights of the blocks [begin, end).
template <class Fn>
void for_each_weight(const Forest& forest, size_t begin, size_t end, Fn&& fn) {
    for (size_t b = begin; b < end; ++b)
        forest.block(b).for_each_feature([&](size_t feature, const FeatureWeights& weights) {
            weights.for_each([&](size_t child, StoredWeight w) {
                const size_t position = b * kBlockChildren + child;
                if (w != 0 && feature < forest.n_features() && position < forest.n_children(0))
                    fn(feature, position, w);
            });
        });
}

// The smallest |weight| that is kept for each classifier; 1 keeps all.
std::vector<uint8_t> smallest_kept(const Forest& forest, Pool& pool) {
    std::vector<uint8_t> smallest(forest.n_children(0), 1);
    pool.run(forest.n_blocks(0), [&](size_t b, unsigned) {
        uint32_t count[kBlockChildren][kWeightMax + 2] = {};
        for_each_weight(forest, b, b + 1, [&](size_t, size_t position, StoredWeight w) {
            ++count[position % kBlockChildren][std::abs(int{w})];
        });
        const size_t n = std::min(kBlockChildren, smallest.size() - b * kBlockChildren);
        for (size_t c = 0; c < n; ++c) {
            uint64_t all = 0, kept = 0;
            for (uint64_t w = 1; w <= kWeightMax; ++w) all += count[c][w] * w * w;
            for (uint64_t w = kWeightMax + 1; w > 0 && static_cast<double>(kept) < kKeptMass * all; --w) {
                kept += count[c][w] * w * w;
                smallest[b * kBlockChildren + c] = static_cast<uint8_t>(w);
            }
        }
    });
    return smallest;
}

uint32_t posting(size_t level, bool negative, size_t position) {
    return static_cast<uint32_t>(level << 25 | size_t{negative} << 24 | position);
}

float most_common(std::span<const float> values) {
    std::vector<float> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    float best = 0;
    size_t most = 0;
    for (size_t begin = 0, end; begin < sorted.size(); begin = end) {
        for (end = begin + 1; end < sorted.size() && sorted[end] == sorted[begin];) ++end;
        if (end - begin > most) {
            most = end - begin;
            best = sorted[begin];
        }
    }
    return best;
}

// Scales and biases are finite, but may be close to the largest float.
float finite(float magnitude) {
    return std::min(magnitude, std::numeric_limits<float>::max());
}

// Calls fn(feature, magnitude, negative, position) for all weights that are kept, and for the biases,
// whose feature is n_features.
template <class Fn>
void for_each_kept(const Forest& forest, std::span<const uint8_t> smallest, float common_bias, Fn&& fn) {
    const ForestArrays& a = forest.arrays();
    for_each_weight(forest, 0, forest.n_blocks(0), [&](size_t feature, size_t position, StoredWeight w) {
        const int magnitude = std::abs(int{w});
        if (magnitude >= smallest[position])
            fn(feature, finite(std::abs(a.scale[position]) * static_cast<float>(magnitude)),
               (w < 0) != (a.scale[position] < 0), position);
    });
    for (size_t position = 0; position < forest.n_children(0); ++position)
        if (const float more = a.bias[position] - common_bias; more != 0)
            fn(forest.n_features(), finite(std::abs(more)), more < 0, position);
}

// The features that have postings, or none if lists are numbered like the features. With hashed features, the
// offsets of one list per feature would take more memory than the postings.
template <class ForEachPosting>
std::vector<uint32_t> listed_features(size_t n_features, ForEachPosting&& for_each_posting) {
    constexpr size_t few = size_t{1} << 22;
    if (n_features <= few) return {};
    std::vector<uint32_t> features;
    for_each_posting([&](size_t feature, uint32_t) {
        if (feature < n_features) features.push_back(static_cast<uint32_t>(feature));
    });
    if (features.size() >= n_features) return {};
    std::sort(features.begin(), features.end());
    features.erase(std::unique(features.begin(), features.end()), features.end());
    if (features.empty()) features.push_back(0);  // an empty array would mean all features
    return features;
}

// Sorts a list and writes its header.
void finish_list(std::span<uint32_t> words) {
    if (words.size() <= kShortList) return std::sort(words.begin(), words.end());
    const auto postings = words.subspan(kGroups);
    std::sort(postings.begin(), postings.end());
    for (size_t g = 0; g < kGroups; ++g) {
        const uint64_t end = uint64_t{g + 1} * kGroupLevels << 25;
        words[g] =
            static_cast<uint32_t>(std::lower_bound(postings.begin(), postings.end(), end,
                                                   [](uint32_t p, uint64_t limit) { return p < limit; }) -
                                  postings.begin());
    }
}

}  // namespace

OwnedLabelIndex build_label_index(const Forest& forest, Pool& pool) {
    if (!forest.is_one_leaf()) throw std::invalid_argument("a label index needs a forest that is one leaf");
    if (forest.n_children(0) > kMaxPositions)
        throw std::invalid_argument("a label index holds at most 16,777,216 classifiers; search all of them");
    const auto smallest = smallest_kept(forest, pool);
    const float common_bias = most_common(forest.arrays().bias);
    OwnedLabelIndex index;
    float largest = 0;
    for_each_kept(forest, smallest, common_bias,
                  [&](size_t, float magnitude, bool, size_t) { largest = std::max(largest, magnitude); });
    const Levels levels(largest);
    index.levels = levels.magnitudes();
    const auto for_each_posting = [&](auto&& fn) {
        for_each_kept(forest, smallest, common_bias,
                      [&](size_t feature, float magnitude, bool negative, size_t position) {
                          if (const size_t level = levels.of(magnitude); level < kLevels)
                              fn(feature, posting(level, negative, position));
                      });
    };
    index.features = listed_features(forest.n_features(), for_each_posting);
    const size_t n_lists = (index.features.empty() ? forest.n_features() : index.features.size()) + 1;
    const auto list_of = [&](size_t feature) -> size_t {
        if (index.features.empty()) return feature;
        return static_cast<size_t>(std::ranges::lower_bound(index.features, feature) -
                                   index.features.begin());  // the last list is that of the biases
    };
    index.list_ptr.assign(n_lists + 1, 0);
    for_each_posting([&](size_t feature, uint32_t) { ++index.list_ptr[list_of(feature) + 1]; });
    // Long lists start with a header: kShortList separates long from short lists.
    for (size_t l = 0; l < n_lists; ++l) {
        int64_t& n = index.list_ptr[l + 1];
        n += index.list_ptr[l] + (n > static_cast<int64_t>(kShortList) ? static_cast<int64_t>(kGroups) : 0);
    }
    std::vector<int64_t> next(index.list_ptr.begin(), index.list_ptr.end() - 1);
    for (size_t l = 0; l < next.size(); ++l)
        if (index.list_ptr[l + 1] - next[l] > static_cast<int64_t>(kShortList)) next[l] += kGroups;
    index.postings.assign(static_cast<size_t>(index.list_ptr.back()), 0);
    for_each_posting([&](size_t feature, uint32_t p) {
        index.postings[static_cast<size_t>(next[list_of(feature)]++)] = p;
    });
    constexpr size_t together = 1024;
    pool.run((next.size() + together - 1) / together, [&](size_t task, unsigned) {
        for (size_t l = task * together; l < std::min(next.size(), (task + 1) * together); ++l) {
            const auto begin = static_cast<size_t>(index.list_ptr[l]);
            finish_list(
                std::span(index.postings).subspan(begin, static_cast<size_t>(index.list_ptr[l + 1]) - begin));
        }
    });
    return index;
}

}  // namespace bonsai

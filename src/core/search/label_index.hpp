// An inverted index over one-vs-rest classifiers: for each feature, the labels with a large weight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "model/forest.hpp"

namespace bonsai {

// A posting is a weight: the list gives the feature; the posting holds the position of the classifier, the
// sign, and the magnitude, rounded to one of 128 levels:
//
//     bits 25 … 31: level, 0 for the largest magnitude | bit 24: set if negative | bits 0 … 23: position
//
// A position counts the classifiers among the children of the forest's leaf. The postings of a list ascend,
// so that the largest magnitudes come first. A list of more than kShortList postings begins with kGroups
// words: the number of its postings in the first group of kGroupLevels levels, in the first two groups, and
// so on.
inline constexpr size_t kMaxPositions = size_t{1} << 24;
inline constexpr size_t kLevels = 128;
inline constexpr size_t kGroups = 16;
inline constexpr size_t kGroupLevels = kLevels / kGroups;
inline constexpr size_t kShortList = 64;

struct LabelIndexArrays {
    std::span<const int64_t> list_ptr;   // lists + 1: first word of each list; the last list holds biases
    std::span<const uint32_t> postings;  // words of all lists
    std::span<const float> levels;       // kLevels magnitudes, descending
    std::span<const uint32_t> features;  // the feature of each list but the last, ascending; empty: all
};

// The name of the array that the file omits if it is empty.
inline constexpr const char* kListedFeatures = "features";

// The only list of the arrays. Calls fn(name, array of each index …) for each array, in the order of the
// model file.
template <class Fn, class... Indexes>
void for_each_index_array(Fn&& fn, Indexes&&... index) {
    fn("list_ptr", index.list_ptr...);
    fn("postings", index.postings...);
    fn("levels", index.levels...);
    fn(kListedFeatures, index.features...);
}

// The arrays of an index under construction.
struct OwnedLabelIndex {
    std::vector<int64_t> list_ptr;
    std::vector<uint32_t> postings;
    std::vector<float> levels;
    std::vector<uint32_t> features;

    LabelIndexArrays arrays() const { return {list_ptr, postings, levels, features}; }
};

// The postings of a feature. Valid for any words.
class PostingList {
  public:
    explicit PostingList(std::span<const uint32_t> words)
        : header_(words.size() > kShortList ? words.data() : nullptr),
          postings_(header_ ? words.subspan(kGroups) : words) {}

    size_t size() const { return postings_.size(); }
    bool is_short() const { return !header_; }
    // The number of postings in the first n groups, n > 0; all postings of a short list.
    size_t in_groups(size_t n) const {
        return header_ ? std::min<size_t>(__atomic_load_n(header_ + n - 1, __ATOMIC_RELAXED), size())
                       : size();
    }
    const uint32_t* data() const { return postings_.data(); }
    uint32_t first() const { return __atomic_load_n(postings_.data(), __ATOMIC_RELAXED); }

  private:
    const uint32_t* header_;
    std::span<const uint32_t> postings_;
};

class SearchCache;

// Immutable.
class LabelIndex {
  public:
    // Takes the result of `build_label_index` unchecked.
    LabelIndex(OwnedLabelIndex&& made, size_t n_features, size_t n_positions);
    // Takes arrays from a file or a caller. Everything but the postings is copied and validated. The postings
    // stay where they are and are read with bounds checks, as they may be mapped memory that changes; `owner`
    // keeps them alive. Throws std::invalid_argument.
    LabelIndex(const LabelIndexArrays& arrays, size_t n_features, size_t n_positions,
               std::shared_ptr<const void> owner = nullptr);
    LabelIndex(const LabelIndex&) = delete;
    LabelIndex& operator=(const LabelIndex&) = delete;

    const LabelIndexArrays& arrays() const { return a_; }
    size_t n_features() const { return n_features_; }
    size_t n_positions() const { return n_positions_; }
    PostingList list(size_t feature) const {
        if (a_.features.empty()) return list_at(feature);
        const auto place = std::lower_bound(a_.features.begin(), a_.features.end(), feature);
        if (place == a_.features.end() || *place != feature) return PostingList({});
        return list_at(static_cast<size_t>(place - a_.features.begin()));
    }
    // Biases minus the most common bias, as weights of a feature with the value 1.
    PostingList biases() const { return list_at(n_lists() - 1); }
    const float* levels() const { return a_.levels.data(); }

    // A cache of searches in this index; thread-safe.
    SearchCache& searches() const { return *searches_; }

    // Checks the words as well: positions in range, postings ascending, headers consistent with the postings.
    void verify() const;

  private:
    size_t n_lists() const { return a_.list_ptr.size() - 1; }
    PostingList list_at(size_t l) const {
        const auto begin = static_cast<size_t>(a_.list_ptr[l]);
        return PostingList(a_.postings.subspan(begin, static_cast<size_t>(a_.list_ptr[l + 1]) - begin));
    }

    OwnedLabelIndex owned_;
    std::shared_ptr<const void> owner_;
    LabelIndexArrays a_;
    size_t n_features_;
    size_t n_positions_;
    std::shared_ptr<SearchCache> searches_;
};

// Builds the index over a forest that is one leaf. Each classifier has postings for its largest weights,
// which hold three quarters of its squared norm. Throws std::invalid_argument if there are more than
// kMaxPositions classifiers.
OwnedLabelIndex build_label_index(const Forest& one_vs_rest, Pool& pool);

}  // namespace bonsai

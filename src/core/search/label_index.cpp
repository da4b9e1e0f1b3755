#include "search/label_index.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "search/candidate_search.hpp"

namespace bonsai {
namespace {

void require(bool holds, const char* what) {
    if (!holds)
        throw std::invalid_argument(std::string("the model is inconsistent: its label index has ") + what);
}

}  // namespace

LabelIndex::LabelIndex(OwnedLabelIndex&& made, size_t n_features, size_t n_positions)
    : owned_(std::move(made)),
      a_(owned_.arrays()),
      n_features_(n_features),
      n_positions_(n_positions),
      searches_(std::make_shared<SearchCache>()) {}

LabelIndex::LabelIndex(const LabelIndexArrays& arrays, size_t n_features, size_t n_positions,
                       std::shared_ptr<const void> owner)
    : owned_{.list_ptr = {arrays.list_ptr.begin(), arrays.list_ptr.end()},
             .postings = {},
             .levels = {arrays.levels.begin(), arrays.levels.end()},
             .features = {arrays.features.begin(), arrays.features.end()}},
      owner_(std::move(owner)),
      a_{owned_.list_ptr, arrays.postings, owned_.levels, owned_.features},
      n_features_(n_features),
      n_positions_(n_positions),
      searches_(std::make_shared<SearchCache>()) {
    require(n_positions <= kMaxPositions, "more classifiers than there can be");
    require(std::ranges::adjacent_find(a_.features, std::greater_equal{}) == a_.features.end() &&
                (a_.features.empty() || a_.features.back() < n_features),
            "features that do not ascend, or are out of range");
    require(a_.list_ptr.size() == (a_.features.empty() ? n_features : a_.features.size()) + 2,
            "a list_ptr of a wrong length");
    require(a_.list_ptr.front() == 0 && a_.list_ptr.back() == static_cast<int64_t>(a_.postings.size()),
            "a list_ptr that does not span the postings");
    require(std::is_sorted(a_.list_ptr.begin(), a_.list_ptr.end()), "a list_ptr that descends");
    require(a_.levels.size() == kLevels, "levels of a wrong length");
    for (size_t l = 0; l < kLevels; ++l)
        require(
            std::isfinite(a_.levels[l]) && a_.levels[l] >= 0 && (l == 0 || a_.levels[l] <= a_.levels[l - 1]),
            "levels that are not descending magnitudes");
}

void LabelIndex::verify() const {
    for (size_t l = 0; l < n_lists(); ++l) {
        const PostingList postings = list_at(l);
        size_t in_groups[kGroups] = {};
        for (size_t i = 0; i < postings.size(); ++i) {
            const uint32_t posting = postings.data()[i];
            require(posting % kMaxPositions < n_positions_, "a position out of range");
            require(i == 0 || posting > postings.data()[i - 1], "postings that do not ascend");
            for (size_t g = (posting >> 25) / kGroupLevels; g < kGroups; ++g) ++in_groups[g];
        }
        for (size_t g = 0; g < kGroups && !postings.is_short(); ++g)
            require(postings.in_groups(g + 1) == in_groups[g], "a header that does not fit its postings");
    }
}

}  // namespace bonsai

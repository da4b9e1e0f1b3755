// The terms of a field's documents in the order of the text, as numbers (ids). Each worker numbers terms by
// itself, so that none waits for another; `merge` gives them common numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/parallel.hpp"
#include "text/string_table.hpp"

namespace bonsai::text {

// Documents that one worker read.
struct Segment {
    uint32_t worker = 0;
    std::vector<uint32_t> terms = {};
    std::vector<uint32_t> ends = {};  // of each document in `terms`

    size_t size() const { return ends.size(); }
    size_t begin_of(size_t document) const { return document > 0 ? ends[document - 1] : 0; }
};

class TermStream {
  public:
    // One worker's numbers of terms, and in how many documents each occurs.
    class alignas(64) Numbering {
      public:
        uint32_t number(std::string_view term, uint32_t document) {
            const uint32_t number = strings.intern(term);
            if (number == seen.size()) seen.push_back({kNone, 0});
            if (seen[number].last != document) {
                seen[number].last = document;
                ++seen[number].df;
            }
            return number;
        }

        StringTable strings;

      private:
        friend class TermStream;
        struct Seen {
            uint32_t last;  // document
            uint32_t df;
        };
        std::vector<Seen> seen;
    };

    // Room for the segments of the next documents; the first one's place is returned.
    size_t add_segments(size_t n, unsigned workers);
    Segment& segment(size_t i) { return segments_[i]; }
    Numbering& numbering(unsigned worker) { return numberings_[worker]; }

    // Ends the reading. All workers' terms get common numbers.
    void merge(Pool& pool);
    // Then, if wanted: drops terms in fewer than `min_df` documents, and renumbers the others, sorted by code
    // points.
    void sort(double min_df, Pool& pool);

    // After merging:
    const std::vector<Segment>& segments() const { return segments_; }  // kNone: dropped
    // May be moved from.
    StringTable& terms() { return terms_; }
    std::vector<uint32_t>& df() { return df_; }

  private:
    std::vector<Numbering> numberings_;
    std::vector<Segment> segments_;
    StringTable terms_;
    std::vector<uint32_t> df_;
};

// Terms in at least `min_df` documents, in the order of their code points.
struct SortedTerms {
    StringTable terms = {};
    std::vector<uint32_t> df = {};
    std::vector<uint32_t> number_of = {};  // of each term as it was; kNone: given up
};
SortedTerms sort_terms(const StringTable& terms, const std::vector<uint32_t>& df, double min_df);

}  // namespace bonsai::text

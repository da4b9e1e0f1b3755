// The terms of a field's documents in text order, as numbers (ids). Each worker has its own numbering, so
// that no worker waits for another; `merge` makes one numbering of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/parallel.hpp"
#include "text/string_table.hpp"

namespace bonsai::text {

// Documents read by one worker.
struct Segment {
    uint32_t worker = 0;
    std::vector<uint32_t> terms = {};
    std::vector<uint32_t> ends = {};  // end of each document in `terms`

    size_t size() const { return ends.size(); }
    size_t begin_of(size_t document) const { return document > 0 ? ends[document - 1] : 0; }
};

class TermStream {
  public:
    // The numbering of one worker, and the document frequency of each term.
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

    // Makes room for further segments and returns the position of the first.
    size_t add_segments(size_t n, unsigned workers);
    Segment& segment(size_t i) { return segments_[i]; }
    Numbering& numbering(unsigned worker) { return numberings_[worker]; }

    // Ends reading: merges the numberings of all workers.
    void merge(Pool& pool);
    // Optional after merging: drops terms in fewer than `min_df` documents, and renumbers the others in code
    // point order.
    void sort(double min_df, Pool& pool);

    // Valid after merging:
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
    std::vector<uint32_t> number_of = {};  // previous number -> new number; kNone: dropped
};
SortedTerms sort_terms(const StringTable& terms, const std::vector<uint32_t>& df, double min_df);

}  // namespace bonsai::text

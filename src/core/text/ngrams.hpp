// Word n-grams as pairs of numbers (ids): an n-gram is an (n-1)-gram and the word after it. Strings are not
// needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.hpp"
#include "text/term_stream.hpp"

namespace bonsai::text {

// All n-grams of one order that occur in enough documents.
struct NgramLevel {
    // The n-grams of one segment's documents. The n-grams of a document are distinct and in no order.
    struct Counts {
        std::vector<uint32_t> ngrams = {};
        std::vector<uint32_t> n = {};
        std::vector<uint32_t> ends = {};

        size_t begin_of(size_t document) const { return document > 0 ? ends[document - 1] : 0; }
    };

    std::vector<uint64_t>
        keys;  // number of the (n-1)-gram and of the last word; ascending, so in the order of words
    std::vector<uint32_t> df;
    std::vector<Counts> segments;
};

// For each place in each segment, the number of the n-gram that begins there, or kNone.
using NgramPlaces = std::vector<std::vector<uint32_t>>;

// Counts the n-grams, n >= 2; `prefixes` are the places of (n-1)-grams, unused for n = 2. If `places` is
// given, it is filled with the places of the n-grams.
NgramLevel count_ngrams(const std::vector<Segment>& words, const NgramPlaces& prefixes, uint32_t n,
                        double min_df, NgramPlaces* places, Pool& pool);

}  // namespace bonsai::text

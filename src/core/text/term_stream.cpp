#include "text/term_stream.hpp"

#include <algorithm>
#include <utility>

namespace bonsai::text {

namespace {

// The first 8 bytes as a number with the same order.
uint64_t big_endian_head(std::string_view s) {
    return __builtin_bswap64(detail::load_head(s.data(), s.size()));
}

}  // namespace

SortedTerms sort_terms(const StringTable& terms, const std::vector<uint32_t>& df, double min_df) {
    struct Item {
        uint64_t head;
        uint32_t number;
    };
    std::vector<Item> items;
    for (uint32_t i = 0; i < terms.size(); ++i)
        if (df[i] >= min_df) items.push_back({big_endian_head(terms[i]), i});
    // UTF-8 sorts in code point order; string_view compares unsigned bytes.
    std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
        return a.head != b.head ? a.head < b.head : terms[a.number] < terms[b.number];
    });
    SortedTerms sorted;
    sorted.number_of.assign(terms.size(), kNone);
    for (const Item& item : items) {
        sorted.number_of[item.number] = sorted.terms.intern(terms[item.number]);
        sorted.df.push_back(df[item.number]);
    }
    return sorted;
}

size_t TermStream::add_segments(size_t n, unsigned workers) {
    if (numberings_.size() < workers) numberings_.resize(workers);
    segments_.resize(segments_.size() + n);
    return segments_.size() - n;
}

void TermStream::merge(Pool& pool) {
    if (numberings_.empty()) numberings_.resize(1);
    terms_ = std::move(numberings_[0].strings);  // terms of the other workers are added
    std::vector<std::vector<uint32_t>> common(numberings_.size());
    for (size_t w = 0; w < numberings_.size(); ++w) {
        const auto& seen = numberings_[w].seen;
        common[w].resize(seen.size());
        for (uint32_t i = 0; i < seen.size(); ++i) {
            const uint32_t number = common[w][i] = w == 0 ? i : terms_.intern(numberings_[w].strings[i]);
            if (number >= df_.size()) df_.resize(number + 1);
            df_[number] += seen[i].df;
        }
    }
    numberings_ = {};
    pool.run(segments_.size(), [&](size_t i, unsigned) {
        if (segments_[i].worker == 0) return;
        for (auto& term : segments_[i].terms) term = common[segments_[i].worker][term];
    });
}

void TermStream::sort(double min_df, Pool& pool) {
    SortedTerms sorted = sort_terms(terms_, df_, min_df);
    pool.run(segments_.size(), [&](size_t i, unsigned) {
        for (auto& term : segments_[i].terms) term = sorted.number_of[term];
    });
    terms_ = std::move(sorted.terms);
    df_ = std::move(sorted.df);
}

}  // namespace bonsai::text

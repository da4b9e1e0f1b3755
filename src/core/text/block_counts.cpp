#include "text/block_counts.hpp"

#include <utility>

namespace bonsai::text {

void FieldWords::merge(const std::vector<double>& min_df, Pool& pool) {
    stream.merge(pool);
    stream.sort(min_df[0], pool);
    NgramPlaces prefixes;
    for (size_t n = 2; n <= min_df.size(); ++n) {
        NgramPlaces places;
        levels_.push_back(count_ngrams(stream.segments(), prefixes, static_cast<uint32_t>(n), min_df[n - 1],
                                       n < min_df.size() ? &places : nullptr, pool));
        prefixes = std::move(places);
    }
}

FieldTerms FieldWords::take_terms() {
    FieldTerms terms{.words = std::move(stream.terms())};
    for (auto& level : levels_) terms.ngrams.push_back(std::move(level.keys));
    return terms;
}

class FieldWords::Block final : public BlockCounts {
  public:
    Block(const FieldWords& words, uint32_t min_n, uint32_t max_n)
        : words_(words), min_n_(min_n), max_n_(max_n) {}

    void count(size_t segment, size_t document, const Columns& columns,
               CountScratch& scratch) const override {
        const Segment& words = words_.stream.segments()[segment];
        const size_t begin = words.begin_of(document), end = words.ends[document];
        scratch.columns.begin(columns.size);
        for (uint32_t n = min_n_; n <= max_n_; ++n) {
            const auto& of = columns.of[n - min_n_];
            if (n == 1) {
                for (size_t i = begin; i < end; ++i)
                    if (words.terms[i] != kNone && of[words.terms[i]] != kNone)
                        scratch.columns.add(of[words.terms[i]]);
            } else {
                const auto& counts = words_.levels_[n - 2].segments[segment];
                for (size_t i = counts.begin_of(document); i < counts.ends[document]; ++i)
                    if (of[counts.ngrams[i]] != kNone)
                        scratch.columns.append(of[counts.ngrams[i]], counts.n[i]);
            }
        }
        scratch.columns.end();
    }

  private:
    const FieldWords& words_;
    uint32_t min_n_, max_n_;
};

std::unique_ptr<BlockCounts> FieldWords::block(uint32_t min_n, uint32_t max_n) const {
    return std::make_unique<Block>(*this, min_n, max_n);
}

void CharacterCounts::count(size_t segment, size_t document, const Columns& columns,
                            CountScratch& scratch) const {
    const Segment& terms = stream.segments()[segment];
    const size_t begin = terms.begin_of(document), end = terms.ends[document];
    scratch.columns.begin(columns.size);
    for (size_t i = begin; i < end; ++i)
        if (terms.terms[i] != kNone && columns.of[0][terms.terms[i]] != kNone)
            scratch.columns.add(columns.of[0][terms.terms[i]]);
    scratch.columns.end();
}

SpanNgrams::SpanNgrams(TermStream& spans, uint32_t min_n, uint32_t max_n, double min_df, Pool& pool)
    : spans_(spans) {
    list_ngrams(min_n, max_n);
    SortedTerms sorted = sort_terms(grams_, count_documents(pool), min_df);
    grams_ = std::move(sorted.terms);
    df_ = std::move(sorted.df);
    size_t from = 0, to = 0;
    for (size_t span = 0; span + 1 < ptr_.size(); ++span) {
        for (; from < ptr_[span + 1]; ++from)
            if (sorted.number_of[ngrams_[from]] != kNone) ngrams_[to++] = sorted.number_of[ngrams_[from]];
        ptr_[span + 1] = to;
    }
    ngrams_.resize(to);
}

void SpanNgrams::list_ngrams(uint32_t min_n, uint32_t max_n) {
    PaddedSpan padded;
    Offsets offsets;
    ptr_.push_back(0);
    for (size_t i = 0; i < spans_.terms().size(); ++i) {
        for_each_ngram_in_span(padded(spans_.terms()[i]), offsets, min_n, max_n,
                               [&](std::string_view gram) { ngrams_.push_back(grams_.intern(gram)); });
        ptr_.push_back(ngrams_.size());
    }
}

// Calls fn(n-gram, times) for the n-grams of each distinct span of a document. An n-gram may be passed more
// than once.
template <class Fn>
void SpanNgrams::for_each_ngram(size_t segment, size_t document, Distinct<uint32_t>& spans, Fn&& fn) const {
    const Segment& terms = spans_.segments()[segment];
    const size_t begin = terms.begin_of(document), end = terms.ends[document];
    spans.begin(end - begin);
    for (size_t i = begin; i < end; ++i) spans.add(terms.terms[i]);
    for (const auto& [span, times] : spans.items())
        for (size_t i = ptr_[span]; i < ptr_[span + 1]; ++i) fn(ngrams_[i], times);
}

std::vector<uint32_t> SpanNgrams::count_documents(Pool& pool) const {
    struct Worker {
        std::vector<uint32_t> df;
        std::vector<uint32_t> last;  // last document with the n-gram
        uint32_t document = 0;
        Distinct<uint32_t> spans;
    };
    std::vector<Worker> workers(pool.threads());
    pool.run(spans_.segments().size(), [&](size_t segment, unsigned w) {
        Worker& worker = workers[w];
        worker.df.resize(grams_.size());
        worker.last.resize(grams_.size());
        for (size_t d = 0; d < spans_.segments()[segment].size(); ++d) {
            ++worker.document;
            for_each_ngram(segment, d, worker.spans, [&](uint32_t ngram, uint32_t) {
                if (worker.last[ngram] == worker.document) return;
                worker.last[ngram] = worker.document;
                ++worker.df[ngram];
            });
        }
    });
    std::vector<uint32_t> df(grams_.size());
    for (const Worker& worker : workers)
        for (size_t i = 0; i < worker.df.size(); ++i) df[i] += worker.df[i];
    return df;
}

void SpanNgrams::count(size_t segment, size_t document, const Columns& columns, CountScratch& scratch) const {
    scratch.columns.begin(columns.size);
    for_each_ngram(segment, document, scratch.spans, [&](uint32_t ngram, uint32_t times) {
        if (columns.of[0][ngram] != kNone) scratch.columns.add(columns.of[0][ngram], times);
    });
    scratch.columns.end();
}

BlockTerms SpanNgrams::take_terms() {
    return {.grams = std::move(grams_), .df = {std::move(df_)}};
}

}  // namespace bonsai::text

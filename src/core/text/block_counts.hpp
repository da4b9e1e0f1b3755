// The term counts of all documents of a fit, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "text/distinct.hpp"
#include "text/ngrams.hpp"
#include "text/term_stream.hpp"
#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"

namespace bonsai::text {

// Buffers of one worker.
struct CountScratch {
    ColumnCounts columns;
    Distinct<uint32_t> spans;
};

// The terms of one block in each document.
class BlockCounts {
  public:
    virtual ~BlockCounts() = default;
    // The distinct columns of a document, with their counts, into `scratch.columns`.
    virtual void count(size_t segment, size_t document, const Columns& columns,
                       CountScratch& scratch) const = 0;
};

// Words and word n-grams of a field, for all of its word blocks.
class FieldWords {
  public:
    TermStream stream;

    // `min_df[n - 1]`: n-grams in fewer documents are dropped.
    void merge(const std::vector<double>& min_df, Pool& pool);
    // The document frequencies of all n-grams of order n.
    const std::vector<uint32_t>& df(size_t n) { return n == 1 ? stream.df() : levels_[n - 2].df; }
    // Moves out the words and the keys of n-grams.
    FieldTerms take_terms();
    std::unique_ptr<BlockCounts> block(uint32_t min_n, uint32_t max_n) const;

  private:
    class Block;
    std::vector<NgramLevel> levels_;  // [n - 2]
};

// Character n-grams across words: the stream holds them directly.
class CharacterCounts final : public BlockCounts {
  public:
    TermStream stream;

    void count(size_t segment, size_t document, const Columns& columns, CountScratch& scratch) const override;
};

// Character n-grams within spans. The n-grams of a span are computed once, however often the span occurs.
class SpanNgrams final : public BlockCounts {
  public:
    // `spans` must be merged.
    SpanNgrams(TermStream& spans, uint32_t min_n, uint32_t max_n, double min_df, Pool& pool);

    void count(size_t segment, size_t document, const Columns& columns, CountScratch& scratch) const override;
    BlockTerms take_terms();

  private:
    void list_ngrams(uint32_t min_n, uint32_t max_n);
    std::vector<uint32_t> count_documents(Pool& pool) const;
    template <class Fn>
    void for_each_ngram(size_t segment, size_t document, Distinct<uint32_t>& spans, Fn&& fn) const;

    TermStream& spans_;
    StringTable grams_;
    std::vector<uint32_t> df_;
    std::vector<size_t> ptr_;       // per span
    std::vector<uint32_t> ngrams_;  // per span
};

}  // namespace bonsai::text

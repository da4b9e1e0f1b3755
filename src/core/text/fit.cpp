#include "text/fit.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "text/block_counts.hpp"

namespace bonsai::text {

namespace {

constexpr size_t kBytesPerSegment = 256 << 10;

}  // namespace

// The streams of one field, and its blocks after everything is read.
class FieldCounts {
  public:
    FieldCounts(const TextSpec& spec, uint32_t field) : spec_(spec), characters_(spec.blocks.size()) {
        for (size_t b = 0; b < spec.blocks.size(); ++b) {
            if (spec.blocks[b].field != field) continue;
            blocks_.push_back(b);
            switch (spec.blocks[b].analyzer) {
                case Analyzer::word:
                    words_.emplace();
                    break;
                case Analyzer::character_in_span:
                    spans_.emplace();
                    break;
                case Analyzer::character:
                    characters_[b] = std::make_unique<CharacterCounts>();
            }
        }
    }

    void add_segments(size_t n, unsigned workers) {
        for_each_stream([&](TermStream& stream) { stream.add_segments(n, workers); });
    }

    // Reads the documents of one segment; `first` is the number of its first document.
    void read(size_t segment, unsigned worker, std::span<const std::string_view> texts, size_t first,
              const Control& control) {
        Normalized text;
        Offsets offsets;
        for_each_stream([&](TermStream& stream) {
            stream.segment(segment) = {.worker = worker};
            stream.segment(segment).ends.reserve(texts.size());
        });
        for (size_t d = 0; d < texts.size(); ++d) {
            control.check();
            text.assign(texts[d], spec_.lowercase);
            const auto document = static_cast<uint32_t>(first + d);
            if (words_)
                fill(words_->stream, segment, worker, document,
                     [&](auto&& add) { for_each_word(text.view(), spec_.min_word_length, add); });
            if (spans_)
                fill(*spans_, segment, worker, document,
                     [&](auto&& add) { for_each_span(text.view(), add); });
            for (size_t b = 0; b < characters_.size(); ++b) {
                if (!characters_[b]) continue;
                const BlockSpec& block = spec_.blocks[b];
                text.collapse_spaces();
                fill(characters_[b]->stream, segment, worker, document, [&](auto&& add) {
                    for_each_char_ngram(text.view(), offsets, block.min_n, block.max_n, add);
                });
            }
        }
        for_each_stream([&](TermStream& stream) { stream.segment(segment).terms.shrink_to_fit(); });
    }

    // The terms of the field and of its blocks, with all document frequencies from min_df up.
    void merge(Vocabulary& vocabulary, uint32_t field, Pool& pool) {
        const size_t n = vocabulary.n_documents;
        if (words_) words_->merge(least_df(n), pool);
        if (spans_) spans_->merge(pool);
        for (const size_t b : blocks_) {
            const BlockSpec& block = spec_.blocks[b];
            BlockTerms& terms = vocabulary.blocks[b];
            if (block.analyzer == Analyzer::word) {
                for (size_t i = block.min_n; i <= block.max_n; ++i) terms.df.push_back(words_->df(i));
                counts_.push_back(words_->block(block.min_n, block.max_n));
            } else if (block.analyzer == Analyzer::character) {
                auto& stream = characters_[b]->stream;
                stream.merge(pool);
                stream.sort(block.min_df.of(n), pool);
                terms = {.grams = std::move(stream.terms()), .df = {std::move(stream.df())}};
                counts_.push_back(std::move(characters_[b]));
            } else {
                auto grams =
                    std::make_unique<SpanNgrams>(*spans_, block.min_n, block.max_n, block.min_df.of(n), pool);
                terms = grams->take_terms();
                counts_.push_back(std::move(grams));
            }
        }
        if (words_) vocabulary.fields[field] = words_->take_terms();
    }

    const std::vector<size_t>& blocks() const { return blocks_; }
    const BlockCounts& counts(size_t i) const { return *counts_[i]; }

  private:
    template <class Fn>
    void for_each_stream(Fn&& fn) {
        if (words_) fn(words_->stream);
        if (spans_) fn(*spans_);
        for (auto& block : characters_)
            if (block) fn(block->stream);
    }

    template <class Fn>
    static void fill(TermStream& stream, size_t segment, unsigned worker, uint32_t document,
                     Fn&& for_each_term) {
        Segment& out = stream.segment(segment);
        auto& numbering = stream.numbering(worker);
        for_each_term([&](std::string_view term) { out.terms.push_back(numbering.number(term, document)); });
        if (out.terms.size() > UINT32_MAX) throw std::length_error("a document has more than 2^32 terms");
        out.ends.push_back(static_cast<uint32_t>(out.terms.size()));
    }

    // [n - 1]: no word block needs n-grams in fewer documents, neither as features nor as parts of longer
    // n-grams.
    std::vector<double> least_df(size_t n_documents) const {
        std::vector<double> least;
        for (const size_t b : blocks_) {
            const BlockSpec& block = spec_.blocks[b];
            if (block.analyzer != Analyzer::word) continue;
            if (least.size() < block.max_n) least.resize(block.max_n, static_cast<double>(n_documents));
            for (size_t n = 1; n <= block.max_n; ++n)
                least[n - 1] = std::min(least[n - 1], block.min_df.of(n_documents));
        }
        return least;
    }

    const TextSpec& spec_;
    std::vector<size_t> blocks_;
    std::optional<FieldWords> words_;
    std::optional<TermStream> spans_;
    std::vector<std::unique_ptr<CharacterCounts>> characters_;  // per block; null for other blocks
    std::vector<std::unique_ptr<BlockCounts>> counts_;          // per entry of `blocks_`
};

Fit::Fit(TextSpec spec) : spec_(std::move(spec)) {
    check(spec_);
    for (uint32_t field = 0; field < spec_.n_fields; ++field)
        fields_.push_back(std::make_unique<FieldCounts>(spec_, field));
}

Fit::~Fit() = default;

void Fit::add(const Documents& documents, Pool& pool) {
    if (documents.size() != spec_.n_fields) throw std::invalid_argument("one list of texts for each field");
    for (const auto& field : documents)
        if (field.size() != documents[0].size())
            throw std::invalid_argument("fields have the same number of texts");
    const auto ranges = split(documents, kBytesPerSegment);
    const size_t first_segment = segment_sizes_.size();
    for (const auto& range : ranges) segment_sizes_.push_back(static_cast<uint32_t>(range.end - range.begin));
    for (auto& field : fields_) field->add_segments(ranges.size(), pool.threads());
    pool.run(ranges.size(), [&](size_t i, unsigned worker) {
        const auto [begin, end] = ranges[i];
        for (size_t f = 0; f < fields_.size(); ++f)
            fields_[f]->read(first_segment + i, worker, std::span(documents[f]).subspan(begin, end - begin),
                             n_documents_ + begin, pool.control());
    });
    n_documents_ += text::n_documents(documents);
}

namespace {

void restrict_df(BlockTerms& terms, double min_df, double max_df) {
    for (auto& dfs : terms.df)
        for (auto& df : dfs)
            if (df < min_df || df > max_df) df = 0;
}

// Keeps the `n` features with the largest counts; ties go to the first.
void keep_most_frequent(BlockTerms& terms, const Columns& columns, const std::vector<uint64_t>& totals,
                        size_t n) {
    std::vector<uint32_t> order(columns.size);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return totals[a] != totals[b] ? totals[a] > totals[b] : a < b; });
    std::vector<uint8_t> kept(columns.size);
    for (size_t i = 0; i < n; ++i) kept[order[i]] = 1;
    for (size_t i = 0; i < terms.df.size(); ++i)
        for (size_t t = 0; t < terms.df[i].size(); ++t)
            if (terms.df[i][t] > 0 && !kept[columns.of[i][t]]) terms.df[i][t] = 0;
}

std::vector<uint64_t> total_counts(const BlockCounts& counts, const Columns& columns,
                                   const std::vector<uint32_t>& segment_sizes, Pool& pool) {
    std::vector<CountScratch> scratch(pool.threads());
    std::vector<std::vector<uint64_t>> totals(pool.threads());
    pool.run(segment_sizes.size(), [&](size_t segment, unsigned worker) {
        totals[worker].resize(columns.size);
        for (size_t d = 0; d < segment_sizes[segment]; ++d) {
            counts.count(segment, d, columns, scratch[worker]);
            for (const auto& [column, n] : scratch[worker].columns.items()) totals[worker][column] += n;
        }
    });
    std::vector<uint64_t> sum(columns.size);
    for (const auto& some : totals)
        for (size_t i = 0; i < some.size(); ++i) sum[i] += some[i];
    return sum;
}

}  // namespace

Fit::Result Fit::finish(bool rows, Pool& pool) {
    for (size_t b = 0; b < spec_.blocks.size(); ++b)
        if (spec_.blocks[b].max_df.of(n_documents_) < spec_.blocks[b].min_df.of(n_documents_))
            throw std::invalid_argument("max_df stands for fewer documents than min_df (block " +
                                        std::to_string(b) + ", " + std::to_string(n_documents_) +
                                        " documents)");
    Result result{.vocabulary = {.spec = spec_, .n_documents = n_documents_}, .rows = {}};
    Vocabulary& vocabulary = result.vocabulary;
    vocabulary.fields.resize(spec_.n_fields);
    vocabulary.blocks.resize(spec_.blocks.size());
    for (uint32_t f = 0; f < fields_.size(); ++f) {
        fields_[f]->merge(vocabulary, f, pool);
        for (size_t i = 0; i < fields_[f]->blocks().size(); ++i) {
            const size_t b = fields_[f]->blocks()[i];
            const BlockSpec& block = spec_.blocks[b];
            BlockTerms& terms = vocabulary.blocks[b];
            restrict_df(terms, block.min_df.of(n_documents_), block.max_df.of(n_documents_));
            if (block.max_features == 0) continue;
            const Columns columns = number_columns(block, vocabulary.fields[f], terms);
            if (columns.size <= block.max_features) continue;
            keep_most_frequent(terms, columns,
                               total_counts(fields_[f]->counts(i), columns, segment_sizes_, pool),
                               block.max_features);
        }
    }
    if (rows) result.rows = make_rows(block_weights(vocabulary), pool);
    fields_.clear();
    drop_unused(vocabulary);
    return result;
}

SparseRows Fit::make_rows(const std::vector<BlockWeights>& weights, Pool& pool) {
    std::vector<CountScratch> scratch(pool.threads());
    std::vector<SparseRows> parts(segment_sizes_.size());
    pool.run(parts.size(), [&](size_t segment, unsigned worker) {
        RowWriter writer;
        for (size_t d = 0; d < segment_sizes_[segment]; ++d) {
            for (const auto& field : fields_)
                for (size_t i = 0; i < field->blocks().size(); ++i) {
                    const BlockWeights& block = weights[field->blocks()[i]];
                    field->counts(i).count(segment, d, block.columns, scratch[worker]);
                    writer.add(block, scratch[worker].columns.items());
                }
            writer.end_row();
        }
        parts[segment] = std::move(writer.rows());
    });
    fields_.clear();
    return join(parts, pool);
}

}  // namespace bonsai::text

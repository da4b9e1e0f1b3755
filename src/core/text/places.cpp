// Finds the places where the features of a document occur in its texts. Shares the tokenizer with
// `transform`, not its buffers.
#include <algorithm>
#include <string_view>

#include "text/tokenizer.hpp"
#include "text/vectorizer.hpp"

namespace bonsai::text {

namespace {

constexpr uint32_t kDottedCapitalI = 0x130;  // the only character whose lower case has two code points

// A normalised text, and the source code point of each of its code points.
class Traced {
  public:
    Traced(std::string_view text, bool lowercase, bool collapse) {
        Normalized original;
        original.assign(text, false);
        std::vector<uint32_t> from;  // per normalised code point
        const char* p = original.view().data();
        const char* const end = p + original.view().size();
        for (uint32_t i = 0; p != end; ++i) {
            const uint32_t code = unicode::next(p);
            from.push_back(i);
            if (lowercase && code == kDottedCapitalI) from.push_back(i);
        }
        text_.assign(text, lowercase);
        if (collapse) {
            collapse_spaces(from);
            text_.collapse_spaces();
        }
        size_t at = 0;
        const char* q = view().data();
        while (q != view().data() + view().size()) {
            unicode::next(q);
            from_.resize(static_cast<size_t>(q - view().data()), from[at++]);
        }
    }
    std::string_view view() const { return text_.view(); }
    // The range of code points in the original text from which a piece of the view comes.
    Place place(uint32_t field, size_t column, const char* begin, const char* end) const {
        return {static_cast<uint32_t>(column), field, from_[static_cast<size_t>(begin - view().data())],
                from_[static_cast<size_t>(end - view().data()) - 1] + 1};
    }

  private:
    // Each run of two or more spaces becomes one, as in Normalized.
    void collapse_spaces(std::vector<uint32_t>& from) const {
        const char* p = view().data();
        const char* const end = p + view().size();
        size_t to = 0;
        bool space = false;
        for (size_t i = 0; p != end; ++i) {
            const bool before = space;
            space = unicode::is_space(unicode::next(p));
            if (!(space && before)) from[to++] = from[i];
        }
        from.resize(to);
    }

    Normalized text_;
    std::vector<uint32_t> from_;
};

}  // namespace

std::vector<Place> Vectorizer::places(const Documents& documents, size_t document) const {
    std::vector<Place> found;
    const TextSpec& spec = vocabulary_.spec;
    for (size_t b = 0; b < spec.blocks.size(); ++b) {
        const BlockSpec& block = spec.blocks[b];
        const bool collapse =
            std::any_of(spec.blocks.begin(), spec.blocks.end(), [&](const BlockSpec& other) {
                return other.field == block.field && other.analyzer == Analyzer::character;
            });
        const Traced text(documents[block.field][document], spec.lowercase, collapse);
        const auto& columns = weights_[b].columns.of;
        const auto add = [&](size_t order, uint32_t number, const char* begin, const char* end) {
            if (number == kNone || columns[order][number] == kNone || begin == end) return;
            found.push_back(
                text.place(block.field, weights_[b].first_column + columns[order][number], begin, end));
        };
        if (block.analyzer == Analyzer::word) {
            std::vector<std::string_view> words;
            for_each_word(text.view(), spec.min_word_length,
                          [&](std::string_view word) { words.push_back(word); });
            const StringTable& known = vocabulary_.fields[block.field].words;
            for (size_t i = 0; i < words.size(); ++i) {
                uint32_t number = known.find(words[i]);
                for (size_t n = 1; n <= block.max_n && number != kNone && i + n <= words.size(); ++n) {
                    if (n > 1) {
                        const uint32_t last = known.find(words[i + n - 1]);
                        if (last == kNone) break;
                        const uint64_t key = pair_key(number, last);
                        number = ngrams_[block.field][n - 2].find(key, PairTable::hash(key));
                    }
                    const std::string_view& last = words[i + n - 1];
                    if (n >= block.min_n)
                        add(n - block.min_n, number, words[i].data(), last.data() + last.size());
                }
            }
            continue;
        }
        const StringTable& grams = vocabulary_.blocks[b].grams;
        Offsets offsets;
        if (block.analyzer == Analyzer::character) {
            for_each_char_ngram(text.view(), offsets, block.min_n, block.max_n, [&](std::string_view gram) {
                add(0, grams.find(gram), gram.data(), gram.data() + gram.size());
            });
            continue;
        }
        PaddedSpan padded;
        for_each_span(text.view(), [&](std::string_view span) {
            const std::string_view with_spaces = padded(span);
            for_each_ngram_in_span(
                with_spaces, offsets, block.min_n, block.max_n, [&](std::string_view gram) {
                    // The spaces around the span may not be in the text, and belong to no feature.
                    const size_t from = static_cast<size_t>(gram.data() - with_spaces.data());
                    const size_t begin = from == 0 ? 0 : from - 1;
                    const size_t end = std::min(span.size(), from + gram.size() - 1);
                    if (begin < end) add(0, grams.find(gram), span.data() + begin, span.data() + end);
                });
        });
    }
    return found;
}

}  // namespace bonsai::text

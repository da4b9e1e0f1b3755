// Converts texts to sparse rows. Strings cross the boundary as UTF-8, a few documents at a time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/arrays.hpp"
#include "python/bindings.hpp"
#include "python/watched.hpp"
#include "text/fit.hpp"
#include "text/select.hpp"
#include "text/unicode.hpp"
#include "text/vectorizer.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace bonsai {

namespace {

using text::Vectorizer;
using text::Vocabulary;

// The input columns that each field of the core joins.
using Sources = std::vector<std::vector<size_t>>;

Sources sources_of(const nb::dict& spec) {
    return nb::cast<Sources>(spec["texts"]);
}

text::Frequency frequency(nb::handle value) {
    return {.value = nb::cast<double>(value), .is_share = nb::isinstance<nb::float_>(value)};
}

text::Analyzer analyzer(const std::string& name) {
    if (name == "word") return text::Analyzer::word;
    if (name == "char") return text::Analyzer::character;
    if (name == "char_wb") return text::Analyzer::character_in_span;
    throw std::invalid_argument("unknown analyzer: " + name);
}

text::TextSpec text_spec(const nb::dict& d) {
    text::TextSpec spec{.n_fields = static_cast<uint32_t>(sources_of(d).size()),
                        .lowercase = nb::cast<bool>(d["lowercase"]),
                        .min_word_length = nb::cast<uint32_t>(d["min_word_length"]),
                        .blocks = {}};
    for (const nb::handle item : nb::cast<nb::list>(d["blocks"])) {
        const auto block = nb::cast<nb::dict>(item);
        spec.blocks.push_back({.field = nb::cast<uint32_t>(block["field"]),
                               .analyzer = analyzer(nb::cast<std::string>(block["analyzer"])),
                               .min_n = nb::cast<uint32_t>(block["min_n"]),
                               .max_n = nb::cast<uint32_t>(block["max_n"]),
                               .min_df = frequency(block["min_df"]),
                               .max_df = frequency(block["max_df"]),
                               .max_features = nb::cast<uint64_t>(block["max_features"]),
                               .sublinear_tf = nb::cast<bool>(block["sublinear_tf"]),
                               .smooth_idf = nb::cast<bool>(block["smooth_idf"]),
                               .power = nb::cast<double>(block["power"]),
                               .weight = nb::cast<double>(block["weight"])});
    }
    text::check(spec);
    return spec;
}

// Some documents as UTF-8, from lists of str, one list per column. A lone surrogate has no UTF-8 and is
// passed as three bytes, which the core reads as U+FFFD. None is an empty text.
class Utf8 {
  public:
    // Takes documents from `begin` on until they have about this many bytes; `end()` is the next document.
    Utf8(const std::vector<nb::list>& columns, const Sources& sources, size_t begin, size_t n, size_t bytes)
        : texts_(sources.size()), row_(columns.size()), end_(begin) {
        for (size_t sum = 0; end_ < n && sum < bytes; ++end_) {
            for (size_t c = 0; c < columns.size(); ++c) sum += (row_[c] = encode(columns[c], c)).size();
            for (size_t f = 0; f < sources.size(); ++f) texts_[f].push_back(join(sources[f]));
        }
    }
    const text::Documents& documents() const { return texts_; }
    size_t end() const { return end_; }

  private:
    std::string_view encode(const nb::list& column, size_t c) {
        const nb::object item = column[end_];
        if (item.is_none()) return {};
        if (!PyUnicode_Check(item.ptr()))
            throw nb::type_error(("text " + std::to_string(end_) + " of column " + std::to_string(c) +
                                  " is neither a str nor None")
                                     .c_str());
        PyObject* bytes = PyUnicode_AsUTF8String(item.ptr());
        if (!bytes && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            PyErr_Clear();
            bytes = PyUnicode_AsEncodedString(item.ptr(), "utf-8", "surrogatepass");
        }
        if (!bytes) throw nb::python_error();
        encoded_.push_back(nb::steal<nb::bytes>(bytes));
        return {encoded_.back().c_str(), encoded_.back().size()};
    }

    // The columns of the current row that are not empty, with a space between.
    std::string_view join(const std::vector<size_t>& columns) {
        if (columns.size() == 1) return row_.at(columns[0]);
        std::string joined;
        for (const size_t c : columns) {
            if (!joined.empty() && !row_.at(c).empty()) joined += ' ';
            joined += row_.at(c);
        }
        joined_.push_back(std::move(joined));
        return joined_.back();
    }

    text::Documents texts_;
    std::vector<std::string_view> row_;
    std::deque<nb::bytes> encoded_;
    std::deque<std::string> joined_;  // a deque's elements stay where they are
    size_t end_;
};

// Calls fn(documents, pool) for a few documents at a time, without the GIL.
template <class Fn>
void for_each_part(const std::vector<nb::list>& columns, const Sources& sources, unsigned threads, Fn&& fn) {
    constexpr size_t kBytes = 32 << 20;
    size_t n_columns = 0;
    for (const auto& source : sources)
        for (const size_t c : source) n_columns = std::max(n_columns, c + 1);
    if (columns.size() != n_columns)
        throw std::invalid_argument("the number of columns differs from that at fit");
    const size_t n = columns.empty() ? 0 : columns[0].size();
    for (const auto& column : columns)
        if (column.size() != n) throw std::invalid_argument("all columns need the same number of texts");
    for (size_t begin = 0; begin < n;) {
        const Utf8 part(columns, sources, begin, n, kBytes);
        run_watched(threads, nb::none(), [&](Pool& pool) { fn(part.documents(), pool); });
        begin = part.end();
    }
}

nb::tuple to_tuple(text::SparseRows&& rows) {
    return nb::make_tuple(to_numpy(std::move(rows.ptr)), to_numpy(std::move(rows.index)),
                          to_numpy(std::move(rows.value)));
}

// A fitted vectorizer and the columns of its fields.
struct TextTransform {
    Sources sources;
    Vectorizer vectorizer;

    nb::tuple transform(const std::vector<nb::list>& columns, unsigned threads) const {
        std::vector<text::SparseRows> parts;
        for_each_part(columns, sources, threads, [&](const text::Documents& documents, Pool& pool) {
            parts.push_back(vectorizer.transform(documents, pool));
        });
        if (parts.size() == 1) return to_tuple(std::move(parts[0]));
        text::SparseRows rows;
        run_watched(threads, nb::none(), [&](Pool& pool) { rows = text::join(parts, pool); });
        return to_tuple(std::move(rows));
    }

    nb::tuple places(const std::vector<nb::list>& columns) const {
        if (columns.empty() || columns[0].size() != 1)
            throw std::invalid_argument("places are found in a single document only");
        std::vector<uint32_t> parts[4];
        for_each_part(columns, sources, 1, [&](const text::Documents& documents, Pool&) {
            for (const text::Place& place : vectorizer.places(documents, 0)) {
                parts[0].push_back(place.column);
                parts[1].push_back(place.field);
                parts[2].push_back(place.begin);
                parts[3].push_back(place.end);
            }
        });
        return nb::make_tuple(to_numpy(std::move(parts[0])), to_numpy(std::move(parts[1])),
                              to_numpy(std::move(parts[2])), to_numpy(std::move(parts[3])));
    }
};

nb::tuple select(const TextTransform& from, In<uint8_t> keep, nb::handle x, unsigned threads) {
    const RowsIn rows(x, "rows");
    rows.check();
    if (rows.view().n_features != from.vectorizer.n_features())
        throw std::invalid_argument("rows and vectorizer have different numbers of features");
    std::unique_ptr<TextTransform> selected;
    text::SparseRows of_selected;
    run_watched(threads, nb::none(), [&](Pool& pool) {
        selected.reset(
            new TextTransform{from.sources, Vectorizer(text::select(from.vectorizer, span(keep)))});
        of_selected = text::select(rows.view(), from.vectorizer, span(keep), pool);
    });
    return nb::make_tuple(nb::cast(std::move(selected)), to_tuple(std::move(of_selected)));
}

std::unique_ptr<TextTransform> transform_of_terms(const nb::dict& spec, size_t n_documents,
                                                  const std::vector<nb::bytes>& terms, In<uint32_t> df) {
    std::vector<std::string> texts;
    for (const nb::bytes& term : terms) texts.emplace_back(term.c_str(), term.size());
    return std::unique_ptr<TextTransform>(new TextTransform{
        sources_of(spec),
        Vectorizer(text::vocabulary_of_terms(text_spec(spec), n_documents, texts, span(df)))});
}

std::string field_key(size_t field, const std::string& what) {
    return "fields." + std::to_string(field) + "." + what;
}
std::string block_key(size_t block, const std::string& what) {
    return "blocks." + std::to_string(block) + "." + what;
}

void put_strings(nb::dict& out, const std::string& name, const text::StringTable& strings) {
    auto arrays = text::to_arrays(strings);
    out[name.c_str()] = to_numpy(std::move(arrays.bytes));
    out[(name + "_ptr").c_str()] = to_numpy(std::move(arrays.ptr));
}

nb::dict arrays_of(const Vocabulary& v) {
    nb::dict out;
    for (size_t f = 0; f < v.fields.size(); ++f) {
        put_strings(out, field_key(f, "words"), v.fields[f].words);
        size_t n_shorter = v.fields[f].words.size();
        for (size_t i = 0; i < v.fields[f].ngrams.size(); ++i) {
            auto arrays = text::to_arrays(v.fields[f].ngrams[i], n_shorter);
            const std::string name = field_key(f, "ngrams." + std::to_string(i + 2));
            out[(name + ".last").c_str()] = to_numpy(std::move(arrays.last));
            out[(name + ".ptr").c_str()] = to_numpy(std::move(arrays.ptr));
            n_shorter = v.fields[f].ngrams[i].size();
        }
    }
    for (size_t b = 0; b < v.blocks.size(); ++b) {
        if (v.spec.blocks[b].analyzer != text::Analyzer::word)
            put_strings(out, block_key(b, "grams"), v.blocks[b].grams);
        for (size_t i = 0; i < v.blocks[b].df.size(); ++i)
            out[block_key(b, "df." + std::to_string(i)).c_str()] = to_numpy(std::vector(v.blocks[b].df[i]));
    }
    return out;
}

template <class T>
std::span<const T> array(const nb::dict& arrays, const std::string& name) {
    if (!arrays.contains(name.c_str())) throw std::invalid_argument(name + " is missing");
    In<T> found;
    if (!nb::try_cast(arrays[name.c_str()], found, false))
        throw std::invalid_argument(name + " has an unexpected type");
    return span(found);
}

text::StringTable strings_of(const nb::dict& arrays, const std::string& name) {
    return text::read_strings(array<uint8_t>(arrays, name), array<int64_t>(arrays, name + "_ptr"));
}

Vocabulary vocabulary_of(const nb::dict& spec, size_t n_documents, const nb::dict& arrays) {
    Vocabulary v{.spec = text_spec(spec), .n_documents = n_documents};
    v.fields.resize(v.spec.n_fields);
    v.blocks.resize(v.spec.blocks.size());
    std::vector<uint32_t> max_n(v.spec.n_fields, 0);
    for (size_t b = 0; b < v.blocks.size(); ++b) {
        const auto& block = v.spec.blocks[b];
        const bool words = block.analyzer == text::Analyzer::word;
        if (words) max_n[block.field] = std::max(max_n[block.field], block.max_n);
        if (!words) v.blocks[b].grams = strings_of(arrays, block_key(b, "grams"));
        for (size_t i = 0; i < (words ? block.max_n - block.min_n + 1 : 1); ++i) {
            const auto df = array<uint32_t>(arrays, block_key(b, "df." + std::to_string(i)));
            v.blocks[b].df.emplace_back(df.begin(), df.end());
        }
    }
    for (size_t f = 0; f < v.fields.size(); ++f) {
        v.fields[f].words = strings_of(arrays, field_key(f, "words"));
        for (size_t n = 2; n <= max_n[f]; ++n) {
            const std::string name = field_key(f, "ngrams." + std::to_string(n));
            v.fields[f].ngrams.push_back(text::read_ngrams(array<int64_t>(arrays, name + ".ptr"),
                                                           array<uint32_t>(arrays, name + ".last")));
        }
    }
    return v;
}

nb::tuple names(const TextTransform& transform, size_t block) {
    if (block >= transform.vectorizer.vocabulary().blocks.size()) throw nb::index_error("no such block");
    auto names = text::feature_names(transform.vectorizer.vocabulary(), block);
    return nb::make_tuple(nb::bytes(names.bytes.data(), names.bytes.size()), to_numpy(std::move(names.ends)));
}

std::vector<size_t> block_sizes(const TextTransform& transform) {
    std::vector<size_t> sizes;
    for (size_t b = 0; b < transform.vectorizer.vocabulary().blocks.size(); ++b)
        sizes.push_back(transform.vectorizer.n_features(b));
    return sizes;
}

// Reading may fail or be interrupted in the middle of a document; the fit is then unusable.
class TextFit {
  public:
    explicit TextFit(const nb::dict& spec)
        : sources_(sources_of(spec)), fit_(std::make_unique<text::Fit>(text_spec(spec))) {}

    void add(const std::vector<nb::list>& columns, unsigned threads) {
        auto fit = take();
        for_each_part(columns, sources_, threads,
                      [&](const text::Documents& documents, Pool& pool) { fit->add(documents, pool); });
        fit_ = std::move(fit);
    }

    nb::tuple finish(bool rows, unsigned threads) {
        const auto fit = take();
        text::Fit::Result result;
        std::unique_ptr<TextTransform> transform;
        run_watched(threads, nb::none(), [&](Pool& pool) {
            result = fit->finish(rows, pool);
            transform.reset(new TextTransform{sources_, Vectorizer(std::move(result.vocabulary))});
        });
        return nb::make_tuple(nb::cast(std::move(transform)),
                              rows ? nb::object(to_tuple(std::move(result.rows))) : nb::none());
    }

  private:
    std::unique_ptr<text::Fit> take() {
        if (!fit_) throw std::invalid_argument("this fit is over: it was finished, or it failed");
        return std::move(fit_);
    }

    Sources sources_;
    std::unique_ptr<text::Fit> fit_;
};

}  // namespace

void bind_text(nb::module_& m) {
    m.def(
        "unicode_version", [] { return std::string(text::unicode::kUnicodeVersion); },
        "The version of Unicode whose tables are used to read texts.");
    nb::class_<TextFit>(m, "TextFit", "Reads documents, then becomes a TextTransform.")
        .def(nb::init<const nb::dict&>(), "spec"_a)
        .def("add", &TextFit::add, "columns"_a, "threads"_a,
             "Read documents: one list of str or None for each column.")
        .def("finish", &TextFit::finish, "rows"_a, "threads"_a,
             "(TextTransform, (indptr, indices, values) of the documents, or None)");
    nb::class_<TextTransform>(m, "TextTransform", "A fitted vectorizer. Immutable.")
        .def_static(
            "from_arrays",
            [](const nb::dict& spec, size_t n_documents, const nb::dict& arrays) {
                return std::unique_ptr<TextTransform>(new TextTransform{
                    sources_of(spec), Vectorizer(vocabulary_of(spec, n_documents, arrays))});
            },
            "spec"_a, "n_documents"_a, "arrays"_a)
        .def_static("from_terms", &transform_of_terms, "spec"_a, "n_documents"_a, "terms"_a,
                    "df"_a.noconvert(),
                    "One block with these terms, UTF-8 in the order of its features, and their document "
                    "frequencies (uint32).")
        .def(
            "select", &select, "keep"_a.noconvert(), "rows"_a, "threads"_a,
            "(TextTransform, (indptr, indices, values)) with the features alone whose byte of `keep` (uint8) "
            "is not 0; rows: sparse rows of this vectorizer.")
        .def(
            "arrays", [](const TextTransform& t) { return arrays_of(t.vectorizer.vocabulary()); },
            "All terms as stored in a file.")
        .def("transform", &TextTransform::transform, "columns"_a, "threads"_a, "(indptr, indices, values)")
        .def(
            "places", &TextTransform::places, "columns"_a,
            "(feature, text, begin, end) of each occurrence of a feature in one document: code points of the "
            "joined text.")
        .def("names", &names, "block"_a, "(bytes of the block's feature names, where each ends)")
        .def_prop_ro("block_sizes", &block_sizes)
        .def_prop_ro("n_features", [](const TextTransform& t) { return t.vectorizer.n_features(); })
        .def_prop_ro("n_documents",
                     [](const TextTransform& t) { return t.vectorizer.vocabulary().n_documents; });
}

}  // namespace bonsai

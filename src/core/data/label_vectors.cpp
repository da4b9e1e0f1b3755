#include "data/label_vectors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/memory.hpp"
#include "data/slice.hpp"

namespace bonsai {
namespace {

constexpr size_t kLabelsPerUnit = 64;
constexpr size_t kRowsBetweenPolls = 1024;
constexpr size_t kSlabEntries = size_t{1} << 18;  // 2 MB, a huge page

// Sums sparse vectors. Columns are marked as bits, and each word of 64 marks as one bit of a second level:
// visiting the marks in ascending order and clearing them takes as long as adding, plus a little for each
// 4,096 columns.
class Accumulator {
  public:
    void resize(size_t n) {
        sum_.resize(n, 0.0f);
        words_.resize(n / 64 + 1, 0);
        groups_.resize(words_.size() / 64 + 1, 0);
    }

    void add(uint32_t column, float value) {
        const uint32_t word = column / 64;
        words_[word] |= uint64_t{1} << column % 64;
        groups_[word / 64] |= uint64_t{1} << word % 64;
        sum_[column] += value;
    }

    // Calls fn(column, sum) in ascending order of columns, and clears. Entries that cancel to zero are kept,
    // as entries are counted before their values are known.
    template <class Fn>
    void drain(Fn&& fn) {
        for (size_t g = 0; g < groups_.size(); ++g) {
            for (uint64_t group = std::exchange(groups_[g], 0); group; group &= group - 1) {
                const size_t w = g * 64 + static_cast<size_t>(std::countr_zero(group));
                for (uint64_t word = std::exchange(words_[w], 0); word; word &= word - 1) {
                    const auto column =
                        static_cast<uint32_t>(w * 64 + static_cast<size_t>(std::countr_zero(word)));
                    fn(column, std::exchange(sum_[column], 0.0f));
                }
            }
        }
    }

  private:
    std::vector<float> sum_;
    std::vector<uint64_t> words_, groups_;
};

struct Scratch {
    Accumulator input, output;
};

void gather(const Dataset& data, size_t label, Representation representation, const Control& control,
            Scratch& scratch) {
    const auto rows = data.rows_of(label);
    for (size_t r = 0; r < rows.size(); ++r) {
        if (r % kRowsBetweenPolls == 0) control.check();
        const int32_t row = rows[r];
        const float weight = data.weight(row);
        if (representation != Representation::output) {
            const float factor = data.factors()[row] * weight;
            for_each_entry(data.x(), row, [&](uint32_t f, float v) { scratch.input.add(f, v * factor); });
        }
        if (representation != Representation::input)
            for (const int32_t other : data.labels_of(row))
                if (static_cast<size_t>(other) != label) scratch.output.add(other, weight);
    }
}

// The label vectors of a unit, one after the other.
struct Part {
    std::vector<uint32_t> size;  // per label
    std::vector<int32_t> index;
    std::vector<float> value;

    void clear() { size.clear(), index.clear(), value.clear(); }
};

// The vectors of some units. Slabs are freed while they are joined, so their memory must return to the system
// at once. That blocks all threads for a moment, hence slabs are large and few.
struct Slab {
    explicit Slab(size_t n)
        : room(n),
          memory(n * (sizeof(int32_t) + sizeof(float))),
          index(static_cast<int32_t*>(memory.data())),
          value(reinterpret_cast<float*>(index + n)) {}
    void add(size_t unit, const Part& part) {
        units.push_back(unit);
        std::ranges::copy(part.index, index + size);
        std::ranges::copy(part.value, value + size);
        size += part.index.size();
    }

    const size_t room;
    const MappedMemory memory;
    int32_t* const index;
    float* const value;
    size_t size = 0;
    std::vector<size_t> units;
};

// Throws std::invalid_argument unless these can be entries of vectors with a norm of at most 1.
void check_values(std::span<const float> values) {
    constexpr float kRounding = 1e-3f;
    if (!std::all_of(values.begin(), values.end(), [](float v) { return std::abs(v) <= 1 + kRounding; }))
        throw std::invalid_argument("label vectors of a unit: a value is not between -1 and 1");
}

// Keeps the `most` largest entries from `begin` on, the first of equals. Returns their squared norm.
double keep_largest(size_t begin, size_t most, Part& out) {
    const size_t n = out.value.size();
    out.value.resize(2 * n - begin);  // absolute values behind the entries, in memory that is used again
    const auto sizes = out.value.begin() + static_cast<int64_t>(n);
    std::transform(out.value.begin() + static_cast<int64_t>(begin), sizes, sizes,
                   [](float value) { return std::abs(value); });
    const auto nth = sizes + static_cast<int64_t>(most) - 1;
    std::nth_element(sizes, nth, out.value.end(), std::greater<>());
    const float least = *nth;
    size_t n_equal =
        most - static_cast<size_t>(std::count_if(sizes, nth, [&](float size) { return size > least; }));
    double norm2 = 0;
    size_t end = begin;
    for (size_t e = begin; e < n; ++e) {
        const float size = std::abs(out.value[e]);
        if (size < least || (size == least && n_equal == 0)) continue;
        if (size == least) --n_equal;
        norm2 += double{size} * size;
        out.index[end] = out.index[e];
        out.value[end++] = out.value[e];
    }
    out.index.resize(end);
    out.value.resize(end);
    return norm2;
}

// Appends the accumulated sums, columns shifted by `shift`, the `most` largest of them, with norm 1. Returns
// false if the sums have no direction: rows may be empty, or cancel out.
bool emit(Accumulator& sums, uint32_t shift, size_t most, Part& out) {
    const size_t begin = out.value.size();
    double norm2 = 0;
    sums.drain([&](uint32_t column, float value) {
        out.index.push_back(static_cast<int32_t>(column + shift));
        out.value.push_back(value);
        norm2 += double{value} * value;
    });
    if (out.value.size() - begin > most) norm2 = keep_largest(begin, most, out);
    const double norm = std::sqrt(norm2);
    if (norm <= kSmallestNorm) return false;
    for (size_t e = begin; e < out.value.size(); ++e) out.value[e] = static_cast<float>(out.value[e] / norm);
    return true;
}

class Blocks : public LabelVectorStage {
  protected:
    explicit Blocks(const Dataset& data) : data_(data) {
        std::vector<uint64_t> costs((data.n_labels() + kLabelsPerUnit - 1) / kLabelsPerUnit);
        for (size_t label = 0; label < data.n_labels(); ++label)
            costs[label / kLabelsPerUnit] += 1 + data.rows_of(label).size();
        set_costs(std::move(costs));
    }

    size_t first_label(size_t unit) const { return unit * kLabelsPerUnit; }
    size_t end_label(size_t unit) const { return std::min(data_.n_labels(), (unit + 1) * kLabelsPerUnit); }

    const Dataset& data_;
};

class SparseBlocks final : public Blocks {
  public:
    SparseBlocks(const Dataset& data, Representation representation, size_t most)
        : Blocks(data), representation_(representation), most_(most), sizes_(n_units()) {}

    Rows finish(Pool& pool) override {
        require_complete();
        for (auto& slab : filling_)
            if (slab) close(slab);
        Rows out{
            .n_rows = data_.n_labels(),
            .n_features = (has_input() ? data_.x().n_features : 0) + (has_output() ? data_.n_labels() : 0)};
        out.ptr.reserve(out.n_rows + 1);
        out.ptr.push_back(0);
        for (const std::vector<uint32_t>& of_unit : sizes_)
            for (const uint32_t size : of_unit) out.ptr.push_back(out.ptr.back() + size);
        // Unwritten pages cost nothing, and copied parts are freed: all vectors together can be larger than
        // X.
        out.index.resize(static_cast<size_t>(out.ptr.back()));
        out.value.resize(static_cast<size_t>(out.ptr.back()));
        pool.run(slabs_.size(), [&](size_t s, unsigned) {
            const std::unique_ptr<Slab> slab = std::move(slabs_[s]);
            size_t first = 0;
            for (const size_t unit : slab->units) {
                const int64_t at = out.ptr[first_label(unit)];
                const auto n = static_cast<size_t>(out.ptr[end_label(unit)] - at);
                std::copy_n(slab->index + first, n, out.index.begin() + at);
                std::copy_n(slab->value + first, n, out.value.begin() + at);
                first += n;
            }
        });
        number_by_frequency(out, pool);
        return out;
    }

  protected:
    void prepare(std::span<const uint32_t>, Pool& pool) override {
        scratch_.resize(pool.threads());
        open_.resize(pool.threads());
        filling_.resize(std::max<size_t>(filling_.size(), pool.threads()));
        for (auto& s : scratch_) {
            if (has_input()) s.input.resize(data_.x().n_features);
            if (has_output()) s.output.resize(data_.n_labels());
        }
    }
    void release() override {
        scratch_.clear();
        open_.clear();
    }

    Bytes solve_unit(size_t unit, Pool& pool, unsigned worker, Wanted wanted) override {
        Part& part = open_[worker];
        part.clear();
        for (size_t label = first_label(unit); label < end_label(unit); ++label)
            add_vector(label, pool.control(), scratch_[worker], part);
        pool.control().done += costs()[unit];
        ByteWriter out;
        if (wanted.as_bytes) {
            out.array(std::span<const uint32_t>(part.size));
            out.array(std::span<const int32_t>(part.index));
            out.array(std::span<const float>(part.value));
        }
        if (wanted.keep) keep(unit, part, filling_[worker]);
        return out.take();
    }

    void add_unit(size_t unit, std::span<const uint8_t> result) override {
        ByteReader in(result);
        Part part;
        in.array(part.size);
        in.array(part.index);
        in.array(part.value);
        in.end();
        check(unit, part);
        auto own = std::make_unique<Slab>(part.index.size());
        keep(unit, part, own);
        close(own);
    }

  private:
    void keep(size_t unit, const Part& part, std::unique_ptr<Slab>& slab) {
        constexpr size_t room = kSlabEntries;
        if (slab && slab->room - slab->size < part.index.size()) close(slab);
        if (!slab) slab = std::make_unique<Slab>(std::max(room, part.index.size()));
        slab->add(unit, part);
        sizes_[unit] = part.size;
    }
    void close(std::unique_ptr<Slab>& slab) {
        const std::lock_guard lock(mutex_);
        slabs_.push_back(std::move(slab));
    }

    bool has_input() const { return representation_ != Representation::output; }
    bool has_output() const { return representation_ != Representation::input; }

    void add_vector(size_t label, const Control& control, Scratch& scratch, Part& part) const {
        gather(data_, label, representation_, control, scratch);
        const size_t begin = part.value.size();
        const bool first = has_input() && emit(scratch.input, 0, most_, part);
        const bool second =
            has_output() &&
            emit(scratch.output, static_cast<uint32_t>(has_input() ? data_.x().n_features : 0), most_, part);
        part.size.push_back(static_cast<uint32_t>(part.value.size() - begin));
        if (!first || !second) return;
        for (size_t e = begin; e < part.value.size(); ++e) part.value[e] *= std::sqrt(0.5f);
    }

    void check(size_t unit, const Part& part) const {
        const size_t columns =
            (has_input() ? data_.x().n_features : 0) + (has_output() ? data_.n_labels() : 0);
        std::vector<int64_t> ptr = {0};
        for (const uint32_t size : part.size) ptr.push_back(ptr.back() + size);
        check_csr(ptr, part.index, end_label(unit) - first_label(unit), columns, "label vectors of a unit");
        if (part.value.size() != part.index.size())
            throw std::invalid_argument("label vectors of a unit: one value for each index");
        check_values(part.value);
    }

    const Representation representation_;
    const size_t most_;                           // entries of a vector that are kept
    std::vector<std::vector<uint32_t>> sizes_;    // sizes of the vectors, per unit
    std::mutex mutex_;                            // guards the slabs
    std::vector<std::unique_ptr<Slab>> slabs_;    // in no order
    std::vector<std::unique_ptr<Slab>> filling_;  // per worker, until the end
    std::vector<Scratch> scratch_;                // per worker
    std::vector<Part> open_;                      // reused memory
};

// Sums of dense rows, written in place.
class DenseBlocks final : public Blocks {
  public:
    explicit DenseBlocks(const Dataset& data)
        : Blocks(data), out_{.n_rows = data.n_labels(), .n_features = data.x().n_features} {
        out_.dense.assign(out_.n_rows * out_.n_features, 0.0f);
    }

    Rows finish(Pool&) override {
        require_complete();
        return std::move(out_);
    }

  protected:
    Bytes solve_unit(size_t unit, Pool& pool, unsigned, Wanted wanted) override {
        const size_t n = out_.n_features;
        Rows block{.n_rows = end_label(unit) - first_label(unit), .n_features = n};
        block.dense.assign(block.n_rows * n, 0.0f);
        for (size_t l = 0; l < block.n_rows; ++l) {
            float* v = block.dense.data() + l * n;
            const auto rows = data_.rows_of(first_label(unit) + l);
            for (size_t r = 0; r < rows.size(); ++r) {
                if (r % kRowsBetweenPolls == 0) pool.control().check();
                const float* x = data_.x().dense_row(rows[r]);
                const float factor = data_.factors()[rows[r]] * data_.weight(rows[r]);
                for (size_t f = 0; f < n; ++f) v[f] += x[f] * factor;
            }
        }
        make_unit_rows(block);
        pool.control().done += costs()[unit];
        ByteWriter out;
        if (wanted.as_bytes) out.array(std::span<const float>(block.dense));
        if (wanted.keep) keep(unit, block.dense);
        return out.take();
    }

    void add_unit(size_t unit, std::span<const uint8_t> result) override {
        ByteReader in(result);
        const auto dense = in.array<float>();
        in.end();
        if (dense.size() != (end_label(unit) - first_label(unit)) * out_.n_features)
            throw std::invalid_argument(
                "label vectors of a unit: the number of values is not labels × features");
        check_values(dense);
        keep(unit, dense);
    }

  private:
    void keep(size_t unit, std::span<const float> dense) {
        std::copy(dense.begin(), dense.end(), out_.dense.begin() + first_label(unit) * out_.n_features);
    }

    Rows out_;
};

}  // namespace

std::unique_ptr<LabelVectorStage> label_vector_stage(const Dataset& data, Representation representation,
                                                     size_t most) {
    if (data.x().dense && representation == Representation::input) return std::make_unique<DenseBlocks>(data);
    return std::make_unique<SparseBlocks>(data, representation, most);
}

double n_products(const Dataset& data) {
    double n = 0;
    for (size_t i = 0; i < data.n_rows() && !data.x().is_dense(); ++i)
        n += static_cast<double>(data.x().row_size(i)) * static_cast<double>(data.labels_of(i).size());
    return n;
}

void make_unit_rows(Rows& rows) {
    const RowsView view = rows.view();
    for (size_t i = 0; i < rows.n_rows; ++i) {
        const double norm = row_norm(view, i);
        if (norm <= kSmallestNorm) continue;
        const bool dense = rows.ptr.empty();
        float* v = dense ? rows.dense.data() + i * rows.n_features : rows.value.data() + rows.ptr[i];
        for (size_t e = 0; e < view.row_size(i); ++e) v[e] = static_cast<float>(v[e] / norm);
    }
}

namespace {

bool cuts(const ProblemSizes& problem) {
    return most_entries(problem.n_products) == kKeptEntries;
}

}  // namespace

VectorSizes::VectorSizes(const ProblemSizes& problem, std::optional<Representation> representation)
    : problem_(problem),
      with_input_(representation && *representation != Representation::output),
      with_output_(representation && *representation != Representation::input),
      of_input_(!with_input_    ? 0
                : cuts(problem) ? problem.kept_input
                                : problem.input_entries),
      of_output_(!with_output_   ? 0
                 : cuts(problem) ? problem.kept_output
                                 : problem.output_entries),
      n_entries_(of_input_ + of_output_),
      n_columns_((with_input_ ? problem.n_features : 0) + (with_output_ ? problem.n_labels : 0)) {}

double VectorSizes::bytes() const {
    if (dense()) return 4 * problem_.n_labels * problem_.n_features;
    return kEntryBytes * n_entries_ + 8 * problem_.n_labels;
}

// Each thread sums up one vector, or those of a unit if they are dense. Parts are freed while they are
// joined; then features are numbered.
double VectorSizes::making_bytes(double threads) const {
    if (dense()) return bytes() + threads * 4.0 * kLabelsPerUnit * n_columns_;
    const double summing = threads * (kEntryBytes * kSlabEntries + 4.2 * n_columns_);
    return bytes() + std::max(summing, numbering_bytes(part(1), threads));
}

RowsSize VectorSizes::part(double share) const {
    return {share * problem_.n_present, share * n_entries_, n_columns_, dense()};
}

double VectorSizes::used_columns(double share) const {
    if (dense()) return problem_.n_features;
    const double of_input = problem_.distinct_features(share * of_input_);
    const double of_output = std::min(problem_.n_labels, share * of_output_);
    return std::max(1.0, of_input + of_output);
}

}  // namespace bonsai

#include "data/label_vectors.hpp"

#include <algorithm>
#include <cmath>

namespace bonsai {
namespace {

constexpr size_t kLabelsPerTask = 64;
constexpr size_t kRowsBetweenPolls = 1024;

// Sums sparse vectors. Touched columns are remembered, so that clearing costs what adding cost.
class Accumulator {
  public:
    void resize(size_t n) { sum_.resize(n, 0.0f), seen_.resize(n, 0); }

    void add(uint32_t column, float value) {
        if (!seen_[column]) {
            seen_[column] = 1;
            touched_.push_back(column);
        }
        sum_[column] += value;
    }

    size_t size() const { return touched_.size(); }

    // Calls fn(column, sum) in ascending order of columns, and clears. Entries that cancelled to zero are
    // kept: entries are counted before their values are known.
    template <class Fn>
    void drain(Fn&& fn) {
        std::sort(touched_.begin(), touched_.end());
        for (const uint32_t column : touched_) {
            fn(column, sum_[column]);
            sum_[column] = 0.0f;
            seen_[column] = 0;
        }
        touched_.clear();
    }

  private:
    std::vector<float> sum_;
    std::vector<uint8_t> seen_;
    std::vector<uint32_t> touched_;
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

// Writes the accumulated part from entry `at` on, columns shifted by `shift`, with norm 1. Returns whether it
// has a direction at all: rows may be empty, or cancel out.
bool emit(Accumulator& part, uint32_t shift, Rows& out, size_t at) {
    const size_t begin = at;
    double norm2 = 0;
    part.drain([&](uint32_t column, float value) {
        out.index[at] = static_cast<int32_t>(column + shift);
        out.value[at++] = value;
        norm2 += double{value} * value;
    });
    const double norm = std::sqrt(norm2);
    if (norm <= kSmallestNorm) return false;
    for (size_t e = begin; e < at; ++e) out.value[e] = static_cast<float>(out.value[e] / norm);
    return true;
}

template <class Fn>
void for_each_label(const Dataset& data, Pool& pool, Fn&& fn) {
    const size_t n = data.n_labels();
    pool.run((n + kLabelsPerTask - 1) / kLabelsPerTask, [&](size_t task, unsigned worker) {
        const size_t end = std::min(n, (task + 1) * kLabelsPerTask);
        for (size_t label = task * kLabelsPerTask; label < end; ++label) fn(label, worker);
        pool.control().done += end - task * kLabelsPerTask;
    });
}

Rows dense_label_vectors(const Dataset& data, Pool& pool) {
    Rows out{.n_rows = data.n_labels(), .n_features = data.n_features()};
    out.dense.assign(out.n_rows * out.n_features, 0.0f);
    for_each_label(data, pool, [&](size_t label, unsigned) {
        float* v = out.dense.data() + label * out.n_features;
        const auto rows = data.rows_of(label);
        for (size_t r = 0; r < rows.size(); ++r) {
            if (r % kRowsBetweenPolls == 0) pool.control().check();
            const int32_t row = rows[r];
            const float* x = data.x().dense_row(row);
            const float factor = data.factors()[row] * data.weight(row);
            for (size_t f = 0; f < out.n_features; ++f) v[f] += x[f] * factor;
        }
    });
    make_unit_rows(out);
    return out;
}

}  // namespace

Rows label_vectors(const Dataset& data, Representation representation, Pool& pool) {
    if (data.x().dense && representation == Representation::input) return dense_label_vectors(data, pool);
    const bool input = representation != Representation::output,
               output = representation != Representation::input;
    std::vector<Scratch> scratch(pool.threads());
    for (auto& s : scratch) {
        if (input) s.input.resize(data.n_features());
        if (output) s.output.resize(data.n_labels());
    }
    Rows out{.n_rows = data.n_labels(),
             .n_features = (input ? data.n_features() : 0) + (output ? data.n_labels() : 0)};
    out.ptr.assign(out.n_rows + 1, 0);
    pool.control().done = 0;
    pool.control().total = 2 * data.n_labels();
    // Counted first, so that the vectors are written once, in place: they can be larger than X.
    for_each_label(data, pool, [&](size_t label, unsigned worker) {
        Scratch& s = scratch[worker];
        gather(data, label, representation, pool.control(), s);
        out.ptr[label + 1] = static_cast<int64_t>(s.input.size() + s.output.size());
        s.input.drain([](uint32_t, float) {});
        s.output.drain([](uint32_t, float) {});
    });
    for (size_t l = 0; l < out.n_rows; ++l) out.ptr[l + 1] += out.ptr[l];
    out.index.resize(static_cast<size_t>(out.ptr.back()));
    out.value.resize(static_cast<size_t>(out.ptr.back()));
    for_each_label(data, pool, [&](size_t label, unsigned worker) {
        Scratch& s = scratch[worker];
        gather(data, label, representation, pool.control(), s);
        const auto begin = static_cast<size_t>(out.ptr[label]), middle = begin + s.input.size();
        const bool first = input && emit(s.input, 0, out, begin);
        const bool second =
            output && emit(s.output, static_cast<uint32_t>(input ? data.n_features() : 0), out, middle);
        if (!first || !second) return;
        for (auto e = begin; e < static_cast<size_t>(out.ptr[label + 1]); ++e)
            out.value[e] *= std::sqrt(0.5f);
    });
    return out;
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

}  // namespace bonsai

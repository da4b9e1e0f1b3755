#include "one_vs_rest/train_one_vs_rest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/memory.hpp"
#include "base/random.hpp"
#include "data/slice.hpp"
#include "linear/solve.hpp"
#include "model/pack.hpp"
#include "tree/train_trees.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsAtOnce = 256;
constexpr size_t kSample = 1024;     // rows that every classifier meets first, one by one ...
constexpr size_t kFirstSample = 32;  // ... so many in the beginning, then as many again, and so on
constexpr size_t kManyRows = 8192;   // that it meets next, with the others of its group
constexpr double kLenience = 3;      // times tol, what may be wrong with one of these
constexpr int kTogether = 3;         // rounds that a group goes through at once: nearly all labels need them
constexpr int kEarlyPasses = 1;      // in these, but for the last of them
constexpr int kMaxRounds = 20;       // more than 8 have not been seen
constexpr double kSlack = 0.5;       // times tol, what may be wrong with a row that bears nothing
constexpr double kStill = 0.2;  // times tol, a gradient that is left alone: half of all moves are as small
constexpr size_t kPlacedAtOnce = 1024;  // features whose part of a panel stays in L2

// What bears a classifier: its weights are the sum over these rows of y alpha x.
struct Support {
    std::vector<uint32_t> row;  // the label's own rows first, then others
    std::vector<float> alpha;
    size_t n_own = 0;
    size_t n_known = 0;  // the rows after these have joined since the last descent
    int32_t n_iter = 0;
    bool converged = false;

    float sign(size_t m) const { return m < n_own ? 1.0f : -1.0f; }
};

struct Entry {
    uint32_t feature;
    float value;
};

typedef int32_t Ints __attribute__((vector_size(16)));
typedef float FloatsX4 __attribute__((vector_size(16)));

// The rows twice: as words of a value and a feature for one classifier at a time, which waits for memory, and
// in few bits for many at once, whose weights are bytes.
class TwoForms {
  public:
    TwoForms(const RowsView& rows, Pool& pool)
        : view_(rows),
          feature_bits_(std::bit_width(rows.n_features)),
          word_(feature_bits_ <= kMostFeatureBits ? static_cast<size_t>(rows.ptr[rows.n_rows]) : 0),
          fixed_(static_cast<size_t>(rows.ptr[rows.n_rows])),
          inverse_(rows.n_rows, 0.0f),
          leeway_(rows.n_rows, 0),
          unit_(rows.n_rows, 0.0f),
          norm2_(rows.n_rows) {
        constexpr size_t at_once = 1024;
        std::vector<double> longest((rows.n_rows + at_once - 1) / at_once, 1.0);
        pool.run(longest.size(), [&](size_t task, unsigned) {
            const size_t end = std::min(rows.n_rows, (task + 1) * at_once);
            for (size_t i = task * at_once; i < end; ++i) longest[task] = std::max(longest[task], read(i));
        });
        for (const double of_some : longest) longest_ = std::max(longest_, of_some);
        for (size_t i = 0; i < rows.n_rows; ++i) most_entries_ = std::max(most_entries_, rows.row_size(i));
    }

    // Row i . w
    float dot(size_t i, const float* w) const {
        FloatsX4 sums = {};
        int64_t e = view_.ptr[i];
        const int64_t end = view_.ptr[i + 1];
        if (word_.empty()) {  // so many features that a word has no room for them
            for (; e < end; ++e) sums[e & 3] += view_.value[e] * w[view_.index[e]];
            return (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
        for (; e + 4 <= end; e += 4)
            sums +=
                values(e) * FloatsX4{w[feature(e)], w[feature(e + 1)], w[feature(e + 2)], w[feature(e + 3)]};
        float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (; e < end; ++e) sum += static_cast<float>(word_[e] >> feature_bits_) * w[feature(e)];
        return sum * unit_[i];
    }

    // w += step x row i. The features of a row differ, which the compiler does not know: four at once.
    void add(size_t i, float step, float* w) const {
        int64_t e = view_.ptr[i];
        const int64_t end = view_.ptr[i + 1];
        if (word_.empty()) {
            for (; e < end; ++e) w[view_.index[e]] += step * view_.value[e];
            return;
        }
        step *= unit_[i];
        for (; e + 4 <= end; e += 4) {
            const uint32_t f[] = {feature(e), feature(e + 1), feature(e + 2), feature(e + 3)};
            const FloatsX4 sum = FloatsX4{w[f[0]], w[f[1]], w[f[2]], w[f[3]]} + step * values(e);
            for (int k = 0; k < 4; ++k) w[f[k]] = sum[k];
        }
        for (; e < end; ++e) w[feature(e)] += step * static_cast<float>(word_[e] >> feature_bits_);
    }

    size_t row_size(size_t i) const { return view_.row_size(i); }
    std::span<const int32_t> features(size_t i) const { return {view_.index + view_.ptr[i], row_size(i)}; }
    float norm2(size_t i) const { return norm2_[i]; }
    void expect(size_t i) const {
        constexpr int64_t line = 64 / sizeof(int32_t);
        if (!word_.empty())
            for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; e += line) __builtin_prefetch(&word_[e]);
    }

    // What weights of this norm and largest size can be multiplied by, so that they become bytes, and no sum
    // over a part of a row leaves 16 bits, with room for the rounding of each weight and product.
    float scale(double norm, double largest) const {
        if (norm == 0) return 0.0f;
        const double room = std::max(kMostSum - static_cast<double>(most_entries_) * kUnits, kMostSum / 2);
        return static_cast<float>(std::min(126 / largest, room / (kUnits * norm * longest_)));
    }
    // `sure`: all rows above a threshold are among those found, with others that rounding puts there.
    QuantisedScan pass(const uint32_t* place, const int16_t* panel, const float* threshold, bool sure) const {
        return {.ptr = view_.ptr,
                .index = view_.index,
                .value = fixed_.data(),
                .panel_row = place,
                .panel = panel,
                .threshold = threshold,
                .factor = inverse_.data(),
                .tolerance = sure ? leeway_.data() : nullptr};
    }
    static constexpr double kUnits = 4;  // that a weight of 1 adds to the sum for a row's largest value

  private:
    static constexpr double kOne = kUnits * 128;  // a row's largest value
    static constexpr double kMostSum = 32767;
    static constexpr double kDeviations = 6, kMostLeeway = 16384;
    static constexpr int kMostFeatureBits = 20;  // 12 remain for the value

    // Returns the row's norm, divided by its largest value.
    double read(size_t i) {
        const double norm = row_norm(view_, i), most = std::ldexp(1.0, 31 - feature_bits_) - 1;
        norm2_[i] = static_cast<float>(norm * norm);
        float largest = 0;
        for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; ++e)
            largest = std::max(largest, std::abs(view_.value[e]));
        if (largest == 0) return 0;
        inverse_[i] = 1 / largest;
        unit_[i] = static_cast<float>(largest / most);
        // Variances of the sum: of weights rounded to bytes, and of products rounded to whole numbers. Up to
        // a dozen entries cannot be off by more than the leeway, rows of more in all likelihood are not.
        const double of_weights = std::pow(kUnits * norm / largest, 2) / 12;
        const double of_products = static_cast<double>(view_.row_size(i)) / 12;
        leeway_[i] = static_cast<int16_t>(
            std::ceil(std::min(kDeviations * std::sqrt(of_weights + of_products), kMostLeeway)));
        for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; ++e) {
            const double of_largest = double{view_.value[e]} / largest;
            fixed_[e] = static_cast<int16_t>(std::lrint(of_largest * kOne));
            if (!word_.empty())
                word_[e] = static_cast<int32_t>(std::lrint(of_largest * most)) * (1 << feature_bits_) +
                           view_.index[e];
        }
        return norm / largest;
    }

    uint32_t feature(int64_t e) const {
        return static_cast<uint32_t>(word_[e]) & ((uint32_t{1} << feature_bits_) - 1);
    }
    FloatsX4 values(int64_t e) const {
        Ints words;
        std::memcpy(&words, &word_[e], sizeof words);
        return __builtin_convertvector(words >> feature_bits_, FloatsX4);
    }

    RowsView view_;
    int feature_bits_;
    std::vector<int32_t, PanelAllocator<int32_t>> word_;  // value in units x 2^feature_bits + feature
    std::vector<int16_t> fixed_;                          // times the row's largest value / kOne
    std::vector<float> inverse_;                          // 1 / the row's largest value; 0 for an empty row
    std::vector<int16_t> leeway_;                         // how far a sum may be off
    std::vector<float> unit_;                             // what values in words are multiplied by
    std::vector<float> norm2_;
    double longest_ = 1;  // norm of a row / its largest value
    size_t most_entries_ = 0;
};

// Buffers of one worker.
struct Scratch {
    Panel w;                                              // one classifier; 0 between uses
    std::vector<uint32_t> order;                          // of its rows
    std::vector<uint32_t> feature;                        // of weights on their way out of w
    std::vector<float> value;                             // the weights themselves
    std::vector<Entry> weights[kMaxLanes];                // of each classifier of the group, features rising
    std::vector<uint32_t> place;                          // feature -> row of the panel; 0 between uses
    std::vector<uint32_t> placed;                         // features that have one
    std::vector<int16_t, PanelAllocator<int16_t>> panel;  // row 0 stays 0
    std::vector<uint64_t> bears;  // for each row, bit l: it bears lane l; 0 between uses
    std::vector<uint64_t> above;
};

// Coordinate descent over a classifier's support alone, and then a look at all rows for those that the
// classifier gets wrong: they join the support. With a bias of -1 most rows never do.
class RankerTrainer {
  public:
    RankerTrainer(const Dataset& data, const RowsView& rows, std::span<const uint32_t> labels,
                  std::span<const float> costs, double learn_above, uint64_t seed, const LinearParams& params,
                  const Kernels& kernels, Pool& pool)
        : data_(data),
          rows_(rows, pool),
          labels_(labels),
          costs_(costs),
          key_(derive(seed, kForSolver)),
          params_(params),
          kernels_(kernels),
          pool_(pool),
          all_(rows.n_rows),
          sample_(Rng(key_).sample(rows.n_rows, std::min(rows.n_rows, kManyRows))),
          support_(labels.size()),
          scratch_(pool.threads()) {
        for (size_t i = 0; i < all_.size(); ++i) all_[i] = static_cast<uint32_t>(i);
        for (uint32_t l = 0; l < labels.size(); ++l)
            (static_cast<double>(data.rows_of(labels[l]).size()) >
                     learn_above * static_cast<double>(rows.n_rows)
                 ? frequent_
                 : rare_)
                .push_back(l);
        for (Scratch& s : scratch_) {
            s.w.assign(padded_lanes(rows.n_features), 0.0f);
            s.feature.resize(s.w.size() + kLaneStep);
            s.value.resize(s.w.size() + kLaneStep);
            s.place.assign(rows.n_features, 0);
            s.bears.assign(rows.n_rows, 0);
            s.above.resize(kRowsAtOnce);
        }
    }

    // Frequent labels by the panel solver, all others on their supports. Panels are few and take long: they
    // go first, so that the groups of others keep the other threads busy.
    void solve(const Slice& slice) {
        pool_.control().total = labels_.size();
        pool_.control().done = 0;
        const Problem problem = frequent_problem(slice);
        std::vector<Solution> panels((frequent_.size() + kMaxLanes - 1) / kMaxLanes);
        std::vector<uint32_t> open = rare_;
        size_t waiting = panels.size();
        for (int round = kTogether - 1; round < kMaxRounds && waiting + open.size() > 0; ++round) {
            std::vector<uint64_t> again((open.size() + kMaxLanes - 1) / kMaxLanes);
            pool_.run(waiting + again.size(), [&](size_t task, unsigned worker) {
                if (task < waiting)
                    panels[task] = solve_frequent(problem, task * kMaxLanes);
                else
                    again[task - waiting] =
                        solve_group(open, (task - waiting) * kMaxLanes, round, scratch_[worker]);
            });
            waiting = 0;
            size_t left = 0;
            for (size_t o = 0; o < open.size(); ++o)
                if (again[o / kMaxLanes] >> (o % kMaxLanes) & 1) open[left++] = open[o];
            open.resize(left);
        }
        for (const uint32_t l : open) support_[l].converged = false;
        keep(panels);
    }

    std::vector<PackedNode> pack_blocks(std::span<const uint32_t> features) {
        std::vector<PackedNode> blocks((labels_.size() + kBlockChildren - 1) / kBlockChildren);
        pool_.run(blocks.size(), [&](size_t b, unsigned worker) {
            const size_t first = b * kBlockChildren, n = std::min(kBlockChildren, labels_.size() - first);
            std::vector<Solution> panels((n + kMaxLanes - 1) / kMaxLanes);
            for (size_t c = 0; c < n; ++c) report(first + c, c, panels[c / kMaxLanes], scratch_[worker]);
            blocks[b] = pack(panels, features, n);
        });
        return blocks;
    }

  private:
    // All rows, for labels that so many rows have that nearly every row matters to them. Those of similar
    // frequency share a panel, and its mean cost.
    Problem frequent_problem(const Slice& slice) {
        if (frequent_.empty()) return {};
        std::stable_sort(frequent_.begin(), frequent_.end(), [&](uint32_t a, uint32_t b) {
            return data_.rows_of(labels_[a]).size() > data_.rows_of(labels_[b]).size();
        });
        std::vector<uint32_t> class_of_label(data_.n_labels(), kNoClass);
        for (uint32_t c = 0; c < frequent_.size(); ++c) class_of_label[labels_[frequent_[c]]] = c;
        return build_problem(data_, all_, slice, class_of_label, frequent_.size(), key_);
    }

    Solution solve_frequent(const Problem& problem, size_t first) const {
        const size_t n = std::min(kMaxLanes, frequent_.size() - first);
        LinearParams params = params_;
        params.learn_bias = true;
        if (!costs_.empty()) {
            double sum = 0;
            for (size_t c = first; c < first + n; ++c) sum += costs_[frequent_[c]];
            params.c *= sum / static_cast<double>(n);
        }
        Solution panel = solve_panel(problem, first, n, params, kernels_, pool_.control());
        pool_.control().done += n;
        return panel;
    }

    // What the panels of frequent labels have come to.
    void keep(std::span<const Solution> panels) {
        if (panels.empty()) return;
        learnt_.resize(labels_.size());
        for (size_t c = 0; c < frequent_.size(); ++c) {
            const Solution& panel = panels[c / kMaxLanes];
            const size_t lane = c % kMaxLanes;
            learnt_[frequent_[c]] = {.weights = {},
                                     .bias = panel.bias[lane],
                                     .n_iter = panel.n_iter[lane],
                                     .converged = panel.converged[lane] != 0};
        }
        for (const Solution& panel : panels)
            for (const Weight& w : panel.weights)
                learnt_[frequent_[w.cls]].weights.push_back({w.feature, w.value});
    }

    // Up to 64 labels of `open`, from `first` on; returns those that are not done.
    uint64_t solve_group(std::span<const uint32_t> open, size_t first, int round, Scratch& s) {
        const auto group = open.subspan(first, std::min(kMaxLanes, open.size() - first));
        uint64_t found = ~uint64_t{0} >> (kMaxLanes - group.size());
        if (round < kTogether) {
            meet(group, found, few_rows(group, s), 0, s);
            for (int early = 1; early < round; ++early) found = meet(group, found, all_, early, s);
        }
        found = meet(group, found, all_, round, s);
        pool_.control().done += group.size() - static_cast<size_t>(std::popcount(found));
        return found;
    }

    // A sample, and the rows of the whole group.
    std::vector<uint32_t> few_rows(std::span<const uint32_t> group, Scratch& s) const {
        std::vector<uint32_t> few = sample_;
        for (const uint32_t row : few) s.bears[row] = 1;
        for (const uint32_t l : group)
            for (const int32_t row : data_.rows_of(labels_[l])) {
                if (!s.bears[row]) few.push_back(static_cast<uint32_t>(row));
                s.bears[row] = 1;
            }
        for (const uint32_t row : few) s.bears[row] = 0;
        std::sort(few.begin(), few.end());
        return few;
    }

    // Solves the classifiers `open` of up to 64 on their supports, then lets the rows of `scope` join that
    // are wrong by more than the tolerance. Returns the classifiers that are not done.
    uint64_t meet(std::span<const uint32_t> group, uint64_t open, std::span<const uint32_t> scope, int round,
                  Scratch& s) {
        pool_.control().check();
        const bool early = round < kTogether - 1;
        float scale[kMaxLanes] = {}, threshold[kMaxLanes];
        std::fill_n(threshold, kMaxLanes, std::numeric_limits<float>::max());
        const double bar = -1 - double{params_.fixed_bias} + params_.tol * (round == 0 ? kLenience : 1);
        uint64_t found = 0;
        for (uint64_t bits = open; bits; bits &= bits - 1) {
            const auto l = static_cast<size_t>(std::countr_zero(bits));
            Support& support = support_[group[l]];
            if (round == 0)
                begin(group[l], s);
            else if (round < kTogether)
                for (const Entry& w : s.weights[l]) s.w[w.feature] = w.value;
            else
                sum_up(support, s);
            descend(group[l], round, early ? std::min(kEarlyPasses, params_.max_iter) : params_.max_iter, s);
            if (early) found |= uint64_t{!support.converged} << l;
            take(support, s, s.weights[l]);
            double norm2 = 0;
            float largest = 0;
            for (const Entry& w : s.weights[l]) {
                norm2 += double{w.value} * w.value;
                largest = std::max(largest, std::abs(w.value));
            }
            scale[l] = rows_.scale(std::sqrt(norm2), largest);
            if (scale[l] > 0)
                threshold[l] = static_cast<float>(std::min(bar * TwoForms::kUnits * scale[l], 1e30));
            for (const uint32_t row : support.row) s.bears[row] |= uint64_t{1} << l;
        }
        place(scale, s);
        const QuantisedScan pass = rows_.pass(s.place.data(), s.panel.data(), threshold, !early);
        for (size_t begin = 0; begin < scope.size(); begin += kRowsAtOnce) {
            const auto part = scope.subspan(begin, std::min(kRowsAtOnce, scope.size() - begin));
            kernels_.scan_quantised(pass, part.data(), part.size(), s.above.data());
            for (size_t r = 0; r < part.size(); ++r)
                for (uint64_t bits = s.above[r] & ~s.bears[part[r]]; bits; bits &= bits - 1) {
                    if (early) found |= bits;
                    Support& support = support_[group[static_cast<size_t>(std::countr_zero(bits))]];
                    support.row.push_back(part[r]);
                    support.alpha.push_back(0.0f);
                }
        }
        for (const uint32_t l : group)
            for (const uint32_t row : support_[l].row) s.bears[row] = 0;
        for (const uint32_t f : s.placed) s.place[f] = 0;
        for (uint64_t bits = early ? 0 : open; bits; bits &= bits - 1) {
            const auto l = static_cast<size_t>(std::countr_zero(bits));
            found |= uint64_t{confirm(support_[group[l]], s.weights[l], s)} << l;
        }
        return found;
    }

    // Of the rows that have joined, those stay that are wrong indeed, which bytes tell but roughly. Returns
    // whether there are any.
    bool confirm(Support& support, const std::vector<Entry>& weights, Scratch& s) const {
        size_t kept = support.n_known;
        if (kept == support.row.size()) return false;
        for (const Entry& w : weights) s.w[w.feature] = w.value;
        for (size_t m = kept; m < support.row.size(); ++m) {
            if (m + 2 < support.row.size()) rows_.expect(support.row[m + 2]);
            const float wrong = rows_.dot(support.row[m], s.w.data()) + params_.fixed_bias + 1;
            if (wrong > params_.tol) support.row[kept++] = support.row[m];
        }
        for (const Entry& w : weights) s.w[w.feature] = 0;
        support.row.resize(kept);
        support.alpha.resize(kept);
        return kept > support.n_known;
    }

    // From the label's own rows through growing parts of the sample, a pass over the support between them.
    void begin(uint32_t l, Scratch& s) {
        Support& support = support_[l];
        const auto own = data_.rows_of(labels_[l]);
        support.row.assign(own.begin(), own.end());
        support.n_own = own.size();
        support.alpha.assign(own.size(), 0.0f);
        const std::span<const uint32_t> sample(sample_.data(), std::min(sample_.size(), kSample));
        int round = 0;
        for (size_t from = 0, to = kFirstSample; from < sample.size(); from = to, to *= 2) {
            descend(l, --round, 1, s);
            join(l, sample.subspan(from, std::min(to, sample.size()) - from), s);
        }
    }

    // Rows that are wrong by more than the tolerance join, and are made right one after the other.
    void join(uint32_t l, std::span<const uint32_t> rows, Scratch& s) {
        Support& support = support_[l];
        const auto own = data_.rows_of(labels_[l]);
        for (size_t r = 0; r < rows.size(); ++r) {
            const uint32_t i = rows[r];
            if (r + 2 < rows.size()) rows_.expect(rows[r + 2]);
            const float wrong = rows_.dot(i, s.w.data()) + params_.fixed_bias + 1;
            if (wrong <= params_.tol || std::binary_search(own.begin(), own.end(), static_cast<int32_t>(i)))
                continue;
            const float alpha = wrong / (rows_.norm2(i) + diagonal(l, i));
            support.row.push_back(i);
            support.alpha.push_back(alpha);
            rows_.add(i, -alpha, s.w.data());
        }
    }

    // What the squared hinge adds to Q_ii: 1 / (2 C_i).
    float diagonal(uint32_t l, uint32_t i) const {
        const double cost = params_.c * (costs_.empty() ? 1.0 : double{costs_[l]});
        return static_cast<float>(0.5 / (cost * double{data_.weight(i)}));
    }

    // The weights of a support, into s.w.
    void sum_up(const Support& support, Scratch& s) const {
        for (size_t m = 0; m < support.row.size(); ++m) {
            if (m + 2 < support.row.size()) rows_.expect(support.row[m + 2]);
            if (support.alpha[m] != 0)
                rows_.add(support.row[m], support.sign(m) * support.alpha[m], s.w.data());
        }
    }

    // Algorithm 1 of Hsieh et al. (ICML 2008) with shrinking: a row of others that bears nothing and is right
    // goes. Should it be wrong again later, it will be found among all rows.
    void descend(uint32_t l, int round, int max_passes, Scratch& s) {
        Support& support = support_[l];
        const auto slack = static_cast<float>(-kSlack * params_.tol);
        const auto still = static_cast<float>(kStill * params_.tol);
        const float usual = diagonal(l, 0);
        s.order.resize(support.row.size());
        for (size_t m = 0; m < s.order.size(); ++m) s.order[m] = static_cast<uint32_t>(m);
        Rng rng(derive(derive(key_, labels_[l]), static_cast<uint64_t>(round)));
        support.converged = false;
        for (int pass = 0; pass < max_passes && !support.converged; ++pass) {
            rng.shuffle(s.order);
            float high = 0, low = 0;
            size_t kept = 0;
            for (size_t t = 0; t < s.order.size(); ++t) {
                const uint32_t m = s.order[t], i = support.row[m];
                if (t + 2 < s.order.size()) rows_.expect(support.row[s.order[t + 2]]);
                const float y = support.sign(m), a = support.alpha[m];
                const float extra = data_.weighted() ? diagonal(l, i) : usual;
                const float g = y * (rows_.dot(i, s.w.data()) + params_.fixed_bias) - 1 + a * extra;
                const bool rests = a == 0 && g >= (m < support.n_own ? 0 : slack);
                if (!rests || m < support.n_own) s.order[kept++] = m;
                if (rests) continue;
                high = std::max(high, g);
                low = std::min(low, g);
                if (a > 0 && std::abs(g) <= still) continue;
                const float next = std::max(0.0f, a - g / (rows_.norm2(i) + extra));
                if (next == a) continue;
                support.alpha[m] = next;
                rows_.add(i, (next - a) * y, s.w.data());
            }
            s.order.resize(kept);
            ++support.n_iter;
            support.converged = high - low <= params_.tol;
        }
        size_t kept = support.n_own;
        for (size_t m = kept; m < support.row.size(); ++m) {
            if (support.alpha[m] == 0) continue;
            support.row[kept] = support.row[m];
            support.alpha[kept++] = support.alpha[m];
        }
        support.row.resize(kept);
        support.alpha.resize(kept);
        support.n_known = kept;
    }

    // Moves the weights out of s.w: by the rows of the support, or through all features where that is less.
    void take(const Support& support, Scratch& s, std::vector<Entry>& weights) const {
        size_t n = 0;
        for (const uint32_t row : support.row) n += rows_.row_size(row);
        weights.clear();
        if (n < s.w.size() / 64) {
            for (const uint32_t row : support.row)
                for (const int32_t f : rows_.features(row)) {
                    if (s.w[f] == 0) continue;
                    weights.push_back({static_cast<uint32_t>(f), s.w[f]});
                    s.w[f] = 0;
                }
            std::sort(weights.begin(), weights.end(),
                      [](const Entry& a, const Entry& b) { return a.feature < b.feature; });
            return;
        }
        weights.resize(kernels_.drain_nonzeros(s.w.data(), s.w.size(), s.feature.data(), s.value.data()));
        for (size_t k = 0; k < weights.size(); ++k) weights[k] = {s.feature[k], s.value[k]};
    }

    // The weights of all lanes times their scale, 0 for those left out, into the panel. A range of features
    // at a time, so that the part of the panel that is written to stays in cache.
    void place(const float* scale, Scratch& s) const {
        s.placed.clear();
        s.panel.assign(kLanePairs, 0);
        const Entry* next[kMaxLanes];
        for (size_t l = 0; l < kMaxLanes; ++l) next[l] = s.weights[l].data();
        for (size_t end = kPlacedAtOnce; end < s.w.size() + kPlacedAtOnce; end += kPlacedAtOnce)
            for (size_t l = 0; l < kMaxLanes; ++l) {
                if (scale[l] == 0) continue;
                const Entry* const last = s.weights[l].data() + s.weights[l].size();
                for (; next[l] != last && next[l]->feature < end; ++next[l]) {
                    uint32_t& place = s.place[next[l]->feature];
                    // The lower byte stands already, and adds to the upper one.
                    const auto low = static_cast<float>(s.panel[place * kLanePairs + l % kLanePairs]) / 256;
                    const float scaled = next[l]->value * scale[l] - (l < kLanePairs ? 0 : low);
                    const auto value = static_cast<int16_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
                    if (place == 0) {
                        s.placed.push_back(next[l]->feature);
                        place = static_cast<uint32_t>(s.placed.size());
                        s.panel.resize(s.panel.size() + kLanePairs, 0);
                    }
                    s.panel[place * kLanePairs + l % kLanePairs] +=
                        static_cast<int16_t>(l < kLanePairs ? value : value * 256);
                }
            }
    }

    // The weights of a finished classifier; what it was made of is given up.
    void report(size_t l, size_t cls, Solution& out, Scratch& s) {
        Support& support = support_[l];
        Learnt learnt{.weights = {},
                      .bias = params_.fixed_bias,
                      .n_iter = support.n_iter,
                      .converged = support.converged};
        if (!learnt_.empty() && learnt_[l].n_iter > 0) {
            learnt = std::move(learnt_[l]);
        } else {
            sum_up(support, s);
            take(support, s, learnt.weights);
        }
        for (const Entry& w : learnt.weights)
            if (std::abs(w.value) > params_.prune)
                out.weights.push_back({w.feature, static_cast<uint32_t>(cls), w.value});
        out.bias.push_back(learnt.bias);
        out.n_iter.push_back(learnt.n_iter);
        out.converged.push_back(learnt.converged);
        support = {};
    }

    struct Learnt {
        std::vector<Entry> weights;
        float bias;
        int32_t n_iter;
        bool converged;
    };

    const Dataset& data_;
    const TwoForms rows_;
    std::span<const uint32_t> labels_;
    std::span<const float> costs_;
    const uint64_t key_;
    const LinearParams& params_;
    const Kernels& kernels_;
    Pool& pool_;
    std::vector<uint32_t> all_, sample_;
    std::vector<uint32_t> rare_, frequent_;  // places of labels; those of frequent ones by falling frequency
    std::vector<Learnt> learnt_;             // for each label, of frequent ones only; empty if there are none
    std::vector<Support> support_;
    std::vector<Scratch> scratch_;
};

}  // namespace

bool can_use_active_sets(const Dataset& data, const LinearParams& params) {
    return params.loss == Loss::squared_hinge && params.solver == Solver::dual && !params.learn_bias &&
           params.fixed_bias <= -1 && !data.x().dense;
}

OwnedForest train_one_vs_rest(const Dataset& data, std::span<const uint32_t> labels,
                              std::span<const float> costs, double learn_above, uint64_t seed,
                              const LinearParams& params, const Kernels& kernels, Pool& pool,
                              TrainReport& report) {
    if (!can_use_active_sets(data, params)) {
        if (!costs.empty()) throw std::invalid_argument("costs of labels");
        const std::vector<int64_t> child_ptr = {0, static_cast<int64_t>(labels.size())};
        const std::vector<int32_t> children(labels.begin(), labels.end());
        const std::vector<uint8_t> is_leaf = {1};
        const TreeView tree{child_ptr, children, is_leaf};
        return train_trees(data, {&tree, 1}, seed, params, false, kernels, pool, report);
    }
    std::vector<uint32_t> all(data.n_rows());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
    Slice::Scratch scratch;
    const Slice slice(data.x(), all, data.factors(), scratch, pool.control());
    RankerTrainer trainer(data, slice.rows(), labels, costs, learn_above, seed, params, kernels, pool);
    trainer.solve(slice);
    std::vector<PackedNode> blocks = trainer.pack_blocks(slice.features());
    OwnedForest forest;
    forest.tree_ptr = {0, 1};
    forest.child_ptr = {0, static_cast<int64_t>(labels.size())};
    forest.children.assign(labels.begin(), labels.end());
    forest.is_leaf = {1};
    forest.bucket_ptr = forest.record_ptr = {0};
    for (PackedNode& block : blocks) {
        report.n_classifiers += block.part.bias.size();
        report.n_unconverged += block.n_unconverged;
        report.max_iter = std::max(report.max_iter, block.max_iter);
        append(forest, block.part);
        block = {};
    }
    forest.block_ptr = {0, static_cast<int64_t>(forest.shift.size())};
    return forest;
}

}  // namespace bonsai

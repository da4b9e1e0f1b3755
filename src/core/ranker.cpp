#include "ranker.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "pack.hpp"
#include "panel.hpp"
#include "random.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsAtOnce = 256;
constexpr size_t kSample = 500;  // rows that every classifier meets first
constexpr int kRehearsals = 4;   // rounds among a few rows, before all are met
constexpr int kRehearsalPasses = 2;
constexpr int kMaxRounds = 20;  // among all rows; more than 8 have not been seen

// What bears a classifier: its weights are the sum over these rows of y alpha x.
struct Support {
    std::vector<uint32_t> row;  // the label's own rows first, then others
    std::vector<float> alpha;
    size_t n_own = 0;
    size_t n_known = 0;  // the rows after these have joined since the last descent
    int32_t n_iter = 0;
    bool converged = false;
    bool settled = false;  // at once, and none of the rows that joined bears anything

    float sign(size_t m) const { return m < n_own ? 1.0f : -1.0f; }
};

struct Entry {
    uint32_t feature;
    float value;
};
using Entries = std::span<const Entry>;

float dot(Entries row, const float* w) {
    float sum[4] = {};
    size_t e = 0;
    for (; e + 4 <= row.size(); e += 4) {
        sum[0] += row[e].value * w[row[e].feature];
        sum[1] += row[e + 1].value * w[row[e + 1].feature];
        sum[2] += row[e + 2].value * w[row[e + 2].feature];
        sum[3] += row[e + 3].value * w[row[e + 3].feature];
    }
    for (; e < row.size(); ++e) sum[0] += row[e].value * w[row[e].feature];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// w += step x row. The features of a row differ, which the compiler does not know: four at once.
void add(Entries row, float step, float* w) {
    size_t e = 0;
    for (; e + 4 <= row.size(); e += 4) {
        const float a = w[row[e].feature] + step * row[e].value;
        const float b = w[row[e + 1].feature] + step * row[e + 1].value;
        const float c = w[row[e + 2].feature] + step * row[e + 2].value;
        const float d = w[row[e + 3].feature] + step * row[e + 3].value;
        w[row[e].feature] = a;
        w[row[e + 1].feature] = b;
        w[row[e + 2].feature] = c;
        w[row[e + 3].feature] = d;
    }
    for (; e < row.size(); ++e) w[row[e].feature] += step * row[e].value;
}

// The rows twice: feature beside value for one classifier at a time, and in 16 bits for many at once.
class TwoForms {
  public:
    explicit TwoForms(const RowsView& rows)
        : view_(rows),
          entry_(static_cast<size_t>(rows.ptr[rows.n_rows])),
          fixed_(entry_.size()),
          inverse_(rows.n_rows, 0.0f),
          norm2_(rows.n_rows) {
        for (size_t i = 0; i < rows.n_rows; ++i) {
            float largest = 0;
            for (int64_t e = rows.ptr[i]; e < rows.ptr[i + 1]; ++e) {
                entry_[e] = {static_cast<uint32_t>(rows.index[e]), rows.value[e]};
                largest = std::max(largest, std::abs(rows.value[e]));
            }
            const double norm = row_norm(rows, i);
            norm2_[i] = static_cast<float>(norm * norm);
            if (largest == 0) continue;
            inverse_[i] = 1 / largest;
            longest_ = std::max(longest_, norm / largest);
            most_entries_ = std::max(most_entries_, rows.row_size(i));
            for (int64_t e = rows.ptr[i]; e < rows.ptr[i + 1]; ++e)
                fixed_[e] = static_cast<int16_t>(std::lrint(rows.value[e] / largest * kOne));
        }
    }

    size_t n_rows() const { return view_.n_rows; }
    size_t n_features() const { return view_.n_features; }
    Entries operator[](size_t i) const { return {entry_.data() + view_.ptr[i], view_.row_size(i)}; }
    float norm2(size_t i) const { return norm2_[i]; }
    void expect(size_t i) const {
        constexpr int64_t line = 64 / sizeof(Entry);
        for (int64_t e = view_.ptr[i]; e < view_.ptr[i + 1]; e += line) __builtin_prefetch(&entry_[e]);
    }

    // What weights of this norm can be multiplied by, so that no sum over a part of a row leaves 16 bits,
    // with room for the rounding of each product.
    float scale(double norm) const {
        const double room = std::max(kOne - static_cast<double>(most_entries_), kOne / 2);
        return norm > 0 ? static_cast<float>(room / (norm * longest_)) : 0.0f;
    }
    FixedPass pass(const uint32_t* place, const int16_t* panel, const float* threshold) const {
        return {.ptr = view_.ptr,
                .index = view_.index,
                .value = fixed_.data(),
                .place = place,
                .panel = panel,
                .threshold = threshold,
                .factor = inverse_.data()};
    }

  private:
    static constexpr double kOne = 32767;
    RowsView view_;
    std::vector<Entry, PanelAllocator<Entry>> entry_;
    std::vector<int16_t> fixed_;  // times the row's largest value / kOne
    std::vector<float> inverse_;  // 1 / the row's largest value; 0 for an empty row
    std::vector<float> norm2_;
    double longest_ = 1;  // norm of a row / its largest value
    size_t most_entries_ = 0;
};

// Buffers of one worker.
struct Scratch {
    std::vector<float> w;                   // one classifier; 0 between uses
    std::vector<uint32_t> order;            // of its rows
    std::vector<Entry> weights[kMaxLanes];  // of each classifier of the group
    std::vector<uint32_t> place;            // feature -> row of the panel; 0 between uses
    std::vector<uint32_t> placed;           // features that have one
    std::vector<int16_t> panel;             // row 0 stays 0
    std::vector<uint64_t> bears;            // for each row, bit l: it bears lane l; 0 between uses
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
          rows_(rows),
          labels_(labels),
          costs_(costs),
          key_(derive(seed, kForSolver)),
          params_(params),
          kernels_(kernels),
          pool_(pool),
          all_(rows.n_rows),
          sample_(Rng(key_).sample(rows.n_rows, std::min(rows.n_rows, kSample))),
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
            s.w.assign(rows.n_features, 0.0f);
            s.place.assign(rows.n_features, 0);
            s.bears.assign(rows.n_rows, 0);
            s.above.resize(kRowsAtOnce);
        }
    }

    void solve() {
        pool_.control().total = labels_.size();
        pool_.control().done = 0;
        std::vector<uint32_t> open = rare_;
        for (int round = 0; round < kMaxRounds && !open.empty(); ++round) {
            std::vector<uint64_t> again((open.size() + kMaxLanes - 1) / kMaxLanes);
            pool_.run(again.size(), [&](size_t g, unsigned worker) {
                const std::span<const uint32_t> group(&open[g * kMaxLanes],
                                                      std::min(kMaxLanes, open.size() - g * kMaxLanes));
                Scratch& s = scratch_[worker];
                if (round == 0) rehearse(group, s);
                again[g] = meet(group, all_, kRehearsals + round, 1, params_.max_iter, s);
                pool_.control().done += group.size() - static_cast<size_t>(std::popcount(again[g]));
            });
            size_t left = 0;
            for (size_t o = 0; o < open.size(); ++o)
                if (again[o / kMaxLanes] >> (o % kMaxLanes) & 1) open[left++] = open[o];
            open.resize(left);
        }
        for (const uint32_t l : open) support_[l].converged = false;
    }

    // The panel solver, on all rows, for labels that so many rows have that nearly every row matters to them.
    // Those of similar frequency share a panel, and its mean cost.
    void solve_frequent(const Slice& slice) {
        if (frequent_.empty()) return;
        std::stable_sort(frequent_.begin(), frequent_.end(), [&](uint32_t a, uint32_t b) {
            return data_.rows_of(labels_[a]).size() > data_.rows_of(labels_[b]).size();
        });
        std::vector<uint32_t> class_of_label(data_.n_labels(), kNowhere);
        for (uint32_t c = 0; c < frequent_.size(); ++c) class_of_label[labels_[frequent_[c]]] = c;
        const Problem problem = build_problem(data_, all_, slice, class_of_label, frequent_.size(), key_);
        std::vector<Solution> panels((frequent_.size() + kMaxLanes - 1) / kMaxLanes);
        pool_.run(panels.size(), [&](size_t p, unsigned) {
            const size_t first = p * kMaxLanes, n = std::min(kMaxLanes, frequent_.size() - first);
            LinearParams params = params_;
            params.learn_bias = true;
            if (!costs_.empty()) {
                double sum = 0;
                for (size_t c = first; c < first + n; ++c) sum += costs_[frequent_[c]];
                params.c *= sum / static_cast<double>(n);
            }
            panels[p] = solve_panel(problem, first, n, params, kernels_, pool_.control());
            pool_.control().done += n;
        });
        learnt_.resize(labels_.size());
        for (size_t c = 0; c < frequent_.size(); ++c) {
            const Solution& panel = panels[c / kMaxLanes];
            const size_t lane = c % kMaxLanes;
            Learnt& learnt = learnt_[frequent_[c]];
            learnt = {.weights = {},
                      .bias = panel.bias[lane],
                      .n_iter = panel.n_iter[lane],
                      .converged = panel.converged[lane] != 0};
        }
        for (const Solution& panel : panels)
            for (const Weight& w : panel.weights)
                learnt_[frequent_[w.cls]].weights.push_back({w.feature, w.value});
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
    // Classifiers that know only their own rows get nearly all others wrong. They learn the worst of it from
    // few rows: a sample, and those of the whole group.
    void rehearse(std::span<const uint32_t> group, Scratch& s) {
        std::vector<uint32_t> few = sample_;
        for (const uint32_t row : sample_) s.bears[row] = 1;
        for (size_t l = 0; l < group.size(); ++l) {
            Support& support = support_[group[l]];
            for (const int32_t row : data_.rows_of(labels_[group[l]])) {
                support.row.push_back(static_cast<uint32_t>(row));
                if (!s.bears[row]) few.push_back(static_cast<uint32_t>(row));
                s.bears[row] = 1;
            }
            support.n_own = support.row.size();
            support.alpha.assign(support.n_own, 0.0f);
        }
        for (const uint32_t row : few) s.bears[row] = 0;
        std::sort(few.begin(), few.end());
        for (int round = 0; round < kRehearsals; ++round)
            meet(group, few, round, std::ldexp(1.0, kRehearsals - 1 - round), kRehearsalPasses, s);
    }

    // Solves up to 64 classifiers on their supports, then lets the rows of `scope` join that are wrong by
    // more than `lenience` times the tolerance. Returns the classifiers that such rows were found for.
    uint64_t meet(std::span<const uint32_t> group, std::span<const uint32_t> scope, int round,
                  double lenience, int max_passes, Scratch& s) {
        pool_.control().check();
        s.placed.clear();
        s.panel.assign(kMaxLanes, 0);
        float threshold[kMaxLanes];
        std::fill_n(threshold, kMaxLanes, std::numeric_limits<float>::max());
        const double bar = -1 - double{params_.fixed_bias} + lenience * params_.tol;
        for (size_t l = 0; l < group.size(); ++l) {
            Support& support = support_[group[l]];
            sum_up(support, s);
            descend(group[l], round, max_passes, s);
            take(support, s, s.weights[l]);
            // Rows that are right after all, by less than fixed point can tell, would be found again.
            if (round > kRehearsals && support.settled) continue;
            if (const float scale = place(l, s); scale > 0)
                threshold[l] = static_cast<float>(std::min(bar * scale, 1e30));
            for (const uint32_t row : support.row) s.bears[row] |= uint64_t{1} << l;
        }
        const FixedPass pass = rows_.pass(s.place.data(), s.panel.data(), threshold);
        uint64_t found = 0;
        for (size_t begin = 0; begin < scope.size(); begin += kRowsAtOnce) {
            const auto part = scope.subspan(begin, std::min(kRowsAtOnce, scope.size() - begin));
            kernels_.rows_above(pass, part.data(), part.size(), s.above.data());
            for (size_t r = 0; r < part.size(); ++r)
                for (uint64_t bits = s.above[r] & ~s.bears[part[r]]; bits; bits &= bits - 1) {
                    found |= bits;
                    Support& support = support_[group[static_cast<size_t>(std::countr_zero(bits))]];
                    support.row.push_back(part[r]);
                    support.alpha.push_back(0.0f);
                }
        }
        for (const uint32_t l : group)
            for (const uint32_t row : support_[l].row) s.bears[row] = 0;
        for (const uint32_t f : s.placed) s.place[f] = 0;
        return found;
    }

    // The weights of a support, into s.w.
    void sum_up(const Support& support, Scratch& s) const {
        for (size_t m = 0; m < support.row.size(); ++m) {
            if (m + 2 < support.row.size()) rows_.expect(support.row[m + 2]);
            if (support.alpha[m] != 0)
                add(rows_[support.row[m]], support.sign(m) * support.alpha[m], s.w.data());
        }
    }

    // Algorithm 1 of Hsieh et al. (ICML 2008) with shrinking: a row of others that bears nothing and is right
    // goes. Should it be wrong again later, it will be found among all rows.
    void descend(uint32_t l, int round, int max_passes, Scratch& s) {
        Support& support = support_[l];
        const double cost = params_.c * (costs_.empty() ? 1.0 : double{costs_[l]});
        s.order.resize(support.row.size());
        for (size_t m = 0; m < s.order.size(); ++m) s.order[m] = static_cast<uint32_t>(m);
        Rng rng(derive(derive(key_, labels_[l]), static_cast<uint64_t>(round)));
        support.converged = false;
        int pass = 0;
        for (; pass < max_passes && !support.converged; ++pass) {
            rng.shuffle(s.order);
            float high = 0, low = 0;
            size_t kept = 0;
            for (size_t t = 0; t < s.order.size(); ++t) {
                const uint32_t m = s.order[t], i = support.row[m];
                if (t + 2 < s.order.size()) rows_.expect(support.row[s.order[t + 2]]);
                const float y = support.sign(m), a = support.alpha[m];
                const auto diagonal = static_cast<float>(0.5 / (cost * double{data_.weight(i)}));
                const float g = y * (dot(rows_[i], s.w.data()) + params_.fixed_bias) - 1 + a * diagonal;
                const bool rests = a == 0 && g >= 0;
                if (!rests || m < support.n_own) s.order[kept++] = m;
                if (rests) continue;
                high = std::max(high, g);
                low = std::min(low, g);
                const float next = std::max(0.0f, a - g / (rows_.norm2(i) + diagonal));
                if (next == a) continue;
                support.alpha[m] = next;
                add(rows_[i], (next - a) * y, s.w.data());
            }
            s.order.resize(kept);
            ++support.n_iter;
            support.converged = high - low <= params_.tol;
        }
        support.settled = support.converged && pass == 1;
        size_t kept = support.n_own;
        for (size_t m = kept; m < support.row.size(); ++m) {
            if (support.alpha[m] == 0) continue;
            support.settled &= m < support.n_known;
            support.row[kept] = support.row[m];
            support.alpha[kept++] = support.alpha[m];
        }
        support.row.resize(kept);
        support.alpha.resize(kept);
        support.n_known = kept;
    }

    // Moves the weights out of s.w: by the rows of the support, or through all features where that is less.
    void take(const Support& support, Scratch& s, std::vector<Entry>& weights) const {
        weights.clear();
        const auto move = [&](uint32_t f) {
            if (s.w[f] == 0) return;
            weights.push_back({f, s.w[f]});
            s.w[f] = 0;
        };
        size_t n = 0;
        for (const uint32_t row : support.row) n += rows_[row].size();
        constexpr size_t step = 16;  // features that are compared with 0 at once
        if (n < s.w.size() / step) {
            for (const uint32_t row : support.row)
                for (const Entry& e : rows_[row]) move(e.feature);
            return;
        }
        for (size_t begin = 0; begin < s.w.size(); begin += step) {
            const size_t end = std::min(begin + step, s.w.size());
            float any = 0;
            for (size_t f = begin; f < end; ++f) any += std::abs(s.w[f]);
            if (any != 0)
                for (size_t f = begin; f < end; ++f) move(static_cast<uint32_t>(f));
        }
    }

    // The weights of lane l into the panel, in fixed point; returns what they were multiplied by.
    float place(size_t l, Scratch& s) const {
        double norm2 = 0;
        for (const Entry& w : s.weights[l]) norm2 += double{w.value} * w.value;
        const float scale = rows_.scale(std::sqrt(norm2));
        for (const Entry& w : s.weights[l]) {
            const auto value = static_cast<int16_t>(std::lrint(w.value * scale));
            if (value == 0) continue;
            uint32_t& place = s.place[w.feature];
            if (place == 0) {
                s.placed.push_back(w.feature);
                place = static_cast<uint32_t>(s.placed.size());
                s.panel.resize(s.panel.size() + kMaxLanes, 0);
            }
            s.panel[place * kMaxLanes + l] = value;
        }
        return scale;
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

bool can_train_ranker(const Dataset& data, const LinearParams& params) {
    return params.loss == Loss::squared_hinge && params.solver == Solver::dual && !params.learn_bias &&
           params.fixed_bias <= -1 && !data.x().dense;
}

OwnedForest train_ranker(const Dataset& data, std::span<const uint32_t> labels, std::span<const float> costs,
                         double learn_above, uint64_t seed, const LinearParams& params,
                         const Kernels& kernels, Pool& pool, TrainReport& report) {
    if (!can_train_ranker(data, params)) {
        if (!costs.empty()) throw std::invalid_argument("costs of labels");
        const std::vector<int64_t> child_ptr = {0, static_cast<int64_t>(labels.size())};
        const std::vector<int32_t> children(labels.begin(), labels.end());
        const std::vector<uint8_t> is_leaf = {1};
        const TreeView tree{child_ptr, children, is_leaf};
        return train_forest(data, {&tree, 1}, seed, params, false, kernels, pool, report);
    }
    std::vector<uint32_t> all(data.n_rows());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
    Slice::Scratch scratch;
    const Slice slice(data.x(), all, data.factors(), scratch);
    RankerTrainer trainer(data, slice.rows(), labels, costs, learn_above, seed, params, kernels, pool);
    trainer.solve();
    trainer.solve_frequent(slice);
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

#include "tree/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "tree/centres.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 128;
constexpr size_t kRowsBetweenPolls = 256;
// Similarities are kept between iterations if clusters have at most this many rows on average: then few rows
// change clusters, and most centres do not change.
constexpr size_t kSmallCluster = 64;
constexpr uint32_t kNone = ~uint32_t{0};
// Rounding errors of similarities have a known standard deviation. Similarities that differ by more than this
// many standard deviations are in the right order; closer ones are computed exactly.
constexpr float kSafeDeviations = 12.0f;
// A sum of unit vectors has no direction if its squared norm is below this times their number: the vectors
// cancel out, up to rounding.
constexpr double kCancelled = 1e-12;

// Rows that are added to or removed from a centre, by centre, rows ascending.
class Moves {
  public:
    struct Move {
        uint32_t row;
        float sign;
    };

    Moves(std::span<const uint32_t> rows, std::span<const uint32_t> before, std::span<const uint32_t> now,
          size_t k)
        : ptr_(k + 1, 0) {
        const auto for_each = [&](auto&& fn) {
            for (const uint32_t i : rows) {
                if (before[i] == now[i]) continue;
                if (before[i] != kNone) fn(before[i], Move{i, -1.0f});
                fn(now[i], Move{i, 1.0f});
            }
        };
        for_each([&](uint32_t c, Move) { ++ptr_[c + 1]; });
        std::partial_sum(ptr_.begin(), ptr_.end(), ptr_.begin());
        all_.resize(ptr_.back());
        std::vector<size_t> next(ptr_.begin(), ptr_.end() - 1);
        for_each([&](uint32_t c, Move move) { all_[next[c]++] = move; });
    }

    std::span<const Move> of(size_t c) const { return {all_.data() + ptr_[c], ptr_[c + 1] - ptr_[c]}; }
    std::span<const Move> all() const { return all_; }
    // The start of each centre's moves.
    size_t first(size_t c) const { return ptr_[c]; }
    size_t centre_of(size_t move) const {
        return static_cast<size_t>(std::upper_bound(ptr_.begin(), ptr_.end(), move) - ptr_.begin()) - 1;
    }

  private:
    std::vector<size_t> ptr_;
    std::vector<Move> all_;
};

class KMeans {
  public:
    KMeans(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels, Pool& pool)
        : params_(params), rng_(rng), kernels_(kernels), pool_(pool), rows_(rows) {
        std::vector<uint8_t> is_zero(rows.n_rows, 1);
        for_each_task(rows.n_rows, [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i)
                for_each_entry(rows, i, [&](uint32_t, float v) { is_zero[i] &= v == 0.0f; });
        });
        for (size_t i = 0; i < rows.n_rows; ++i)
            (is_zero[i] && !params.balanced ? zero_rows_ : members_).push_back(static_cast<uint32_t>(i));
        cluster_.assign(rows_.n_rows, kNone);
    }

    Partition run() {
        Partition result;
        if (!members_.empty()) {
            const std::vector<uint32_t> initial = initial_centres(std::min(params_.k, members_.size()));
            k_ = initial.size();
            Centres centres(k_, rows_.n_features, has_sparse_centres(), pool_);
            // Each initial centre is the only member of its cluster at first; a row may be drawn twice.
            for (uint32_t c = 0; c < k_; ++c) cluster_[members_[initial[c]]] = c;
            pool_.run(k_, [&](size_t c, unsigned) {
                for_each_entry(rows_, members_[initial[c]],
                               [&](uint32_t f, float v) { centres.add(c, f, v); });
                centres.norm2[c] = norm2(centres, c);
            });
            iterate(centres, result.objective);
            if (!params_.balanced) merge_singletons(centres);
        }
        distribute_zero_rows();
        renumber(result);
        return result;
    }

  private:
    void poll(size_t i) const {
        if (i % kRowsBetweenPolls == 0) pool_.control().check();
    }

    // Calls fn(begin, end) for parts of [0, n), on all threads; n is the number of members unless given.
    template <class Fn>
    void for_each_task(size_t n, Fn&& fn) const {
        pool_.run((n + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, unsigned) {
            fn(task * kRowsPerTask, std::min(n, (task + 1) * kRowsPerTask));
        });
    }
    template <class Fn>
    void for_each_task(Fn&& fn) const {
        for_each_task(members_.size(), fn);
    }

    // Whether centres are sparse enough to visit only non-zero features, which costs more per feature.
    bool has_sparse_centres() const {
        constexpr size_t factor = 8;
        if (params_.balanced || rows_.is_dense()) return false;
        const auto n_entries = static_cast<size_t>(rows_.ptr[rows_.n_rows] - rows_.ptr[0]);
        return n_entries / k_ <= rows_.n_features / factor;
    }

    std::vector<uint32_t> initial_centres(size_t k) {
        return params_.plus_plus ? plus_plus(k) : rng_.sample(members_.size(), k);
    }

    // k-means++ (Arthur and Vassilvitskii, SODA 2007) for unit vectors: each next centre is drawn with
    // probability proportional to 1 - (similarity to the nearest centre so far), half the squared distance.
    // There are fewer than k if every row coincides with a centre.
    std::vector<uint32_t> plus_plus(size_t k) {
        std::vector<uint32_t> chosen = {static_cast<uint32_t>(rng_.below(members_.size()))};
        std::vector<float> centre(rows_.n_features, 0.0f);
        std::vector<double> distance(members_.size(), 1.0), nearest(members_.size(), -INFINITY);
        while (true) {
            for_each_entry(rows_, members_[chosen.back()], [&](uint32_t f, float v) { centre[f] = v; });
            for_each_task([&](size_t begin, size_t end) {
                for (size_t m = begin; m < end; ++m) {
                    double similarity = 0;
                    for_each_entry(rows_, members_[m],
                                   [&](uint32_t f, float v) { similarity += double{v} * centre[f]; });
                    nearest[m] = std::max(nearest[m], similarity);
                    // Rounding leaves a tiny distance between equal rows, which counts as 0.
                    distance[m] = 1.0 - nearest[m] > 1e-6 ? 1.0 - nearest[m] : 0.0;
                }
            });
            std::fill(centre.begin(), centre.end(), 0.0f);
            if (chosen.size() == k) return chosen;
            const double total = std::accumulate(distance.begin(), distance.end(), 0.0);
            if (total <= 0) return chosen;
            chosen.push_back(draw(distance, rng_.uniform() * total));
        }
    }

    // The first index at which the running sum of `weights` is above `target`.
    static uint32_t draw(std::span<const double> weights, double target) {
        double sum = 0;
        uint32_t chosen = 0;
        for (size_t m = 0; m < weights.size(); ++m) {
            if (weights[m] == 0) continue;
            chosen = static_cast<uint32_t>(m);
            sum += weights[m];
            if (sum > target) break;
        }
        return chosen;
    }

    // Runs Lloyd's iterations. `centres` are finally those of the last assignment.
    void iterate(Centres& centres, std::vector<double>& objective) {
        size_t longest = 1;
        for (const uint32_t i : members_) longest = std::max(longest, rows_.row_size(i));
        QuantisedCentres quantised(rows_.n_features, longest);
        changed_.resize(k_);
        std::iota(changed_.begin(), changed_.end(), 0u);
        for (int iteration = 1;; ++iteration) {
            const std::vector<uint32_t> before = cluster_;
            if (params_.balanced)
                assign_balanced(centres);
            else if (rows_.is_dense())
                assign_exactly(centres);
            else
                assign(centres, quantised);
            const Moves moves(members_, before, cluster_, k_);
            objective.push_back(total_similarity(centres, moves) / static_cast<double>(members_.size()));
            const bool stalled = iteration > 1 && objective.back() - objective[iteration - 2] < params_.tol;
            if (stalled || iteration == params_.max_iter) return;
            update(moves, centres);
        }
    }

    // Similarities of all members to their centres: the sum of a cluster before the moves, times itself, plus
    // the moves.
    double total_similarity(const Centres& centres, const Moves& moves) {
        const auto all = moves.all();
        std::vector<double> product(all.size());
        for_each_task(all.size(), [&](size_t begin, size_t end) {
            for (size_t m = begin, c = moves.centre_of(m); m < end; ++m) {
                while (m >= moves.first(c + 1)) ++c;
                product[m] = all[m].sign * dot(all[m].row, centres.sum(c));
            }
        });
        double total = 0;
        for (size_t c = 0; c < k_; ++c) {
            double of_centre = centres.norm2[c];
            for (size_t m = moves.first(c); m < moves.first(c + 1); ++m) of_centre += product[m];
            total += of_centre * centres.inverse[c];
        }
        return total;
    }

    // A range of features in one centre's sum.
    struct SumTask {
        uint32_t centre;
        int32_t begin, end;
    };

    // The tasks of adding the moves: one per changed centre, or several if many rows move. Ranges of features
    // have about equally many entries, estimated from some of the rows.
    std::vector<SumTask> sum_tasks(const Moves& moves) const {
        constexpr size_t moves_per_task = 2048, n_sampled = 64;
        const auto n_features = static_cast<int32_t>(rows_.n_features);
        std::vector<SumTask> tasks;
        for (const uint32_t c : changed_) {
            const auto mine = moves.of(c);
            const size_t n = std::min<size_t>(mine.size() / moves_per_task, 64);
            int32_t begin = 0;
            if (n > 1) {
                std::vector<int32_t> seen;
                for (size_t s = 0; s < n_sampled; ++s)
                    for_each_entry(rows_, mine[s * mine.size() / n_sampled].row,
                                   [&](uint32_t f, float) { seen.push_back(static_cast<int32_t>(f)); });
                std::sort(seen.begin(), seen.end());
                for (size_t t = 1; t < n && !seen.empty(); ++t) {
                    constexpr int32_t word = Centres::kWordFeatures;
                    const int32_t end = seen[t * seen.size() / n] / word * word;
                    if (end > begin) tasks.push_back({c, begin, end});
                    begin = std::max(begin, end);
                }
            }
            tasks.push_back({c, begin, n_features});
        }
        return tasks;
    }

    void add_moves(std::span<const Moves::Move> moves, const SumTask& task, Centres& centres) const {
        float* const sum = centres.sum(task.centre);
        for (size_t m = 0; m < moves.size(); ++m) {
            poll(m);
            const uint32_t row = moves[m].row;
            if (rows_.is_dense()) {
                const float* x = rows_.dense_row(row);
                const float scale = moves[m].sign * rows_.dense_scale(row);
                for (int32_t f = task.begin; f < task.end; ++f) sum[f] += x[f] * scale;
                continue;
            }
            const int32_t *first = rows_.index + rows_.ptr[row], *last = rows_.index + rows_.ptr[row + 1];
            if (task.begin > 0) first = std::lower_bound(first, last, task.begin);
            const float* value = rows_.value + (first - rows_.index);
            const float sign = moves[m].sign;
            if (centres.sparse)
                for (; first < last && *first < task.end; ++first, ++value)
                    centres.add(task.centre, static_cast<size_t>(*first), sign * *value);
            else
                for (; first < last && *first < task.end; ++first, ++value) sum[*first] += sign * *value;
        }
    }

    // Each feature of a centre belongs to one task, which adds and removes rows in order: equal sums for any
    // number of threads.
    void update(const Moves& moves, Centres& centres) {
        std::vector<size_t> size(k_, 0);
        for (const uint32_t i : members_) ++size[cluster_[i]];
        changed_.clear();
        for (uint32_t c = 0; c < k_; ++c)
            if (!moves.of(c).empty()) changed_.push_back(c);
        const auto set_norm = [&](uint32_t c) {
            const double n2 = centres.norm2[c] = norm2(centres, c);
            const bool has_direction = n2 > kCancelled * static_cast<double>(size[c]);
            if (size[c] == 0)
                centres.inverse[c] = 0;
            else  // no direction: similarity 0 to every row
                centres.inverse[c] = has_direction ? static_cast<float>(1 / std::sqrt(n2)) : 1.0f;
        };
        const auto tasks = sum_tasks(moves);
        const auto is_whole = [&](const SumTask& task) {
            return task.begin == 0 && task.end == static_cast<int32_t>(rows_.n_features);
        };
        std::vector<uint32_t> in_parts;  // centres with several tasks
        for (const SumTask& task : tasks)
            if (!is_whole(task) && (in_parts.empty() || in_parts.back() != task.centre))
                in_parts.push_back(task.centre);
        pool_.run(tasks.size(), [&](size_t t, unsigned) {
            add_moves(moves.of(tasks[t].centre), tasks[t], centres);
            if (is_whole(tasks[t])) set_norm(tasks[t].centre);  // while the sum is in cache
        });
        pool_.run(in_parts.size(), [&](size_t i, unsigned) { set_norm(in_parts[i]); });
    }

    double dot(uint32_t row, const float* sum) const {
        if (rows_.is_dense()) {
            double total = 0;
            for_each_entry(rows_, row, [&](uint32_t f, float v) { total += double{v} * sum[f]; });
            return total;
        }
        double part[4] = {};  // independent chains of additions
        int64_t e = rows_.ptr[row];
        const int64_t end = rows_.ptr[row + 1];
        for (; e + 4 <= end; e += 4)
            for (int64_t j = 0; j < 4; ++j) part[j] += double{rows_.value[e + j]} * sum[rows_.index[e + j]];
        for (; e < end; ++e) part[0] += double{rows_.value[e]} * sum[rows_.index[e]];
        return (part[0] + part[1]) + (part[2] + part[3]);
    }

    double norm2(const Centres& centres, size_t c) const {
        double lane[kLaneStep] = {};
        if (centres.sparse)  // the same order without zeros gives the same result
            centres.for_each_used(c, 0, rows_.n_features,
                                  [&](size_t f, float x) { lane[f % kLaneStep] += double{x} * x; });
        else
            kernels_.lane_dots(centres.sum(c), centres.sum(c), centres.stride / kLaneStep, kLaneStep, lane);
        return std::accumulate(lane, lane + kLaneStep, 0.0);
    }

    size_t similarity_stride() const { return padded_lanes(k_); }

    // Computes all similarities of members to centres in float; -infinity for empty clusters.
    void compare_all(const Centres& centres) {
        const size_t stride = similarity_stride();
        similarity_.resize(members_.size() * stride);
        for (size_t first = 0; first < k_; first += kMaxLanes) {
            std::vector<uint32_t> lanes(std::min(kMaxLanes, k_ - first));
            std::iota(lanes.begin(), lanes.end(), static_cast<uint32_t>(first));
            const size_t width = panel_width(lanes.size());
            panel_.resize(padded_lanes(rows_.n_features) * width);
            for_each_feature_range(rows_.n_features, pool_, [&](size_t begin, size_t end) {
                for_each_feature_block(begin, end, [&](size_t block, size_t block_end) {
                    transpose_centres(centres, lanes, width, block, block_end, panel_.data() + block * width);
                });
            });
            for_each_task([&](size_t begin, size_t end) {
                for (size_t m = begin; m < end; ++m) {
                    float* out = similarity_.data() + m * stride + first;
                    kernels_.margins(rows_, members_[m], members_[m] + 1, panel_.data(), width, out, stride);
                    for (const uint32_t c : lanes) {
                        float& similarity = out[c - first];
                        similarity = centres.inverse[c] > 0 ? similarity * centres.inverse[c] : -INFINITY;
                    }
                }
            });
        }
    }

    struct BestTwo {
        uint32_t best;
        float gap;
    };
    // The most similar centre, the first among equals, and its lead over the second.
    BestTwo best_two(const float* similarity) const {
        uint32_t best = 0;
        float second = -INFINITY;
        for (uint32_t c = 1; c < k_; ++c) {
            if (similarity[c] > similarity[best]) {
                second = similarity[best];
                best = c;
            } else {
                second = std::max(second, similarity[c]);
            }
        }
        return {best, similarity[best] - second};
    }

    void assign_exactly(const Centres& centres) {
        compare_all(centres);
        for_each_task([&](size_t begin, size_t end) {
            for (size_t m = begin; m < end; ++m)
                cluster_[members_[m]] = best_two(similarity_.data() + m * similarity_stride()).best;
        });
    }

    // Assigns rows by int8 centres, and exactly if these are not decisive.
    void assign(const Centres& centres, QuantisedCentres& quantised) {
        const bool keep = members_.size() <= kSmallCluster * k_;
        if (keep) {
            similarity_.resize(members_.size() * k_);
            variance_.resize(members_.size(), 0.0f);
        } else {
            changed_.resize(k_);
            std::iota(changed_.begin(), changed_.end(), 0u);
        }
        quantised.quantise(centres, changed_, kernels_, pool_);
        for_each_task([&](size_t begin, size_t end) {
            QuantisedCentres::Scratch scratch;
            std::vector<float> once(keep ? 0 : k_);
            for (size_t m = begin; m < end; ++m) {
                float* similarity = keep ? similarity_.data() + m * k_ : once.data();
                float variance =
                    quantised.compare(rows_, members_[m], centres, kernels_, scratch, similarity);
                if (keep) variance = variance_[m] = std::max(variance_[m], variance);
                cluster_[members_[m]] = nearest(centres, members_[m], similarity, variance);
            }
        });
    }

    // The nearest centre, given similarities with errors of this variance.
    uint32_t nearest(const Centres& centres, uint32_t row, const float* similarity, float variance) const {
        const BestTwo found = best_two(similarity);
        const float safe = kSafeDeviations * std::sqrt(2 * variance) + 1e-5f;
        if (found.gap > safe) return found.best;
        uint32_t best = found.best;
        double most = -INFINITY;
        for (uint32_t c = 0; c < k_; ++c) {
            if (!(similarity[c] >= similarity[found.best] - safe)) continue;
            const double exact = dot(row, centres.sum(c)) * centres.inverse[c];
            if (exact > most) {
                most = exact;
                best = c;
            }
        }
        return best;
    }

    // Greedy balanced assignment in descending order of regret: rows that lose most without their best centre
    // come first.
    void assign_balanced(const Centres& centres) {
        const size_t n = members_.size(), stride = similarity_stride();
        compare_all(centres);
        std::vector<float> regret(n);
        for_each_task([&](size_t begin, size_t end) {
            for (size_t m = begin; m < end; ++m) regret[m] = best_two(similarity_.data() + m * stride).gap;
        });
        std::vector<uint32_t> order(n);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return regret[a] > regret[b]; });
        std::vector<size_t> size(k_, 0);
        size_t extras = n % k_;  // clusters with one more row
        const size_t base = n / k_;
        for (size_t o = 0; o < n; ++o) {
            poll(o);
            const uint32_t m = order[o];
            uint32_t choice = kNone;
            const float* s = similarity_.data() + m * stride;
            for (uint32_t c = 0; c < k_; ++c)
                if ((size[c] < base || (size[c] == base && extras > 0)) &&
                    (choice == kNone || s[c] > s[choice]))
                    choice = c;
            if (size[choice] == base) --extras;
            ++size[choice];
            cluster_[members_[m]] = choice;
        }
    }

    // A cluster of one row would be a node with one child: the row moves to its next best cluster.
    void merge_singletons(const Centres& centres) {
        std::vector<uint32_t> size(k_, 0), only(k_, kNone);
        for (const uint32_t row : members_) {
            ++size[cluster_[row]];
            only[cluster_[row]] = row;
        }
        for (uint32_t c = 0; c < k_; ++c) {
            if (size[c] != 1) continue;
            pool_.control().check();
            uint32_t to = kNone;
            double most = -INFINITY;
            for (uint32_t other = 0; other < k_; ++other) {
                if (other == c || size[other] == 0) continue;
                const double similarity = dot(only[c], centres.sum(other)) * centres.inverse[other];
                if (similarity <= most) continue;
                most = similarity;
                to = other;
            }
            if (to == kNone) return;
            cluster_[only[c]] = to;
            ++size[to];
            size[c] = 0;
        }
    }

    void distribute_zero_rows() {
        if (zero_rows_.empty()) return;
        if (members_.empty()) {
            k_ = std::min(params_.k, zero_rows_.size());
            for (size_t z = 0; z < zero_rows_.size(); ++z)
                cluster_[zero_rows_[z]] = static_cast<uint32_t>(z % k_);
            return;
        }
        std::vector<size_t> size(k_, 0);
        for (const uint32_t row : members_) ++size[cluster_[row]];
        for (size_t z = 0; z < zero_rows_.size(); ++z) {
            poll(z);
            uint32_t to = kNone;
            for (uint32_t c = 0; c < k_; ++c)
                if (size[c] > 0 && (to == kNone || size[c] < size[to])) to = c;
            cluster_[zero_rows_[z]] = to;
            ++size[to];
        }
    }

    // Renumbers clusters without gaps: empty clusters get no number.
    void renumber(Partition& result) {
        std::vector<uint32_t> number(std::max<size_t>(k_, 1), kNone);
        for (const uint32_t c : cluster_) number[c] = 0;
        for (auto& c : number)
            if (c != kNone) c = static_cast<uint32_t>(result.n_clusters++);
        for (auto& c : cluster_) c = number[c];
        result.cluster = std::move(cluster_);
    }

    const KMeansParams& params_;
    Rng rng_;
    const Kernels& kernels_;
    Pool& pool_;
    const RowsView rows_;
    std::vector<uint32_t> members_, zero_rows_;  // rows to cluster; rows to distribute afterwards
    std::vector<uint32_t> cluster_;              // for each row
    std::vector<uint32_t> changed_;              // centres changed since the last assignment
    Panel panel_;                                // transposed centres
    Panel similarity_;                           // members x centres, if kept or all needed
    std::vector<float> variance_;                // of the errors of kept similarities
    size_t k_ = 0;
};

}  // namespace

Partition partition_rows(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels,
                         Pool& pool) {
    return KMeans(rows, params, rng, kernels, pool).run();
}

// Centres as sums and as int8, similarities if they are kept, and the moves of an iteration.
double kmeans_bytes(double n, double n_columns, bool dense, const KMeansParams& params) {
    const double k = std::min(static_cast<double>(params.k), n);
    const auto padded = static_cast<double>(padded_lanes(static_cast<size_t>(std::ceil(k))));
    double similarities = padded * n_columns + 4 * n_columns + (n <= kSmallCluster * k ? 4 * n * k : 0);
    if (params.balanced || dense)
        similarities = 4 * n * padded + 4 * n_columns * std::min(double{kMaxLanes}, padded);
    return 4 * k * n_columns + similarities + 40 * n;
}

}  // namespace bonsai

#include "tree/kmeans.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "base/memory.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 128;
constexpr size_t kFeaturesPerBlock = kLaneStep;  // of the centres, turned around in L1
constexpr size_t kBlocksPerTask = 64;
// Similarities are kept from one iteration to the next where clusters are so small on average: a few rows
// that move then leave most centres as they are.
constexpr size_t kSmallCluster = 64;
constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kMaxByteLanes = 128;
// Rounding leaves similarities with an error of a known standard deviation. Two that differ by more than so
// many of these are in the right order; nearer ones are computed in full.
constexpr float kSureDeviations = 12.0f;
// A sum of unit vectors whose squared norm is below this times their number has no direction: they cancel
// out, but for rounding.
constexpr double kCancelled = 1e-12;

// The nearest whole number, up to 2^22.
int32_t nearest(float x) {
    constexpr float shift = 0x1.8p23f;  // adding it leaves the whole number in the low bits
    return std::bit_cast<int32_t>(x + shift) - std::bit_cast<int32_t>(shift);
}

// K sums of rows, each on its own: rows come and go one by one. A centre is its sum times 1 / norm.
struct Centres {
    Centres(size_t k_, size_t n_features)
        : k(k_), pitch((padded_lanes(n_features) / kLaneStep | 1) * kLaneStep), sums(k_ * pitch, 0.0f) {}

    size_t k;
    size_t pitch;  // an odd number of cache lines: equal features of all centres do not compete for a place
    Panel sums;
    std::vector<double> norm2 = std::vector<double>(k, 0.0);
    std::vector<float> inverse = std::vector<float>(k, 1.0f);  // 1 / norm; 0: the centre has vanished

    float* sum(size_t c) { return sums.data() + c * pitch; }
    const float* sum(size_t c) const { return sums.data() + c * pitch; }
};

// Some of the centres feature by feature, to compare rows with them: out[f - begin, l] = feature f of the sum
// of centre lanes[l]; lanes beyond the last are the last again. Features and lanes are taken four by four:
// `begin` and `width` are multiples of four, and `out` has room up to the next one.
void turn(const Centres& centres, std::span<const uint32_t> lanes, size_t width, size_t begin, size_t end,
          float* out) {
    typedef float Four __attribute__((vector_size(16)));
    typedef int32_t Order __attribute__((vector_size(16)));
    for (size_t l = 0; l < width; l += 4) {
        const float* sum[4];
        for (size_t j = 0; j < 4; ++j) {
            sum[j] = centres.sum(lanes[std::min(l + j, lanes.size() - 1)]);
            __builtin_prefetch(sum[j] + end);
        }
        for (size_t f = begin; f < end; f += 4) {
            Four a, b, c, d;
            std::memcpy(&a, sum[0] + f, sizeof a);
            std::memcpy(&b, sum[1] + f, sizeof b);
            std::memcpy(&c, sum[2] + f, sizeof c);
            std::memcpy(&d, sum[3] + f, sizeof d);
            constexpr Order low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5},
                            last = {2, 3, 6, 7};
            const Four ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low),
                       ba = __builtin_shuffle(a, b, high), dc = __builtin_shuffle(c, d, high);
            const Four turned[4] = {__builtin_shuffle(ab, cd, first), __builtin_shuffle(ab, cd, last),
                                    __builtin_shuffle(ba, dc, first), __builtin_shuffle(ba, dc, last)};
            for (size_t j = 0; j < 4; ++j)
                std::memcpy(out + (f - begin + j) * width + l, &turned[j], sizeof turned[j]);
        }
    }
}

// Unit centres in bytes, feature by feature with a scale for each: a quarter of the memory to read, and most
// rows need no more to find their centre.
struct ByteCentres {
    size_t n_features = 0;
    size_t stride = 0;                                  // lanes of all centres, padding included
    std::vector<int8_t, PanelAllocator<int8_t>> bytes;  // parts of up to 128 lanes, each n_features x lanes
    // What a row's value is multiplied by before it is rounded, parts x n_features; and what a sum of such
    // whole numbers times bytes is multiplied by, for each part.
    std::vector<float> scale, unit;

    size_t n_parts() const { return (stride + kMaxByteLanes - 1) / kMaxByteLanes; }
    size_t lanes(size_t part) const { return std::min(kMaxByteLanes, stride - part * kMaxByteLanes); }
    int8_t* row(size_t part, size_t f) {
        return bytes.data() + part * kMaxByteLanes * n_features + f * lanes(part);
    }
};

class KMeans {
  public:
    KMeans(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels, Pool& pool)
        : params_(params), rng_(rng), kernels_(kernels), pool_(pool), rows_(rows) {
        for (size_t i = 0; i < rows.n_rows; ++i) {
            bool zero = true;
            for_each_entry(rows, i, [&](uint32_t, float v) { zero &= v == 0.0f; });
            (zero && !params.balanced ? zero_rows_ : members_).push_back(static_cast<uint32_t>(i));
        }
        cluster_.assign(rows_.n_rows, kNone);
        size_t longest = 1;
        for (const uint32_t i : members_) longest = std::max(longest, rows_.row_size(i));
        // The values of a unit row sum up to no more than the root of their number: times 127, within 32
        // bits.
        largest_value_ = std::min(32767.0f, 0x1p23f / std::sqrt(static_cast<float>(longest)));
    }

    Partition run() {
        Partition result;
        if (!members_.empty()) {
            const std::vector<uint32_t> chosen = choose(std::min(params_.k, members_.size()));
            Centres centres(k_, rows_.n_features);
            changed_.resize(k_);
            std::iota(changed_.begin(), changed_.end(), 0u);
            for (uint32_t c = 0; c < k_; ++c) {  // each the only member of its cluster
                cluster_[members_[chosen[c]]] = c;
                add(members_[chosen[c]], 1.0f, centres.sum(c));
                centres.norm2[c] = norm2(centres, c);
            }
            iterate(centres, result.objective);
            if (!params_.balanced) move_singletons(centres);
        }
        deal_out_zero_rows();
        renumber(result);
        return result;
    }

  private:
    std::vector<uint32_t> choose(size_t k) {
        k_ = k;
        if (!params_.plus_plus) return rng_.sample(members_.size(), k);
        auto chosen = spread_sample(k);
        k_ = chosen.size();
        return chosen;
    }

    // k-means++ for unit vectors: each next centre with a probability that grows with 1 - (similarity to the
    // nearest centre so far). Fewer than k if everything coincides with a centre.
    std::vector<uint32_t> spread_sample(size_t k) {
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
                    // Rounding leaves a row at a tiny distance from its own copy: that is no distance.
                    distance[m] = 1.0 - nearest[m] > 1e-6 ? 1.0 - nearest[m] : 0.0;
                }
            });
            std::fill(centre.begin(), centre.end(), 0.0f);
            if (chosen.size() == k) return chosen;
            const double total = std::accumulate(distance.begin(), distance.end(), 0.0);
            if (total <= 0) return chosen;
            const double target = rng_.uniform() * total;
            double sum = 0;
            uint32_t pick = 0;
            for (size_t m = 0; m < distance.size(); ++m) {
                if (distance[m] == 0) continue;
                pick = static_cast<uint32_t>(m);
                sum += distance[m];
                if (sum > target) break;
            }
            chosen.push_back(pick);
        }
    }

    template <class Fn>
    void for_each_task(Fn&& fn) {
        pool_.run((members_.size() + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, unsigned) {
            fn(task * kRowsPerTask, std::min(members_.size(), (task + 1) * kRowsPerTask));
        });
    }

    // Lloyd's iterations. `centres` end as those that the last assignment was made with.
    void iterate(Centres& centres, std::vector<double>& objective) {
        for (int iteration = 1;; ++iteration) {
            const std::vector<uint32_t> before = cluster_;
            params_.balanced ? assign_balanced(centres) : assign(centres);
            const Moves moves(members_, before, cluster_, k_);
            objective.push_back(total_similarity(centres, moves) / static_cast<double>(members_.size()));
            const bool stalled = iteration > 1 && objective.back() - objective[iteration - 2] < params_.tol;
            if (stalled || iteration == params_.max_iter) return;
            make(moves, centres);
        }
    }

    // Who comes to a centre and who leaves it, centre by centre, rows ascending.
    struct Moves {
        struct Move {
            uint32_t row;
            float sign;
        };
        Moves(std::span<const uint32_t> rows, std::span<const uint32_t> before, std::span<const uint32_t> now,
              size_t k)
            : ptr(k + 1, 0) {
            const auto for_each = [&](auto&& fn) {
                for (const uint32_t i : rows) {
                    if (before[i] == now[i]) continue;
                    if (before[i] != kNone) fn(before[i], Move{i, -1.0f});
                    fn(now[i], Move{i, 1.0f});
                }
            };
            for_each([&](uint32_t c, Move) { ++ptr[c + 1]; });
            std::partial_sum(ptr.begin(), ptr.end(), ptr.begin());
            all.resize(ptr.back());
            std::vector<size_t> at(ptr.begin(), ptr.end() - 1);
            for_each([&](uint32_t c, Move move) { all[at[c]++] = move; });
        }
        std::span<const Move> of(size_t c) const { return {all.data() + ptr[c], ptr[c + 1] - ptr[c]}; }
        std::vector<size_t> ptr;
        std::vector<Move> all;
    };

    // Of all members to the centres that they have been assigned to. A sum's product with itself is that of
    // the members that it is made of.
    double total_similarity(const Centres& centres, const Moves& moves) {
        std::vector<double> product = centres.norm2;
        pool_.run(k_, [&](size_t c, unsigned) {
            for (const auto& move : moves.of(c)) product[c] += move.sign * dot(move.row, centres.sum(c));
        });
        double total = 0;
        for (size_t c = 0; c < k_; ++c) total += product[c] * centres.inverse[c];
        return total;
    }

    // Each centre belongs to one task, and its rows come and go in their order: the same sums for any number
    // of threads.
    void make(const Moves& moves, Centres& centres) {
        std::vector<size_t> size(k_, 0);
        for (const uint32_t i : members_) ++size[cluster_[i]];
        changed_.clear();
        for (uint32_t c = 0; c < k_; ++c)
            if (!moves.of(c).empty()) changed_.push_back(c);
        pool_.run(changed_.size(), [&](size_t task, unsigned) {
            const uint32_t c = changed_[task];
            for (const auto& move : moves.of(c)) add(move.row, move.sign, centres.sum(c));
            const double n2 = centres.norm2[c] = norm2(centres, c);
            const bool has_direction = n2 > kCancelled * static_cast<double>(size[c]);
            if (size[c] == 0)
                centres.inverse[c] = 0;
            else  // without a direction, it resembles nothing
                centres.inverse[c] = has_direction ? static_cast<float>(1 / std::sqrt(n2)) : 1.0f;
        });
    }

    void add(uint32_t row, float sign, float* sum) const {
        for_each_entry(rows_, row, [&](uint32_t f, float v) { sum[f] += sign * v; });
    }

    double dot(uint32_t row, const float* sum) const {
        if (rows_.dense) {
            double total = 0;
            for_each_entry(rows_, row, [&](uint32_t f, float v) { total += double{v} * sum[f]; });
            return total;
        }
        double part[4] = {};  // none waits for the other
        int64_t e = rows_.ptr[row];
        const int64_t end = rows_.ptr[row + 1];
        for (; e + 4 <= end; e += 4)
            for (int64_t j = 0; j < 4; ++j) part[j] += double{rows_.value[e + j]} * sum[rows_.index[e + j]];
        for (; e < end; ++e) part[0] += double{rows_.value[e]} * sum[rows_.index[e]];
        return (part[0] + part[1]) + (part[2] + part[3]);
    }

    double norm2(const Centres& centres, size_t c) const {
        double lane[kLaneStep];
        kernels_.lane_dots(centres.sum(c), centres.sum(c), centres.pitch / kLaneStep, kLaneStep, lane);
        return std::accumulate(lane, lane + kLaneStep, 0.0);
    }

    // All similarities of members to centres, in full, `stride` apart; those that have vanished are at
    // -infinity.
    void compare(const Centres& centres) {
        const size_t stride = padded_lanes(k_);
        similarity_.resize(members_.size() * stride);
        for (size_t first = 0; first < k_; first += kMaxLanes) {
            std::vector<uint32_t> lanes(std::min(kMaxLanes, k_ - first));
            std::iota(lanes.begin(), lanes.end(), static_cast<uint32_t>(first));
            const size_t width = panel_width(lanes.size());
            panel_.resize(padded_lanes(rows_.n_features) * width);
            for_each_block([&](size_t begin, size_t end) {
                turn(centres, lanes, width, begin, end, panel_.data() + begin * width);
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

    // Calls fn for blocks of features.
    template <class Fn>
    void for_each_block(Fn&& fn) {
        constexpr size_t step = kFeaturesPerBlock * kBlocksPerTask;
        pool_.run((rows_.n_features + step - 1) / step, [&](size_t task, unsigned) {
            const size_t last = std::min(rows_.n_features, (task + 1) * step);
            for (size_t begin = task * step; begin < last; begin += kFeaturesPerBlock)
                fn(begin, std::min(last, begin + kFeaturesPerBlock));
        });
    }

    void assign(const Centres& centres) {
        if (rows_.dense) {
            compare(centres);
            const size_t stride = padded_lanes(k_);
            for_each_task([&](size_t begin, size_t end) {
                for (size_t m = begin; m < end; ++m)
                    cluster_[members_[m]] = best_two(similarity_.data() + m * stride).best;
            });
            return;
        }
        const bool keep = members_.size() <= kSmallCluster * k_;
        if (keep) {
            similarity_.resize(members_.size() * k_);
            variance_.resize(members_.size(), 0.0f);
        } else {
            changed_.resize(k_);
            std::iota(changed_.begin(), changed_.end(), 0u);
        }
        round_centres(centres);
        for_each_task([&](size_t begin, size_t end) {
            Rounded scratch;
            std::vector<float> similarity(keep ? 0 : k_);
            for (size_t m = begin; m < end; ++m) {
                float once = 0;
                assign_rounded(centres, members_[m], scratch, keep ? variance_[m] : once,
                               keep ? similarity_.data() + m * k_ : similarity.data());
            }
        });
    }

    struct BestTwo {
        uint32_t best;
        float gap;
    };
    // The most similar centre, the first of equals, and how far the next one lies behind.
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

    // Those that have changed.
    void round_centres(const Centres& centres) {
        bytes_.n_features = rows_.n_features;
        bytes_.stride = padded_lanes(changed_.size());
        bytes_.bytes.resize(rows_.n_features * bytes_.stride);
        bytes_.scale.resize(rows_.n_features * bytes_.n_parts());
        Panel inverse(bytes_.stride, 0.0f);
        for (size_t l = 0; l < changed_.size(); ++l) inverse[l] = centres.inverse[changed_[l]];
        for_each_block([&](size_t begin, size_t end) {
            alignas(64) float sums[kFeaturesPerBlock * kMaxByteLanes];
            for (size_t part = 0; part < bytes_.n_parts(); ++part) {
                const size_t first = part * kMaxByteLanes, width = bytes_.lanes(part);
                const auto lanes = std::span(changed_).subspan(first);
                turn(centres, lanes.first(std::min(width, lanes.size())), width, begin, end, sums);
                for (size_t f = begin; f < end; ++f)
                    bytes_.scale[part * rows_.n_features + f] = kernels_.quantise_int8(
                        sums + (f - begin) * width, inverse.data() + first, width, bytes_.row(part, f));
            }
        });
        bytes_.unit.resize(bytes_.n_parts());
        for (size_t part = 0; part < bytes_.n_parts(); ++part) {
            const std::span<float> scale(bytes_.scale.data() + part * rows_.n_features, rows_.n_features);
            const float most = *std::max_element(scale.begin(), scale.end());
            bytes_.unit[part] = most / largest_value_;
            if (most > 0)
                for (float& s : scale) s *= largest_value_ / most;
        }
    }

    // Buffers of a task.
    struct Rounded {
        std::vector<int16_t> value;
        std::vector<int32_t, PanelAllocator<int32_t>> sum;
    };
    // `similarity` and `variance` are those of the row so far.
    void assign_rounded(const Centres& centres, uint32_t row, Rounded& scratch, float& variance,
                        float* similarity) {
        const auto begin = static_cast<size_t>(rows_.ptr[row]), n = rows_.row_size(row);
        const int32_t* index = rows_.index + begin;
        scratch.value.resize(n);
        for (size_t part = 0; part < bytes_.n_parts(); ++part) {
            const float* scale = bytes_.scale.data() + part * rows_.n_features;
            int64_t squares = 0;
            for (size_t e = 0; e < n; ++e) {
                const int32_t v = nearest(rows_.value[begin + e] * scale[index[e]]);
                scratch.value[e] = static_cast<int16_t>(v);
                squares += v * v;
            }
            scratch.sum.assign(bytes_.lanes(part), 0);
            kernels_.accumulate_int8(bytes_.row(part, 0), bytes_.lanes(part),
                                     reinterpret_cast<const uint32_t*>(index), scratch.value.data(), n,
                                     scratch.sum.data());
            const float unit = bytes_.unit[part];
            const size_t first = part * kMaxByteLanes,
                         last = std::min(first + kMaxByteLanes, changed_.size());
            for (size_t l = first; l < last; ++l) {
                const uint32_t c = changed_[l];
                similarity[c] =
                    centres.inverse[c] > 0 ? unit * static_cast<float>(scratch.sum[l - first]) : -INFINITY;
            }
            // Of whole numbers that stand for anything within a half of them: bytes, and a row's values.
            const float roundings = static_cast<float>(squares) + static_cast<float>(n) * 127 * 127;
            variance = std::max(variance, unit * unit * roundings / 12);
        }
        const BestTwo found = best_two(similarity);
        cluster_[row] = found.best;
        const float sure = kSureDeviations * std::sqrt(2 * variance) + 1e-5f;
        if (found.gap > sure) return;
        double most = -INFINITY;
        for (uint32_t c = 0; c < k_; ++c) {
            if (!(similarity[c] >= similarity[found.best] - sure)) continue;
            const double exact = dot(row, centres.sum(c)) * centres.inverse[c];
            if (exact > most) {
                most = exact;
                cluster_[row] = c;
            }
        }
    }

    // Rows that lose most by not getting their best centre choose first.
    void assign_balanced(const Centres& centres) {
        const size_t n = members_.size(), stride = padded_lanes(k_);
        compare(centres);
        std::vector<float> regret(n);
        for_each_task([&](size_t begin, size_t end) {
            for (size_t m = begin; m < end; ++m) regret[m] = best_two(similarity_.data() + m * stride).gap;
        });
        std::vector<uint32_t> order(n);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return regret[a] > regret[b]; });
        std::vector<size_t> size(k_, 0);
        size_t extras = n % k_;
        const size_t base = n / k_;
        for (const uint32_t m : order) {
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

    // A cluster of one label would be a node with nothing to tell apart.
    void move_singletons(const Centres& centres) {
        std::vector<uint32_t> size(k_, 0), only(k_, kNone);
        for (const uint32_t row : members_) {
            ++size[cluster_[row]];
            only[cluster_[row]] = row;
        }
        for (uint32_t c = 0; c < k_; ++c) {
            if (size[c] != 1) continue;
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

    void deal_out_zero_rows() {
        if (zero_rows_.empty()) return;
        if (members_.empty()) {
            k_ = std::min(params_.k, zero_rows_.size());
            for (size_t z = 0; z < zero_rows_.size(); ++z)
                cluster_[zero_rows_[z]] = static_cast<uint32_t>(z % k_);
            return;
        }
        std::vector<size_t> size(k_, 0);
        for (const uint32_t row : members_) ++size[cluster_[row]];
        for (const uint32_t row : zero_rows_) {
            uint32_t to = kNone;
            for (uint32_t c = 0; c < k_; ++c)
                if (size[c] > 0 && (to == kNone || size[c] < size[to])) to = c;
            cluster_[row] = to;
            ++size[to];
        }
    }

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
    std::vector<uint32_t> members_, zero_rows_;  // rows that take part; rows dealt out afterwards
    std::vector<uint32_t> cluster_;              // for each row
    std::vector<uint32_t> changed_;              // centres that have changed since the last assignment
    ByteCentres bytes_;
    float largest_value_ = 0;      // of a row, as a whole number
    Panel panel_;                  // centres to compare in full with
    Panel similarity_;             // members x centres, if they are kept or all needed at once
    std::vector<float> variance_;  // of those that are kept
    size_t k_ = 0;
};

}  // namespace

Partition partition_rows(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels,
                         Pool& pool) {
    return KMeans(rows, params, rng, kernels, pool).run();
}

}  // namespace bonsai

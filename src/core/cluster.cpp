#include "cluster.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "panel.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 128;
// Rows are multiplied with the centres a block of features at a time, so that the block's panel rows stay in
// L2 while many rows pass; the most frequent features come first, and what lies beyond the last block is too
// rare to gain.
constexpr size_t kRowsPerSweep = 2048;
constexpr size_t kBlockBytes = 384 * 1024;
constexpr size_t kMaxBlocks = 12;
constexpr size_t kFeatureBlocks =
    64;  // fixed, not a number of threads: partial sums are added block by block
constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kMaxByteLanes = 128;
// Rounding to bytes leaves similarities with an error of a known standard deviation. Two that differ by more
// than so many of these are in the right order; nearer ones are computed in full.
constexpr float kSureDeviations = 12.0f;

// K centres as panels of up to 64 lanes. A centre is its sum times 1 / norm, which is kept apart.
struct Centres {
    size_t k = 0;
    std::vector<Panel> panel;
    std::vector<float> inverse;  // 1 / norm; 0: the centre has vanished

    size_t n_panels() const { return (k + kMaxLanes - 1) / kMaxLanes; }
    size_t width(size_t p) const { return panel_width(k - p * kMaxLanes); }
    // Lanes of all panels, padding included.
    size_t stride() const { return (n_panels() - 1) * kMaxLanes + width(n_panels() - 1); }

    Centres(size_t k_, size_t n_features) : k(k_), panel(n_panels()), inverse(k_, 0.0f) {
        for (size_t p = 0; p < n_panels(); ++p) panel[p].assign(n_features * width(p), 0.0f);
    }
    float& at(size_t feature, size_t centre) {
        const size_t p = centre / kMaxLanes;
        return panel[p][feature * width(p) + centre % kMaxLanes];
    }
};

// Unit centres in bytes, feature by feature with a scale for each: a quarter of the memory to read, and most
// rows need no more to find their centre.
struct ByteCentres {
    size_t n_features = 0;
    size_t stride = 0;                                  // lanes of all centres, padding included
    std::vector<int8_t, PanelAllocator<int8_t>> bytes;  // parts of up to 128 lanes, each n_features x lanes
    std::vector<float> scale;                           // parts x n_features

    size_t n_parts() const { return (stride + kMaxByteLanes - 1) / kMaxByteLanes; }
    size_t lanes(size_t part) const { return std::min(kMaxByteLanes, stride - part * kMaxByteLanes); }
    int8_t* row(size_t part, size_t f) {
        return bytes.data() + part * kMaxByteLanes * n_features + f * lanes(part);
    }
};

class KMeans {
  public:
    KMeans(const RowsView& rows, const Columns& columns, const KMeansParams& params, Rng rng,
           const Kernels& kernels, Pool& pool)
        : params_(params), rng_(rng), kernels_(kernels), pool_(pool), columns_(columns), rows_(rows) {
        for (size_t i = 0; i < rows.n_rows; ++i) {
            bool zero = true;
            for_each_entry(rows, i, [&](uint32_t, float v) { zero &= v == 0.0f; });
            (zero && !params.balanced ? zero_rows_ : members_).push_back(static_cast<uint32_t>(i));
        }
        cluster_.assign(rows_.n_rows, kNone);
        split_features();
    }

    Partition run() {
        Partition result;
        if (!members_.empty()) {
            const std::vector<uint32_t> chosen = choose(std::min(params_.k, members_.size()));
            Centres centres(chosen.size(), rows_.n_features);
            for (size_t c = 0; c < chosen.size(); ++c) {
                for_each_entry(rows_, members_[chosen[c]],
                               [&](uint32_t f, float v) { centres.at(f, c) = v; });
                centres.inverse[c] = 1.0f;
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
        if (params_.balanced) similarity_.resize(members_.size() * centres.stride());
        Centres next(k_, rows_.n_features);
        for (int iteration = 1;; ++iteration) {
            params_.balanced ? assign_balanced(centres) : assign(centres);
            std::vector<double> old_dot(k_);
            sum_members(centres, next, old_dot);
            double sum = 0;
            for (size_t c = 0; c < k_; ++c) sum += old_dot[c] * centres.inverse[c];
            objective.push_back(sum / static_cast<double>(members_.size()));
            const bool stalled = iteration > 1 && objective.back() - objective[iteration - 2] < params_.tol;
            if (stalled || iteration == params_.max_iter) return;
            keep_place(centres, next);
            std::swap(centres, next);
        }
    }

    // out = similarities of rows `ids` to all centres, `stride` apart; those that have vanished are at
    // -infinity.
    void similarities(const Centres& centres, std::span<const uint32_t> ids, float* out) const {
        const size_t n = ids.size(), stride = centres.stride();
        std::fill(out, out + n * stride, 0.0f);
        if (rows_.dense) {
            for (size_t p = 0; p < centres.n_panels(); ++p)
                for (size_t r = 0; r < n; ++r)
                    kernels_.margins(rows_, ids[r], ids[r] + 1, centres.panel[p].data(), centres.width(p),
                                     out + r * stride + p * kMaxLanes, stride);
        } else {
            const size_t block = std::max<size_t>(1, kBlockBytes / (4 * centres.stride()));
            std::vector<int64_t> begin(n), cursor(n);
            for (size_t r = 0; r < n; ++r) begin[r] = rows_.ptr[ids[r]];
            for (size_t b = 0; b <= kMaxBlocks; ++b) {
                const size_t end =
                    b == kMaxBlocks ? rows_.n_features : std::min(rows_.n_features, (b + 1) * block);
                for (size_t p = 0; p < centres.n_panels(); ++p) {
                    cursor = begin;
                    kernels_.add_margins(rows_, ids.data(), n, cursor.data(), end, centres.panel[p].data(),
                                         centres.width(p), out + p * kMaxLanes, stride);
                }
                begin = cursor;
                if (end == rows_.n_features) break;
            }
        }
        for (size_t r = 0; r < n; ++r)
            for (size_t c = 0; c < k_; ++c) {
                float& similarity = out[r * stride + c];
                similarity = centres.inverse[c] > 0 ? similarity * centres.inverse[c] : -INFINITY;
            }
    }

    void assign(const Centres& centres) {
        std::vector<uint32_t> open = members_;
        if (!rows_.dense) {
            round_centres(centres);
            std::vector<uint8_t> unsure(members_.size(), 0);
            for_each_task([&](size_t begin, size_t end) {
                Rounded scratch(bytes_.stride);
                for (size_t m = begin; m < end; ++m)
                    unsure[m] = !assign_rounded(centres, members_[m], scratch);
            });
            open.clear();
            for (size_t m = 0; m < members_.size(); ++m)
                if (unsure[m]) open.push_back(members_[m]);
        }
        // Enough sweeps for every thread, each long enough to pay for reading the centres.
        const size_t sweep = std::clamp<size_t>(open.size() / (2 * pool_.threads()) + 1, 64, kRowsPerSweep);
        pool_.run((open.size() + sweep - 1) / sweep, [&](size_t task, unsigned) {
            const std::span<const uint32_t> ids(open.data() + task * sweep,
                                                std::min(sweep, open.size() - task * sweep));
            Panel out(ids.size() * centres.stride());
            similarities(centres, ids, out.data());
            for (size_t r = 0; r < ids.size(); ++r)
                cluster_[ids[r]] = best_two(out.data() + r * centres.stride()).best;
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

    void round_centres(const Centres& centres) {
        bytes_.n_features = rows_.n_features;
        bytes_.stride = centres.stride();
        bytes_.bytes.resize(rows_.n_features * bytes_.stride);
        bytes_.scale.resize(rows_.n_features * bytes_.n_parts());
        Panel inverse(bytes_.stride, 0.0f);
        std::copy(centres.inverse.begin(), centres.inverse.end(), inverse.begin());
        pool_.run(blocks_.size() - 1, [&](size_t b, unsigned) {
            Panel row(bytes_.stride);
            for (size_t f = blocks_[b]; f < blocks_[b + 1]; ++f) {
                for (size_t p = 0; p < centres.n_panels(); ++p)
                    std::copy_n(centres.panel[p].data() + f * centres.width(p), centres.width(p),
                                row.data() + p * kMaxLanes);
                for (size_t part = 0; part < bytes_.n_parts(); ++part) {
                    const size_t first = part * kMaxByteLanes;
                    bytes_.scale[part * rows_.n_features + f] = kernels_.to_bytes(
                        row.data() + first, inverse.data() + first, bytes_.lanes(part), bytes_.row(part, f));
                }
            }
        });
    }

    struct Rounded {
        explicit Rounded(size_t stride) : similarity(stride) {}
        Panel similarity;
        std::vector<float> value;
    };
    // False if two centres are too near to each other to be told apart in bytes.
    bool assign_rounded(const Centres& centres, uint32_t row, Rounded& scratch) {
        const auto begin = static_cast<size_t>(rows_.ptr[row]), n = rows_.row_size(row);
        scratch.value.resize(n);
        std::fill(scratch.similarity.begin(), scratch.similarity.end(), 0.0f);
        double variance = 0;
        for (size_t part = 0; part < bytes_.n_parts(); ++part) {
            const float* scale = bytes_.scale.data() + part * rows_.n_features;
            double squares = 0;
            for (size_t e = 0; e < n; ++e) {
                const float v = scratch.value[e] = rows_.value[begin + e] * scale[rows_.index[begin + e]];
                squares += double{v} * v;
            }
            variance = std::max(variance, squares / 12);  // of a rounding to whole numbers
            kernels_.add_bytes(bytes_.row(part, 0), bytes_.lanes(part),
                               reinterpret_cast<const uint32_t*>(rows_.index + begin), scratch.value.data(),
                               n, scratch.similarity.data() + part * kMaxByteLanes);
        }
        for (size_t c = 0; c < k_; ++c)
            if (centres.inverse[c] == 0) scratch.similarity[c] = -INFINITY;
        const BestTwo found = best_two(scratch.similarity.data());
        cluster_[row] = found.best;
        return found.gap > kSureDeviations * static_cast<float>(std::sqrt(2 * variance)) + 1e-5f;
    }

    // Rows that lose most by not getting their best centre choose first.
    void assign_balanced(const Centres& centres) {
        const size_t n = members_.size(), stride = centres.stride();
        for_each_task([&](size_t begin, size_t end) {
            similarities(centres, {members_.data() + begin, end - begin},
                         similarity_.data() + begin * stride);
        });
        std::vector<float> regret(n);
        for (size_t m = 0; m < n; ++m) {
            float best = -INFINITY, second = -INFINITY;
            for (size_t c = 0; c < k_; ++c) {
                const float s = similarity_[m * stride + c];
                if (s > best) {
                    second = best;
                    best = s;
                } else if (s > second) {
                    second = s;
                }
            }
            regret[m] = k_ > 1 ? best - second : 0.0f;
        }
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

    // Blocks of features with about equally many entries.
    void split_features() {
        blocks_ = {0};
        const double entries =
            rows_.dense ? static_cast<double>(rows_.n_features) : static_cast<double>(columns_.ptr.back());
        for (size_t f = 0; f < rows_.n_features; ++f) {
            const double before =
                rows_.dense ? static_cast<double>(f + 1) : static_cast<double>(columns_.ptr[f + 1]);
            if (before >= entries * static_cast<double>(blocks_.size()) / kFeatureBlocks)
                blocks_.push_back(f + 1);
        }
        if (blocks_.back() != rows_.n_features) blocks_.push_back(rows_.n_features);
    }

    // next = sums of the members of each cluster; old_dot[c] = that sum . the (unscaled) old centre. Each
    // block of features belongs to one task, its entries are added in the order of the rows, and the blocks'
    // dot products in the order of the blocks: the same sums for any number of threads.
    void sum_members(const Centres& centres, Centres& next, std::vector<double>& old_dot) {
        const size_t n_blocks = blocks_.size() - 1;
        std::vector<double> new_dots(n_blocks * k_, 0.0), old_dots(n_blocks * k_, 0.0);
        pool_.run(n_blocks, [&](size_t b, unsigned) {
            for (size_t p = 0; p < next.n_panels(); ++p)
                std::fill(next.panel[p].begin() + static_cast<int64_t>(blocks_[b] * next.width(p)),
                          next.panel[p].begin() + static_cast<int64_t>(blocks_[b + 1] * next.width(p)), 0.0f);
            add_block(next, blocks_[b], blocks_[b + 1]);
            for (size_t p = 0; p < next.n_panels(); ++p) {
                const size_t width = next.width(p), n = blocks_[b + 1] - blocks_[b];
                const float* now = next.panel[p].data() + blocks_[b] * width;
                const float* old = centres.panel[p].data() + blocks_[b] * width;
                double out[kMaxLanes];
                const size_t lanes = std::min(kMaxLanes, k_ - p * kMaxLanes);
                kernels_.lane_dots(now, now, n, width, out);
                std::copy(out, out + lanes, new_dots.begin() + static_cast<int64_t>(b * k_ + p * kMaxLanes));
                kernels_.lane_dots(now, old, n, width, out);
                std::copy(out, out + lanes, old_dots.begin() + static_cast<int64_t>(b * k_ + p * kMaxLanes));
            }
        });
        for (size_t c = 0; c < k_; ++c) {
            double norm2 = 0, dot = 0;
            for (size_t b = 0; b < n_blocks; ++b) {
                norm2 += new_dots[b * k_ + c];
                dot += old_dots[b * k_ + c];
            }
            next.inverse[c] = norm2 > 0 ? static_cast<float>(1.0 / std::sqrt(norm2)) : 0.0f;
            old_dot[c] = dot;
        }
    }

    void add_block(Centres& next, size_t begin, size_t end) {
        if (rows_.dense) {
            for (const uint32_t i : members_) {
                const float* x = rows_.dense_row(i);
                const float scale = rows_.dense_scale(i);
                for (size_t f = begin; f < end; ++f) next.at(f, cluster_[i]) += x[f] * scale;
            }
            return;
        }
        std::vector<float*> lane(k_);  // of the current feature
        std::vector<size_t> width(k_);
        for (size_t c = 0; c < k_; ++c) {
            lane[c] = &next.at(0, c);
            width[c] = next.width(c / kMaxLanes);
        }
        for (size_t f = begin; f < end; ++f)
            for (int64_t e = columns_.ptr[f]; e < columns_.ptr[f + 1]; ++e) {
                const uint32_t c = cluster_[columns_.row[e]];
                // Rows of stored zeros (sums that cancelled) belong to no cluster yet.
                if (c != kNone) lane[c][f * width[c]] += columns_.value[e];
            }
    }

    // A cluster whose members cancel out has no direction: its centre stays where it was.
    void keep_place(const Centres& centres, Centres& next) {
        std::vector<uint8_t> used(k_, 0);
        for (const uint32_t i : members_) used[cluster_[i]] = 1;
        for (size_t c = 0; c < k_; ++c) {
            if (!used[c] || next.inverse[c] > 0) continue;
            const size_t p = c / kMaxLanes, width = next.width(p), lane = c % kMaxLanes;
            for (size_t f = 0; f < rows_.n_features; ++f)
                next.panel[p][f * width + lane] = centres.panel[p][f * width + lane];
            next.inverse[c] = centres.inverse[c];
        }
    }

    // A cluster of one label would be a node with nothing to tell apart.
    void move_singletons(const Centres& centres) {
        std::vector<uint32_t> size(k_, 0), only(k_, kNone);
        for (const uint32_t row : members_) {
            ++size[cluster_[row]];
            only[cluster_[row]] = row;
        }
        Panel out(centres.stride());
        for (uint32_t c = 0; c < k_; ++c) {
            if (size[c] != 1) continue;
            similarities(centres, {&only[c], 1}, out.data());
            uint32_t to = kNone;
            for (uint32_t other = 0; other < k_; ++other)
                if (other != c && size[other] > 0 && (to == kNone || out[other] > out[to])) to = other;
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
    const Columns& columns_;  // centres are summed one panel row at a time, in cache
    const RowsView& rows_;
    std::vector<size_t> blocks_;                 // bounds of the blocks of features
    std::vector<uint32_t> members_, zero_rows_;  // rows that take part; rows dealt out afterwards
    std::vector<uint32_t> cluster_;              // for each row
    ByteCentres bytes_;
    Panel similarity_;  // balanced only: members x centres
    size_t k_ = 0;
};

}  // namespace

Partition partition_rows(const RowsView& rows, const Columns& columns, const KMeansParams& params, Rng rng,
                         const Kernels& kernels, Pool& pool) {
    return KMeans(rows, columns, params, rng, kernels, pool).run();
}

}  // namespace bonsai

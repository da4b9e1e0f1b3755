#include "cluster.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 128;
constexpr uint32_t kNone = ~uint32_t{0};

class KMeans {
  public:
    KMeans(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels, Pool& pool)
        : rows_(rows), params_(params), rng_(rng), kernels_(kernels), pool_(pool) {
        for (size_t i = 0; i < rows.n_rows; ++i) {
            bool zero = true;
            for_each_entry(rows, i, [&](uint32_t, float v) { zero &= v == 0.0f; });
            (zero && !params.balanced ? zero_rows_ : members_).push_back(static_cast<uint32_t>(i));
        }
    }

    Partition run() {
        Partition result;
        cluster_.assign(rows_.n_rows, kNone);
        if (!members_.empty()) {
            choose_centres(std::min(params_.k, members_.size()));
            iterate(result.objective);
            if (!params_.balanced) move_singletons();
        }
        deal_out_zero_rows();
        renumber(result);
        return result;
    }

  private:
    size_t block_begin(size_t block) const { return block * kMaxLanes; }
    size_t block_width(size_t block) const { return panel_width(k_ - block_begin(block)); }
    size_t n_blocks() const { return (k_ + kMaxLanes - 1) / kMaxLanes; }
    float* column(uint32_t centre) {
        return centres_[centre / kMaxLanes].data() + centre % kMaxLanes;
    }

    void choose_centres(size_t k) {
        std::vector<uint32_t> chosen = params_.plus_plus ? spread_sample(k) : rng_.sample(members_.size(), k);
        k_ = chosen.size();
        centres_.resize(n_blocks());
        for (size_t b = 0; b < n_blocks(); ++b) centres_[b].assign(rows_.n_features * block_width(b), 0.0f);
        for (uint32_t c = 0; c < k_; ++c) {
            const size_t width = block_width(c / kMaxLanes);
            float* centre = column(c);
            for_each_entry(rows_, members_[chosen[c]], [&](uint32_t f, float v) { centre[f * width] = v; });
        }
        alive_.assign(k_, 1);
    }

    // k-means++ for unit vectors: each next centre with a probability that grows with 1 - (similarity to the nearest
    // centre so far). Fewer than k if everything coincides with a centre.
    std::vector<uint32_t> spread_sample(size_t k) {
        std::vector<uint32_t> chosen = {static_cast<uint32_t>(rng_.below(members_.size()))};
        std::vector<float> centre(rows_.n_features, 0.0f);
        std::vector<double> distance(members_.size(), 1.0), nearest(members_.size(), -INFINITY);
        while (true) {
            for_each_entry(rows_, members_[chosen.back()], [&](uint32_t f, float v) { centre[f] = v; });
            for_each_member([&](size_t m) {
                double similarity = 0;
                for_each_entry(rows_, members_[m],
                               [&](uint32_t f, float v) { similarity += double{v} * centre[f]; });
                nearest[m] = std::max(nearest[m], similarity);
                // Rounding leaves a row at a tiny distance from its own copy: that is no distance.
                distance[m] = 1.0 - nearest[m] > 1e-6 ? 1.0 - nearest[m] : 0.0;
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
    void for_each_member(Fn&& fn) {
        pool_.run((members_.size() + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, unsigned) {
            const size_t end = std::min(members_.size(), (task + 1) * kRowsPerTask);
            for (size_t m = task * kRowsPerTask; m < end; ++m) fn(m);
        });
    }

    void iterate(std::vector<double>& objective) {
        best_.resize(members_.size());
        if (params_.balanced) similarity_.resize(members_.size() * padded());
        for (int iteration = 1; iteration <= params_.max_iter; ++iteration) {
            assign();
            double sum = 0;
            for (const float similarity : best_) sum += similarity;
            objective.push_back(sum / static_cast<double>(members_.size()));
            if (iteration > 1 && objective.back() - objective[iteration - 2] < params_.tol) return;
            if (iteration < params_.max_iter) update_centres();
        }
    }

    size_t padded() const { return (n_blocks() - 1) * kMaxLanes + block_width(n_blocks() - 1); }

    // Similarities of row to all centres; those that have vanished are at -infinity.
    void similarities(size_t row, float* out) const {
        for (size_t b = 0; b < n_blocks(); ++b)
            kernels_.margins(rows_, row, row + 1, centres_[b].data(), block_width(b), out + block_begin(b), padded());
        for (size_t c = 0; c < k_; ++c)
            if (!alive_[c]) out[c] = -INFINITY;
    }

    void assign() {
        const size_t stride = padded();
        if (params_.balanced) {
            for_each_member([&](size_t m) { similarities(members_[m], similarity_.data() + m * stride); });
            assign_balanced();
            return;
        }
        pool_.run((members_.size() + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, unsigned) {
            std::vector<float> out(stride);
            const size_t end = std::min(members_.size(), (task + 1) * kRowsPerTask);
            for (size_t m = task * kRowsPerTask; m < end; ++m) {
                similarities(members_[m], out.data());
                const auto best = std::max_element(out.begin(), out.begin() + static_cast<int64_t>(k_));
                cluster_[members_[m]] = static_cast<uint32_t>(best - out.begin());
                best_[m] = *best;
            }
        });
    }

    // Rows that lose most by not getting their best centre choose first.
    void assign_balanced() {
        const size_t n = members_.size(), stride = padded();
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
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return regret[a] > regret[b]; });
        std::vector<size_t> size(k_, 0);
        size_t extras = n % k_;
        const size_t base = n / k_;
        for (const uint32_t m : order) {
            uint32_t choice = kNone;
            const float* s = similarity_.data() + m * stride;
            for (uint32_t c = 0; c < k_; ++c)
                if ((size[c] < base || (size[c] == base && extras > 0)) && (choice == kNone || s[c] > s[choice]))
                    choice = c;
            if (size[choice] == base) --extras;
            ++size[choice];
            cluster_[members_[m]] = choice;
            best_[m] = s[choice];
        }
    }

    // Each centre is summed by one worker, over its members in ascending order: the same sum for any number of
    // threads. Other workers write other lanes of the same cache lines, never the same float.
    void update_centres() {
        std::vector<std::vector<uint32_t>> members(k_);
        for (const uint32_t row : members_) members[cluster_[row]].push_back(row);
        pool_.run(k_, [&](size_t c, unsigned) {
            const size_t width = block_width(c / kMaxLanes);
            float* centre = column(static_cast<uint32_t>(c));
            alive_[c] = !members[c].empty();
            if (members[c].empty()) return;
            std::vector<float> sum(rows_.n_features, 0.0f);
            for (const uint32_t row : members[c])
                for_each_entry(rows_, row, [&](uint32_t f, float v) { sum[f] += v; });
            double norm2 = 0;
            for (const float v : sum) norm2 += double{v} * v;
            if (norm2 <= 0) return;
            const auto inverse = static_cast<float>(1.0 / std::sqrt(norm2));
            for (size_t f = 0; f < sum.size(); ++f) centre[f * width] = sum[f] * inverse;
        });
    }

    // A cluster of one label would be a node with nothing to tell apart.
    void move_singletons() {
        std::vector<uint32_t> size(k_, 0), only(k_, kNone);
        for (const uint32_t row : members_) {
            ++size[cluster_[row]];
            only[cluster_[row]] = row;
        }
        std::vector<float> out(padded());
        for (uint32_t c = 0; c < k_; ++c) {
            if (size[c] != 1) continue;
            similarities(only[c], out.data());
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
            for (size_t z = 0; z < zero_rows_.size(); ++z) cluster_[zero_rows_[z]] = static_cast<uint32_t>(z % k_);
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

    const RowsView& rows_;
    const KMeansParams& params_;
    Rng rng_;
    const Kernels& kernels_;
    Pool& pool_;
    std::vector<uint32_t> members_, zero_rows_;  // rows that take part; rows dealt out afterwards
    std::vector<uint32_t> cluster_;              // for each row
    std::vector<float> best_;                    // for each member, similarity to its centre
    std::vector<float> similarity_;              // balanced only: members x centres
    std::vector<std::vector<float>> centres_;    // panels of up to 64 centres
    std::vector<uint8_t> alive_;
    size_t k_ = 0;
};

}  // namespace

Partition partition_rows(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels,
                         Pool& pool) {
    return KMeans(rows, params, rng, kernels, pool).run();
}

}  // namespace bonsai

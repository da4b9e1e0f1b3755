#include "systems/pd_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/random.hpp"

namespace bonsai {
namespace {

constexpr uint32_t kNoSlot = ~uint32_t{0};
constexpr size_t kRowsPerPoll = 256;

// The sums v of one feature, for labels that have one. Sums with a weight, |v| above the threshold, come
// first.
class FeatureSums {
  public:
    struct Sum {
        uint32_t label;
        float v;
    };

    std::span<const Sum> with_weight() const { return {sums_.data(), n_weights_}; }

    void add(uint32_t label, float change, float threshold) {
        uint32_t slot = find(label);
        if (slot == kNoSlot) slot = insert(label);
        sums_[slot].v += change;
        set_side(slot, threshold);
    }
    // Does not change labels without a sum.
    void add_where_known(uint32_t label, float change) {
        if (const uint32_t slot = find(label); slot != kNoSlot) sums_[slot].v += change;
    }
    // Keeps only sums with a weight.
    void drop_others() {
        sums_.resize(n_weights_);
        sums_.shrink_to_fit();
        table_.clear();
        rehash();
    }

  private:
    size_t place(uint32_t label) const { return mix(label + kGolden) & (table_.size() - 1); }

    uint32_t find(uint32_t label) const {
        if (table_.empty()) {
            for (uint32_t s = 0; s < sums_.size(); ++s)
                if (sums_[s].label == label) return s;
            return kNoSlot;
        }
        for (size_t p = place(label);; p = (p + 1) & (table_.size() - 1)) {
            if (table_[p] == kNoSlot) return kNoSlot;
            if (sums_[table_[p]].label == label) return table_[p];
        }
    }
    uint32_t insert(uint32_t label) {
        sums_.push_back({label, 0.0f});
        const auto slot = static_cast<uint32_t>(sums_.size() - 1);
        if (sums_.size() * 2 > table_.size())
            rehash();
        else
            put(slot);
        return slot;
    }
    void put(uint32_t slot) {
        size_t p = place(sums_[slot].label);
        while (table_[p] != kNoSlot) p = (p + 1) & (table_.size() - 1);
        table_[p] = slot;
    }
    void rehash() {
        constexpr size_t few = 8;  // this many are found without a table
        if (sums_.size() <= few) return;
        size_t size = 4 * few;
        while (size < sums_.size() * 2) size *= 2;
        table_.assign(size * (size < sums_.size() * 3 ? 2 : 1), kNoSlot);
        for (uint32_t s = 0; s < sums_.size(); ++s) put(s);
    }
    void set_side(uint32_t slot, float threshold) {
        const bool has_weight = std::abs(sums_[slot].v) > threshold;
        if (has_weight == (slot < n_weights_)) return;
        const uint32_t other = has_weight ? n_weights_++ : --n_weights_;
        if (other == slot) return;
        if (!table_.empty()) {
            size_t p = place(sums_[slot].label), q = place(sums_[other].label);
            while (table_[p] != slot) p = (p + 1) & (table_.size() - 1);
            while (table_[q] != other) q = (q + 1) & (table_.size() - 1);
            std::swap(table_[p], table_[q]);
        }
        std::swap(sums_[slot], sums_[other]);
    }

    std::vector<Sum> sums_;
    std::vector<uint32_t> table_;  // open addressing: slots; empty where there are few
    uint32_t n_weights_ = 0;
};

// Projects v onto v_i ≥ 0 and Σ v_i = sum > 0, in place.
void project_simplex(std::span<double> v, double sum) {
    std::vector<double> order(v.begin(), v.end());
    std::sort(order.begin(), order.end(), std::greater<>());
    double above = 0, t = 0;
    for (size_t n = 0; n < order.size(); ++n) {
        above += order[n];
        const double next = (above - sum) / static_cast<double>(n + 1);
        if (n > 0 && next >= order[n]) break;
        t = next;
    }
    for (double& each : v) each = std::max(each - t, 0.0);
}

class PdSparse {
  public:
    PdSparse(const Dataset& data, const PdSparseParams& params, Control& control)
        : data_(data),
          params_(params),
          control_(control),
          threshold_(static_cast<float>(params.l1)),
          features_(data.x().n_features),
          duals_(data.n_rows()),
          scores_(data.n_labels()),
          is_known_(data.n_labels(), 0) {
        std::vector<uint32_t> order(data.n_rows());
        std::iota(order.begin(), order.end(), 0u);
        Rng(derive(params.seed, 0)).shuffle(order);
        const auto n = static_cast<int64_t>(params.held_out * static_cast<double>(order.size()));
        held_out_.assign(order.begin(), order.begin() + n);
        train_.assign(order.begin() + n, order.end());
        std::erase_if(train_, [&](uint32_t i) {
            const size_t n_positives = data.labels_of(i).size();
            return n_positives == 0 || n_positives == data.n_labels() || !(norm2(i) > 0);
        });
        std::erase_if(held_out_, [&](uint32_t i) { return data.labels_of(i).empty(); });
    }

    SparseWeights train() {
        const auto epochs = static_cast<uint64_t>(params_.max_epochs);
        control_.done = 0;
        control_.total = (params_.refit ? 2 : 1) * epochs * train_.size();
        take_best();
        run_epochs();
        control_.done = epochs * train_.size();
        if (params_.refit) {
            for (FeatureSums& feature : features_) feature.drop_others();
            grows_ = false;
            threshold_ = 0;
            run_epochs();
            control_.done = control_.total.load();
        }
        return std::move(best_);
    }

  private:
    struct Dual {
        uint32_t label;
        double value;  // above 0 for a positive, below for a negative
    };

    double norm2(size_t i) const {
        double sum = 0;
        for_each_entry(data_.x(), i, [&](uint32_t, float v) {
            const double x = v * data_.factors()[i];
            sum += x * x;
        });
        return sum;
    }

    void run_epochs() {
        int since_best = 0;
        for (int epoch = 0; epoch < params_.max_epochs && since_best < params_.patience; ++epoch) {
            Rng rng(derive(params_.seed, ++n_epochs_));
            rng.shuffle(train_);
            for (size_t r = 0; r < train_.size(); ++r) {
                if (r % kRowsPerPoll == 0) control_.check();
                update(train_[r], rng);
                ++control_.done;
            }
            since_best = take_best() ? 0 : since_best + 1;
        }
    }

    // Scores of all labels.
    void score(size_t i) {
        std::fill(scores_.begin(), scores_.end(), 0.0f);
        for_each_entry(data_.x(), i, [&](uint32_t f, float v) {
            const float x = v * data_.factors()[i];
            for (const auto& sum : features_[f].with_weight()) scores_[sum.label] += x * weight_of(sum.v);
        });
    }

    // Appends to the duals the n labels with the highest scores that are not among them. The start is random,
    // since at first all scores are equal.
    void add_negatives(std::vector<Dual>& duals, size_t n, Rng& rng) {
        for (const Dual& dual : duals) is_known_[dual.label] = 1;
        const auto n_labels = static_cast<uint32_t>(scores_.size());
        const auto start = static_cast<uint32_t>(rng.below(n_labels));
        const auto lower = [&](uint32_t a, uint32_t b) { return scores_[a] > scores_[b]; };
        best_labels_.clear();  // a heap, the lowest first
        for (uint32_t k = 0; k < n_labels; ++k) {
            const uint32_t label = k + start < n_labels ? k + start : k + start - n_labels;
            if (is_known_[label]) continue;
            if (best_labels_.size() == n) {
                if (!(scores_[label] > scores_[best_labels_[0]])) continue;
                std::pop_heap(best_labels_.begin(), best_labels_.end(), lower);
                best_labels_.pop_back();
            }
            best_labels_.push_back(label);
            std::push_heap(best_labels_.begin(), best_labels_.end(), lower);
        }
        for (const Dual& dual : duals) is_known_[dual.label] = 0;
        for (const uint32_t label : best_labels_) duals.push_back({label, 0});
    }

    // Updates the duals of a row: adds the most violating negatives, as many as there are positives, then
    // takes a projected step on all duals. The squared norm of the row bounds the curvature.
    void update(size_t i, Rng& rng) {
        score(i);
        auto& duals = duals_[i];
        if (duals.empty())
            for (const int32_t label : data_.labels_of(i)) duals.push_back({static_cast<uint32_t>(label), 0});
        const size_t n_positives = data_.labels_of(i).size();
        add_negatives(duals, n_positives, rng);
        const double q = norm2(i);
        positives_.clear();
        negatives_.clear();
        for (size_t d = 0; d < duals.size(); ++d) {
            const double z = scores_[duals[d].label];
            if (d < n_positives)
                positives_.push_back(duals[d].value - z / q);
            else
                negatives_.push_back(-duals[d].value + (1 + z) / q);
        }
        const double bound = params_.c * double{data_.weight(i)};
        (params_.largest ? project_sums : project_pairs)(positives_, negatives_, bound);
        changes_.clear();
        for (size_t d = 0; d < duals.size(); ++d) {
            const double value = d < n_positives ? positives_[d] : -negatives_[d - n_positives];
            if (value != duals[d].value) changes_.push_back({duals[d].label, value - duals[d].value});
            duals[d].value = value;
        }
        const auto first_negative = duals.begin() + static_cast<int64_t>(n_positives);
        duals.erase(
            std::remove_if(first_negative, duals.end(), [](const Dual& dual) { return dual.value == 0; }),
            duals.end());
        if (changes_.empty()) return;
        for_each_entry(data_.x(), i, [&](uint32_t f, float v) {
            const double x = v * data_.factors()[i];
            for (const Dual& change : changes_) {
                const auto amount = static_cast<float>(x * change.value);
                if (grows_)
                    features_[f].add(change.label, amount, threshold_);
                else
                    features_[f].add_where_known(change.label, amount);
            }
        });
    }

    // Keeps the weights if their precision at 1 on the held-out rows is higher than before. Without such
    // rows, keeps the last weights.
    bool take_best() {
        size_t n_right = 0;
        for (const uint32_t i : held_out_) {
            control_.check();
            score(i);
            const auto top = std::max_element(scores_.begin(), scores_.end()) - scores_.begin();
            const auto labels = data_.labels_of(i);
            n_right += std::binary_search(labels.begin(), labels.end(), static_cast<int32_t>(top));
        }
        if (has_best_ && !held_out_.empty() && n_right <= n_right_) return false;
        n_right_ = n_right;
        has_best_ = true;
        best_ = weights();
        return true;
    }

    SparseWeights weights() const {
        std::vector<SparseClassifier> classifiers(data_.n_labels());
        for (uint32_t f = 0; f < features_.size(); ++f)
            for (const auto& sum : features_[f].with_weight()) {
                classifiers[sum.label].feature.push_back(f);
                classifiers[sum.label].value.push_back(weight_of(sum.v));
            }
        SparseWeights all;
        for (SparseClassifier& classifier : classifiers) {
            classifier.n_iter = n_epochs_;
            all.add(std::exchange(classifier, {}), data_);
        }
        return all;
    }

    // The weight of a sum that has one.
    float weight_of(float v) const { return v > 0 ? v - threshold_ : v + threshold_; }

    const Dataset& data_;
    const PdSparseParams& params_;
    Control& control_;
    float threshold_;
    bool grows_ = true;  // whether further weights may become non-zero
    int n_epochs_ = 0;
    std::vector<FeatureSums> features_;
    std::vector<std::vector<Dual>> duals_;  // per row: its positives, then its active negatives
    std::vector<float> scores_;             // per label, for one row
    std::vector<uint8_t> is_known_;         // per label: whether the row has a dual for it
    std::vector<uint32_t> train_, held_out_, best_labels_;
    std::vector<double> positives_, negatives_;
    std::vector<Dual> changes_;
    SparseWeights best_;
    bool has_best_ = false;
    size_t n_right_ = 0;  // held-out rows whose best label is right
};

}  // namespace

// The projection is a_p − t and b_n + t, clipped at the bounds, with the t that makes the sums equal. The
// difference of the sums decreases with t and is linear between the points where a bound is reached.
void project_pairs(std::span<double> a, std::span<double> b, double c) {
    const auto difference = [&](double t) {
        double sum = 0;
        for (const double v : a) sum += std::clamp(v - t, 0.0, c);
        for (const double v : b) sum -= std::max(v + t, 0.0);
        return sum;
    };
    std::vector<double> breaks;
    for (const double v : a) breaks.insert(breaks.end(), {v - c, v});
    for (const double v : b) breaks.push_back(-v);
    std::sort(breaks.begin(), breaks.end());
    const auto next =
        std::partition_point(breaks.begin(), breaks.end(), [&](double t) { return difference(t) >= 0; });
    double t = next == breaks.begin() ? *next : *(next - 1), slope = 0;
    for (const double v : a) slope += v - c <= t && t < v;
    for (const double v : b) slope += -v <= t;
    if (slope > 0) t += difference(t) / slope;
    for (double& v : a) v = std::clamp(v - t, 0.0, c);
    for (double& v : b) v = std::max(v + t, 0.0);
}

// Either the bound is inactive, or both sums are c.
void project_sums(std::span<double> a, std::span<double> b, double c) {
    const std::vector<double> given_a(a.begin(), a.end()), given_b(b.begin(), b.end());
    project_pairs(a, b, c);
    if (std::accumulate(a.begin(), a.end(), 0.0) < c) return;
    std::copy(given_a.begin(), given_a.end(), a.begin());
    std::copy(given_b.begin(), given_b.end(), b.begin());
    project_simplex(a, c);
    project_simplex(b, c);
}

SparseWeights train_pd_sparse(const Dataset& data, const PdSparseParams& params, Control& control) {
    return PdSparse(data, params, control).train();
}

}  // namespace bonsai

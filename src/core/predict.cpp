#include "predict.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>

#include "kernels.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 2048;  // many rows share a node then, and its weights are read once for all
constexpr size_t kMarginBytes = 64 << 20;  // for the margins of labels, of several rows
constexpr size_t kFewVisits = 2;           // to a node: not worth unpacking it
constexpr size_t kWalkCost = 16;           // of one look-up, in bytes of a block to walk through
constexpr size_t kLookupCost = 24;         // of one look-up, in bytes to unpack

float log_score(Loss loss, float margin) {
    if (loss == Loss::logistic) return std::min(margin, 0.0f) - std::log1p(std::exp(-std::abs(margin)));
    const float gap = 1.0f - margin, slack = gap > 0.0f ? gap : 0.0f;
    return -slack * slack;
}

// Far beyond any margin that training produces. A file may hold scales that overflow; with NaN and infinities
// kept out, scores stay numbers, and numbers can be sorted.
float bounded(float margin) {
    constexpr float huge = 1e15f;
    return margin > -huge ? std::min(margin, huge) : -huge;
}

// A node that a row may go to.
struct Candidate {
    size_t node;
    float score;                                    // sum of the log scores along the path
    float margin;                                   // its own
    bool operator<(const Candidate& other) const {  // better first
        if (score != other.score) return score > other.score;
        if (margin != other.margin) return margin > other.margin;
        return node < other.node;
    }
};

// A leaf that a row has reached; its labels' margins begin at `first` of the task's margins.
struct Leaf {
    size_t node;
    size_t first;
    float score;
};

// What one tree says about a label.
struct Entry {
    uint32_t label;
    float score;
    float margin;
};

// A label's standing over the trees seen so far: log-sum-exp of its scores, kept as (largest, sum of exp
// beside it).
struct Standing {
    double largest = -std::numeric_limits<double>::infinity();
    double sum = 0;
    double margin = 0;  // summed over trees

    void add(float score, float own_margin) {
        if (score > largest) {
            sum = sum * std::exp(largest - score) + 1.0;
            largest = score;
        } else {
            sum += std::exp(score - largest);
        }
        margin += own_margin;
    }
};

// The k largest of the numbers offered.
class Largest {
  public:
    void clear(size_t k) {
        k_ = k;
        heap_.clear();
    }
    // The k-th, or -infinity if there were fewer.
    float least() const {
        return heap_.size() == k_ ? heap_.front() : -std::numeric_limits<float>::infinity();
    }
    void offer(std::span<const float> numbers) {
        constexpr size_t chunk = 16;  // compared at once; in most of them nothing is large enough
        while (!numbers.empty()) {
            const auto part = numbers.first(std::min(chunk, numbers.size()));
            const float bar = least();
            int larger = 0;
            for (const float x : part) larger |= x > bar;
            if (larger)
                for (const float x : part) add(x);
            numbers = numbers.subspan(part.size());
        }
    }

  private:
    void add(float x) {
        if (heap_.size() < k_) {
            heap_.push_back(x);
        } else if (x > heap_.front()) {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
            heap_.back() = x;
        } else {
            return;
        }
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }

    size_t k_ = 0;
    std::vector<float> heap_;  // the smallest on top
};

// exp(x) to 1e-5, for x in [-87, 80]; beyond, the value at the nearer end. Made to be vectorised.
float rough_exp(float x) {
    x = x > -87.0f ? x : -87.0f;
    x = x < 80.0f ? x : 80.0f;
    constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, in the low bits
    const float t = x * 1.44269504f, shifted = t + shift, f = t - (shifted - shift);
    const float two_to_f =
        1.0f + f * (0.693147182f +
                    f * (0.240226462f + f * (0.0555032886f + f * (0.00961812911f + f * 0.00133335581f))));
    const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(shift);
    return two_to_f * std::bit_cast<float>((whole + 127) << 23);
}

struct Ranked {
    double score;
    double margin;
    uint32_t label;
    bool operator<(const Ranked& other) const {  // better first
        if (score != other.score) return score > other.score;
        if (margin != other.margin) return margin > other.margin;
        return label < other.label;
    }
};

// To 16 significant bits. Times a stored weight of 8 bits that is exact in a float, so that a multiplication
// and addition give the same sums whether the machine fuses them or not: scores are the same on all of them.
float shortened(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits + 0x80) & ~uint32_t{0xff});
}

// The rows of one task, as lists of (feature, value), ready to be looked up node by node.
struct Block {
    std::vector<size_t> ptr;
    std::vector<uint32_t> feature;
    std::vector<float> value;

    void read(const RowsView& x, size_t begin, size_t end, bool normalize) {
        ptr.assign(1, 0);
        feature.clear();
        value.clear();
        for (size_t i = begin; i < end; ++i) {
            const double norm = normalize ? row_norm(x, i) : 1.0;
            const float factor = norm > kSmallestNorm ? static_cast<float>(1.0 / norm) : 1.0f;
            for_each_entry(x, i, [&](uint32_t f, float v) {
                if (v == 0.0f) return;
                feature.push_back(f);
                value.push_back(shortened(v * factor));
            });
            ptr.push_back(feature.size());
        }
    }
    size_t size() const { return ptr.size() - 1; }
};

// One worker's search; the buffers live as long as the call.
class Searcher {
  public:
    Searcher(const Forest& forest, const Forest* ranker, const PredictParams& params)
        : forest_(forest),
          ranker_(ranker),
          a_(forest.arrays()),
          params_(params),
          beam_width_(params.beam == 0 ? std::numeric_limits<size_t>::max() : params.beam),
          kernels_(kernels()),
          // Not a vector: of memory that the system hands out as zeros, only what is used costs time.
          totals_(static_cast<float*>(std::calloc(forest.n_labels() + 1, sizeof(float))), &std::free) {
        if (!totals_) throw std::bad_alloc();
    }

    void run(const RowsView& x, size_t begin, size_t end, int32_t* ids, float* scores) {
        block_.read(x, begin, end, params_.normalize);
        beam_.resize(block_.size());
        arrivals_.clear();
        for (size_t t = 0; t < forest_.n_trees(); ++t) search_tree(t);
        std::stable_sort(arrivals_.begin(), arrivals_.end(),
                         [](const Visit& a, const Visit& b) { return a.row < b.row; });
        if (ranker_)
            rank_by_ranker(ids + begin * params_.k, scores + begin * params_.k);
        else
            rank_by_leaves(ids + begin * params_.k, scores + begin * params_.k);
    }

  private:
    struct Visit {
        size_t node;
        uint32_t row;
        float score;
    };

    // Level by level, down to the leaves; all rows of the block that reach a node are served together.
    void search_tree(size_t tree) {
        const auto root = static_cast<size_t>(a_.tree_ptr[tree]);
        visits_.clear();
        for (uint32_t r = 0; r < block_.size(); ++r)
            if (block_.ptr[r] < block_.ptr[r + 1]) visits_.push_back({root, r, 0.0f});
        while (!visits_.empty()) {
            for_each_node(visits_, [&](size_t node, size_t begin, size_t end) {
                const std::span<const Visit> mine(&visits_[begin], end - begin);
                if (a_.is_leaf[node]) {
                    arrivals_.insert(arrivals_.end(), mine.begin(), mine.end());
                    return;
                }
                const int32_t* children = a_.children.data() + a_.child_ptr[node];
                score_children(node, mine, [&](size_t i, size_t from, std::span<const float> margins) {
                    advance(mine[i], root, {children + from, margins.size()}, margins.data());
                });
            });
            visits_.clear();
            for (uint32_t r = 0; r < beam_.size(); ++r) {
                for (const Candidate& c : beam_[r]) visits_.push_back({c.node, r, c.score});
                beam_[r].clear();
            }
            std::sort(visits_.begin(), visits_.end(), [](const Visit& a, const Visit& b) {
                return a.node != b.node ? a.node < b.node : a.row < b.row;
            });
        }
    }

    // fn(node, begin, end) for each run of visits to the same node.
    template <class Fn>
    static void for_each_node(std::span<const Visit> visits, Fn&& fn) {
        for (size_t begin = 0, end; begin < visits.size(); begin = end) {
            for (end = begin + 1; end < visits.size() && visits[end].node == visits[begin].node;) ++end;
            fn(visits[begin].node, begin, end);
        }
    }

    void rank_by_leaves(int32_t* ids, float* scores) {
        // As many rows at once as have room for the margins of their labels.
        for (size_t row = 0, at = 0; row < block_.size();) {
            const size_t first_row = row, first = at;
            for (size_t n = 0; row < block_.size(); ++row) {
                size_t after = at, more = 0;
                for (; after < arrivals_.size() && arrivals_[after].row == row; ++after)
                    more += n_children(arrivals_[after].node);
                if (row > first_row && (n + more) * sizeof(float) > kMarginBytes) break;
                at = after;
                n += more;
            }
            score_labels({arrivals_.begin() + first, arrivals_.begin() + at});
            size_t leaf = first;
            for (size_t r = first_row; r < row; ++r) {
                const size_t from = leaf;
                while (leaf < at && arrivals_[leaf].row == r) ++leaf;
                rank({leaves_.begin() + from - first, leaves_.begin() + leaf - first}, ids + r * params_.k,
                     scores + r * params_.k);
            }
        }
    }

    // The margins of the labels of all leaves that a few rows have arrived at: leaves_, in the same order.
    void score_labels(std::span<const Visit> arrivals) {
        leaves_.clear();
        size_t n = 0;
        order_.clear();
        for (const Visit& v : arrivals) {
            order_.push_back({v.node, static_cast<uint32_t>(order_.size())});
            leaves_.push_back({v.node, n, v.score});
            n += n_children(v.node);
        }
        margins_.resize(n);
        std::sort(order_.begin(), order_.end());
        visits_.clear();
        for (const auto& [node, at] : order_) visits_.push_back(arrivals[at]);
        for_each_node(visits_, [&](size_t node, size_t begin, size_t end) {
            score_children(node, {&visits_[begin], end - begin},
                           [&](size_t i, size_t from, std::span<const float> margins) {
                               std::copy(margins.begin(), margins.end(),
                                         margins_.begin() + leaves_[order_[begin + i].second].first + from);
                           });
        });
    }

    // fn(i, c, margins of the children from the c-th on) for each visit i, block by block.
    template <class Fn>
    void score_children(size_t node, std::span<const Visit> visits, Fn&& fn) {
        const size_t n = n_children(node);
        for (size_t from = 0; from < n; from += kBlockChildren) score_block(forest_, node, from, visits, fn);
    }

    // The same for the block that holds the children from `from` on.
    template <class Fn>
    void score_block(const Forest& forest, size_t node, size_t from, std::span<const Visit> visits, Fn&& fn) {
        const ForestArrays& a = forest.arrays();
        const auto first = static_cast<size_t>(a.child_ptr[node]) + from;
        const size_t width = std::min(kBlockChildren, static_cast<size_t>(a.child_ptr[node + 1]) - first);
        const float* scale = a.scale.data() + first;
        const float* bias = a.bias.data() + first;
        size_t lookups = 0;
        for (const Visit& v : visits) lookups += block_.ptr[v.row + 1] - block_.ptr[v.row];
        // Unpacking costs a pass over the block; each look-up without it reads a bucket.
        const PackedBlock packed =
            forest.block(static_cast<size_t>(a.block_ptr[node]) + from / kBlockChildren);
        const bool unpacked = visits.size() > kFewVisits && lookups * kLookupCost > packed.n_bytes();
        if (unpacked) unpack(packed, width);
        for (size_t i = 0; i < visits.size(); ++i) {
            alignas(64) float margin[kBlockChildren] = {};
            const size_t row = visits[i].row, n_lookups = block_.ptr[row + 1] - block_.ptr[row];
            if (unpacked)
                add_unpacked(row, margin);
            else if (n_lookups * kWalkCost > packed.n_bytes())
                add_walked(row, packed, margin);
            else
                add_packed(row, packed, margin);
            for (size_t c = 0; c < width; ++c) margin[c] = bounded(margin[c] * scale[c] + bias[c]);
            fn(i, from, std::span<const float>(margin, width));
        }
        if (unpacked) forget_slots();
    }

    // A block with all its zeros: panel_[place * panel_width_ + child]. slot_[f] is the place of feature f,
    // plus one. Safe on any contents: what is out of range has no place, or lands in another child's.
    void unpack(const PackedBlock& block, size_t n_children) {
        const size_t width = panel_width_ = (n_children + kLaneStep - 1) / kLaneStep * kLaneStep;
        slot_.resize(forest_.n_features(), 0);
        placed_.clear();
        size_t n_places = 0;
        block.for_each_record([&](size_t bucket, const Record& r) {
            const size_t needed = (n_places + r.n) * width + kBlockChildren;
            if (panel_.size() < needed) panel_.resize(needed);
            StoredWeight* row = panel_.data() + n_places * width;
            StoredWeight* const end = row + r.n * width;
            std::fill(row, end, StoredWeight{0});
            for (size_t w = 0; w < r.n_weights && row < end; ++w) {
                row[r.child[w] & ~kLastWeight] = r.weight[w];
                row += r.child[w] & kLastWeight ? width : 0;
            }
            for (size_t i = 0; i < r.n; ++i) {
                ++n_places;
                const size_t f = block.feature(bucket, r, i);
                if (f >= slot_.size()) continue;
                slot_[f] = static_cast<uint32_t>(n_places);
                placed_.push_back(static_cast<uint32_t>(f));
            }
        });
    }
    void forget_slots() {
        for (const uint32_t f : placed_) slot_[f] = 0;
    }

    // All three add the row's features in the same order: scores do not depend on the row's companions.
    void add_unpacked(size_t row, float* margin) {
        const size_t begin = block_.ptr[row], end = block_.ptr[row + 1];
        places_.resize(end - begin);
        values_.resize(end - begin);
        size_t n = 0;
        for (size_t e = begin; e < end; ++e) {
            const uint32_t slot = slot_[block_.feature[e]];
            places_[n] = slot - 1;
            values_[n] = block_.value[e];
            n += slot != 0;
        }
        kernels_.add_bytes(panel_.data(), panel_width_, places_.data(), values_.data(), n, margin);
    }
    // The seven bits of a child cannot point beyond the 128 margins: no file can make this write elsewhere.
    void add_packed(size_t row, const PackedBlock& block, float* margin) const {
        constexpr size_t ahead = 8;
        const std::span<const uint32_t> features(block_.feature.data() + block_.ptr[row],
                                                 block_.ptr[row + 1] - block_.ptr[row]);
        const float* value = block_.value.data() + block_.ptr[row];
        for (size_t step = 0; step < features.size() + 2 * ahead; ++step) {
            if (step < features.size()) block.expect_offset(features[step]);
            if (step >= ahead && step - ahead < features.size()) block.expect_record(features[step - ahead]);
            if (step < 2 * ahead) continue;
            const FeatureWeights found = block.find(features[step - 2 * ahead]);
            const float v = value[step - 2 * ahead];
            for (size_t w = 0; w < found.n; ++w)
                margin[found.child[w] & ~kLastWeight] += v * static_cast<float>(found.weight[w]);
        }
    }

    // For a block that is not much larger than the row: through all its features instead of looking up the
    // row's.
    void add_walked(size_t row, const PackedBlock& block, float* margin) {
        const size_t begin = block_.ptr[row], end = block_.ptr[row + 1];
        row_value_.resize(forest_.n_features(), 0.0f);
        for (size_t e = begin; e < end; ++e) row_value_[block_.feature[e]] = block_.value[e];
        block.for_each_record([&](size_t bucket, const Record& r) {
            for (size_t i = 0, w = 0; i < r.n; ++i) {
                const size_t f = block.feature(bucket, r, i);
                const float v = f < row_value_.size() ? row_value_[f] : 0.0f;
                for (bool last = false; !last && w < r.n_weights; ++w) {
                    last = r.child[w] & kLastWeight;
                    if (v != 0.0f) margin[r.child[w] & ~kLastWeight] += v * static_cast<float>(r.weight[w]);
                }
            }
        });
        for (size_t e = begin; e < end; ++e) row_value_[block_.feature[e]] = 0.0f;
    }

    // The best children so far of all nodes of a level, as a heap with the worst on top.
    void advance(const Visit& v, size_t root, std::span<const int32_t> children, const float* margin) {
        auto& beam = beam_[v.row];
        for (size_t c = 0; c < children.size(); ++c) {
            const Candidate candidate{root + static_cast<size_t>(children[c]),
                                      v.score + log_score(params_.loss, margin[c]), margin[c]};
            if (beam.size() < beam_width_) {
                beam.push_back(candidate);
                std::push_heap(beam.begin(), beam.end());
            } else if (candidate < beam.front()) {
                std::pop_heap(beam.begin(), beam.end());
                beam.back() = candidate;
                std::push_heap(beam.begin(), beam.end());
            }
        }
    }

    // The mean over trees of exp(score), a tree that does not reach the label counting 0, kept on the log
    // scale. Of all labels only the few that can be among the k best are looked at with care.
    void rank(std::span<const Leaf> leaves, int32_t* ids, float* scores) {
        const double log_trees = std::log(static_cast<double>(forest_.n_trees()));
        choose(leaves, score_all(leaves));
        std::stable_sort(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.label < b.label; });
        ranked_.clear();
        for (size_t begin = 0, end; begin < entries_.size(); begin = end) {
            const uint32_t label = entries_[begin].label;
            Standing standing;
            for (end = begin; end < entries_.size() && entries_[end].label == label; ++end)
                standing.add(entries_[end].score, entries_[end].margin);
            ranked_.push_back({standing.largest + std::log(standing.sum) - log_trees,
                               standing.margin / static_cast<double>(end - begin), label});
        }
        write_best(ids, scores);
    }

    // A block of the ranker that holds a candidate of a row; its margins are the n-th of margins_.
    struct Need {
        uint32_t block;
        uint32_t row;
    };

    // As many rows at once as have room for the margins of the blocks that hold their candidates.
    void rank_by_ranker(int32_t* ids, float* scores) {
        constexpr size_t room = kMarginBytes / (kBlockChildren * sizeof(float));
        const size_t n_blocks = (ranker_->n_children(0) + kBlockChildren - 1) / kBlockChildren;
        margins_at_.resize(n_blocks, kNowhere);
        for (size_t row = 0, at = 0; row < block_.size();) {
            const size_t first_row = row, first = at;
            needs_.clear();
            needs_ptr_.assign(1, 0);
            for (; row < block_.size(); ++row) {
                if (row > first_row && needs_.size() + n_blocks > room) break;
                const size_t from = at;
                while (at < arrivals_.size() && arrivals_[at].row == row) ++at;
                for_each_candidate({&arrivals_[from], at - from}, [&](uint32_t, uint32_t place, float) {
                    if (uint32_t& seen = margins_at_[place / kBlockChildren]; seen == kNowhere) {
                        seen = 0;
                        needs_.push_back(
                            {static_cast<uint32_t>(place / kBlockChildren), static_cast<uint32_t>(row)});
                    }
                });
                for (size_t n = needs_ptr_.back(); n < needs_.size(); ++n)
                    margins_at_[needs_[n].block] = kNowhere;
                needs_ptr_.push_back(needs_.size());
            }
            score_needs();
            for (size_t r = first_row, leaf = first; r < row; ++r) {
                const size_t from = leaf;
                while (leaf < at && arrivals_[leaf].row == r) ++leaf;
                const size_t begin = needs_ptr_[r - first_row], end = needs_ptr_[r - first_row + 1];
                for (size_t n = begin; n < end; ++n) margins_at_[needs_[n].block] = static_cast<uint32_t>(n);
                rank_candidates({&arrivals_[from], leaf - from}, ids + r * params_.k, scores + r * params_.k);
                for (size_t n = begin; n < end; ++n) margins_at_[needs_[n].block] = kNowhere;
            }
        }
    }

    // fn(label, its place in the ranker, score of the leaf) for all labels of leaves that the ranker knows.
    template <class Fn>
    void for_each_candidate(std::span<const Visit> leaves, Fn&& fn) const {
        for (const Visit& leaf : leaves)
            for (int64_t c = a_.child_ptr[leaf.node]; c < a_.child_ptr[leaf.node + 1]; ++c) {
                const auto label = static_cast<uint32_t>(a_.children[c]);
                if (const uint32_t place = ranker_->place(label); place != kNowhere)
                    fn(label, place, leaf.score);
            }
    }

    void score_needs() {
        margins_.resize(needs_.size() * kBlockChildren);
        order_.clear();
        for (size_t n = 0; n < needs_.size(); ++n)
            order_.push_back({needs_[n].block, static_cast<uint32_t>(n)});
        std::sort(order_.begin(), order_.end());
        visits_.clear();
        for (const auto& [block, n] : order_) visits_.push_back({block, needs_[n].row, 0.0f});
        for_each_node(visits_, [&](size_t block, size_t begin, size_t end) {
            score_block(*ranker_, 0, block * kBlockChildren, {&visits_[begin], end - begin},
                        [&](size_t i, size_t, std::span<const float> margins) {
                            std::copy(margins.begin(), margins.end(),
                                      margins_.begin() + order_[begin + i].second * kBlockChildren);
                        });
        });
    }

    // By the label's own score times the path's, the mean over trees, to the given power.
    void rank_candidates(std::span<const Visit> leaves, int32_t* ids, float* scores) {
        float top = -std::numeric_limits<float>::infinity();
        for (const Visit& leaf : leaves) top = std::max(top, leaf.score);
        candidates_.clear();
        for_each_candidate(leaves, [&](uint32_t label, uint32_t place, float score) {
            float& total = totals_[label];
            if (total == 0) candidates_.push_back({label, place});
            total += std::max(std::exp(score - top), std::numeric_limits<float>::min());
        });
        const float mean = top - static_cast<float>(std::log(static_cast<double>(forest_.n_trees())));
        scores_.clear();
        for (const auto& [label, place] : candidates_) {
            const float margin =
                margins_[margins_at_[place / kBlockChildren] * kBlockChildren + place % kBlockChildren];
            const float path = params_.path_power > 0 ? std::log(totals_[label]) + mean : 0.0f;
            scores_.push_back(log_score(params_.loss, margin) + params_.path_power * path);
            totals_[label] = 0;
        }
        largest_.clear(params_.k);
        largest_.offer(scores_);
        ranked_.clear();
        for (size_t c = 0; c < candidates_.size(); ++c) {
            if (scores_[c] < largest_.least()) continue;
            const auto [label, place] = candidates_[c];
            ranked_.push_back(
                {scores_[c],
                 margins_[margins_at_[place / kBlockChildren] * kBlockChildren + place % kBlockChildren],
                 label});
        }
        write_best(ids, scores);
    }

    // The k best of ranked_.
    void write_best(int32_t* ids, float* scores) {
        const size_t n = std::min(params_.k, ranked_.size());
        std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<int64_t>(n), ranked_.end());
        for (size_t r = 0; r < params_.k; ++r) {
            ids[r] = r < n ? static_cast<int32_t>(ranked_[r].label) : -1;
            scores[r] =
                r < n ? static_cast<float>(ranked_[r].score) : -std::numeric_limits<float>::infinity();
        }
    }

    // The scores of the labels of all leaves, into scores_; returns the k-th best of the tree where it is
    // largest, or -infinity.
    float score_all(std::span<const Leaf> leaves) {
        size_t n = 0;
        for (const Leaf& leaf : leaves) n += n_children(leaf.node);
        scores_.resize(n);
        float* out = scores_.data();
        float least = -std::numeric_limits<float>::infinity();
        size_t tree = 0;
        largest_.clear(params_.k);
        for (const Leaf& leaf : leaves) {
            if (leaf.node >= static_cast<size_t>(a_.tree_ptr[tree + 1])) largest_.clear(params_.k);
            while (leaf.node >= static_cast<size_t>(a_.tree_ptr[tree + 1])) ++tree;
            const float* margin = margins_.data() + leaf.first;
            n = n_children(leaf.node);
            // Spelt out: a constant loss is a loop that the compiler vectorises.
            if (params_.loss == Loss::squared_hinge)
                for (size_t c = 0; c < n; ++c)
                    out[c] = leaf.score + log_score(Loss::squared_hinge, margin[c]);
            else
                for (size_t c = 0; c < n; ++c) out[c] = leaf.score + log_score(Loss::logistic, margin[c]);
            largest_.offer({out, n});
            least = std::max(least, largest_.least());
            out += n;
        }
        return least;
    }

    // entries_ = what the trees say about all labels that can be among the k best, and about few others.
    // `base` is a score that k labels have in some tree. Sums of exp(score - base) are good to 1e-5 here;
    // where they would overflow they are cut off, which keeps labels in play.
    void choose(std::span<const Leaf> leaves, float base) {
        const size_t n = scores_.size();
        const std::vector<float>* strengths = &strengths_;
        float least = 0.0f;
        strengths_.assign(n, 0.0f);
        if (forest_.n_trees() == 1) {  // no sums: a label has one score, and `base` is the k-th best
            strengths = &scores_;
            least = base;
        } else if (base > -std::numeric_limits<float>::infinity()) {
            for (size_t i = 0; i < n; ++i) strengths_[i] = rough_exp(scores_[i] - base);
            float* total = totals_.get();
            for_each_label(leaves, [&](uint32_t label, size_t i) { total[label] += strengths_[i]; });
            for_each_label(leaves, [&](uint32_t label, size_t i) { strengths_[i] = total[label]; });
            for_each_label(leaves, [&](uint32_t label, size_t) { total[label] = 0; });
            // Each label stands there once for each tree that reaches it: k of them are among so many.
            largest_.clear(params_.k * forest_.n_trees());
            largest_.offer(strengths_);
            least = largest_.least() * (1 - 1e-4f);
        }
        entries_.clear();
        size_t i = 0;
        for (const Leaf& leaf : leaves) {
            const int32_t* label = a_.children.data() + a_.child_ptr[leaf.node];
            const float* margin = margins_.data() + leaf.first;
            for (size_t c = 0; c < n_children(leaf.node); ++c, ++i)
                if ((*strengths)[i] >= least)
                    entries_.push_back({static_cast<uint32_t>(label[c]), scores_[i], margin[c]});
        }
    }

    // fn(label, i) for the labels of all leaves, in the order of scores_.
    template <class Fn>
    void for_each_label(std::span<const Leaf> leaves, Fn&& fn) const {
        size_t i = 0;
        for (const Leaf& leaf : leaves)
            for (int64_t c = a_.child_ptr[leaf.node]; c < a_.child_ptr[leaf.node + 1]; ++c)
                fn(static_cast<uint32_t>(a_.children[c]), i++);
    }

    size_t n_children(size_t node) const {
        return static_cast<size_t>(a_.child_ptr[node + 1] - a_.child_ptr[node]);
    }

    const Forest& forest_;
    const Forest* ranker_;  // or null: labels are ranked by the leaves' classifiers
    const ForestArrays& a_;
    const PredictParams& params_;
    const size_t beam_width_;
    Block block_;
    const Kernels& kernels_;
    std::vector<std::vector<Candidate>> beam_;        // for each row, the nodes of the next level
    std::vector<Visit> visits_;                       // sorted by node
    std::vector<Visit> arrivals_;                     // at leaves, of all trees, sorted by row
    std::vector<std::pair<size_t, uint32_t>> order_;  // node, place among the arrivals
    std::vector<Leaf> leaves_;
    std::vector<float> margins_;       // of the labels of leaves_
    std::vector<StoredWeight> panel_;  // a block, see unpack
    std::vector<uint32_t> slot_;       // 0 between blocks
    std::vector<uint32_t> placed_;     // the features that have one
    size_t panel_width_ = 0;
    std::vector<float> row_value_;  // of each feature, 0 between visits
    std::vector<uint32_t> places_;
    std::vector<float> values_;
    std::vector<float> scores_;     // of one row's labels
    std::vector<float> strengths_;  // of the same, see choose
    Largest largest_;
    std::unique_ptr<float[], decltype(&std::free)> totals_;  // for each label, 0 between rows
    std::vector<Entry> entries_;
    std::vector<Ranked> ranked_;
    std::vector<Need> needs_;
    std::vector<size_t> needs_ptr_;     // the first need of each row
    std::vector<uint32_t> margins_at_;  // for each block of the ranker, kNowhere between rows
    std::vector<std::pair<uint32_t, uint32_t>> candidates_;  // label, place in the ranker
};

}  // namespace

void predict_top_k(const Forest& forest, const Forest* ranker, const RowsView& x, const PredictParams& params,
                   Pool& pool, int32_t* ids, float* scores) {
    // Small batches are cut finer, so that every thread has work.
    const size_t rows = std::min(kRowsPerTask, x.n_rows / (2 * size_t{pool.threads()}) + 1);
    std::vector<std::unique_ptr<Searcher>> searchers(pool.threads());
    pool.control().done = 0;
    pool.control().total = x.n_rows;
    pool.run((x.n_rows + rows - 1) / rows, [&](size_t task, unsigned worker) {
        auto& searcher = searchers[worker];
        if (!searcher) searcher = std::make_unique<Searcher>(forest, ranker, params);
        const size_t begin = task * rows, end = std::min(x.n_rows, begin + rows);
        searcher->run(x, begin, end, ids, scores);
        pool.control().done += end - begin;
    });
}

}  // namespace bonsai

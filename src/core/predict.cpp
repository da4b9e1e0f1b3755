#include "predict.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>

#include "kernels.hpp"

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 4096;  // many rows share a node then, and its weights are read once for all
constexpr size_t kMarginBytes = 64 << 20;  // for the margins of labels, of several rows
constexpr size_t kFewVisits = 2;           // to a block: not worth unpacking it
constexpr size_t kLookupCost = 24;         // of one look-up, in bytes to unpack
constexpr size_t kMarkCost = 4;            // of marking a feature as wanted, likewise

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

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// fn(i) for each number that is not below bar(), which may rise on the way; and for some that are. Many are
// compared at once: in most chunks nothing is large enough.
template <class Bar, class Fn>
void for_each_above(std::span<const float> numbers, Bar&& bar, Fn&& fn) {
    constexpr size_t chunk = 16;
    for (size_t begin = 0; begin < numbers.size(); begin += chunk) {
        const size_t end = std::min(begin + chunk, numbers.size());
        const float least = bar();
        int any = 0;
        for (size_t i = begin; i < end; ++i) any |= numbers[i] >= least;
        if (any)
            for (size_t i = begin; i < end; ++i)
                if (numbers[i] >= least) fn(i);
    }
}

// The k largest of the numbers offered.
class Largest {
  public:
    void clear(size_t k) {
        k_ = k;
        heap_.clear();
    }
    // The k-th, or -infinity if there were fewer.
    float least() const { return heap_.size() == k_ ? heap_.front() : kLowest; }
    void offer(std::span<const float> numbers) {
        for_each_above(numbers, [&] { return least(); }, [&](size_t i) { add(numbers[i]); });
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

// The rows of one task, as lists of (feature, value), ready to be looked up node by node. Values are whole
// numbers of 16 bits, times the row's unit. Times stored weights of 8 bits their sums are whole numbers, too:
// the same in any order, on every machine, and whatever the row's companions are.
struct Block {
    std::vector<size_t> ptr;
    std::vector<uint32_t> feature;
    std::vector<int16_t> value;
    std::vector<float> unit;

    void read(const RowsView& x, size_t begin, size_t end, bool normalize) {
        ptr.assign(1, 0);
        feature.clear();
        value.clear();
        unit.clear();
        for (size_t i = begin; i < end; ++i) {
            double largest = 0, sum = 0, n = 0;
            for_each_entry(x, i, [&](uint32_t, float v) {
                largest = std::max(largest, std::abs(double{v}));
                sum += std::abs(double{v});
                ++n;
            });
            // No sum of products may leave 32 bits, with room for the rounding of each value. A power of two:
            // what is short already stays as it is.
            constexpr double most = 32767, most_in_all = (1u << 31) / kWeightMax - 1.0;
            int exponent = 0;
            std::frexp(std::max(largest / most, sum / std::max(most_in_all - n, most_in_all / 2)), &exponent);
            const double step = largest > 0 ? std::ldexp(1.0, exponent) : 0.0;
            const double norm = normalize ? row_norm(x, i) : 1.0;
            unit.push_back(static_cast<float>(norm > kSmallestNorm ? step / norm : step));
            const double per_step = step > 0 ? 1 / step : 0.0;
            for_each_entry(x, i, [&](uint32_t f, float v) {
                const auto whole = static_cast<int16_t>(std::lrint(v * per_step));
                if (whole == 0) return;
                feature.push_back(f);
                value.push_back(whole);
            });
            ptr.push_back(feature.size());
        }
    }
    size_t size() const { return ptr.size() - 1; }
    size_t row_size(size_t row) const { return ptr[row + 1] - ptr[row]; }
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
                alignas(64) float margin[kBlockChildren];
                score_children(
                    node, mine, [&](size_t, size_t) { return margin; },
                    [&](size_t i, size_t from, size_t n) {
                        advance(mine[i], root, {children + from, n}, margin);
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
            score_children(
                node, {&visits_[begin], end - begin},
                [&](size_t i, size_t from) {
                    return margins_.data() + leaves_[order_[begin + i].second].first + from;
                },
                [](size_t, size_t, size_t) {});
        });
    }

    // For each visit i, block by block: the margins of n children from the c-th on, to where(i, c); then
    // done(i, c, n).
    template <class Where, class Done>
    void score_children(size_t node, std::span<const Visit> visits, Where&& where, Done&& done) {
        const size_t n = n_children(node);
        for (size_t from = 0; from < n; from += kBlockChildren)
            score_block(forest_, node, from, visits, where, done);
    }

    // The same for the block that holds the children from `from` on.
    template <class Where, class Done>
    void score_block(const Forest& forest, size_t node, size_t from, std::span<const Visit> visits,
                     Where&& where, Done&& done) {
        const ForestArrays& a = forest.arrays();
        const auto first = static_cast<size_t>(a.child_ptr[node]) + from;
        const size_t width = std::min(kBlockChildren, static_cast<size_t>(a.child_ptr[node + 1]) - first);
        const float* scale = a.scale.data() + first;
        const float* bias = a.bias.data() + first;
        size_t lookups = 0;
        for (const Visit& v : visits) lookups += block_.row_size(v.row);
        const PackedBlock packed =
            forest.block(static_cast<size_t>(a.block_ptr[node]) + from / kBlockChildren);
        const bool unpacked = visits.size() > kFewVisits && lookups * kLookupCost > packed.n_bytes();
        if (unpacked) unpack(packed, width, visits, lookups);
        for (size_t i = 0; i < visits.size(); ++i) {
            const size_t row = visits[i].row;
            alignas(64) int32_t sum[kBlockChildren] = {};
            if (unpacked)
                sum_unpacked(row, sum);
            else
                sum_packed(row, packed, sum);
            float* margin = where(i, from);
            const float unit = block_.unit[row];
            for (size_t c = 0; c < width; ++c)
                margin[c] = bounded(static_cast<float>(sum[c]) * (unit * scale[c]) + bias[c]);
            done(i, from, width);
        }
        if (unpacked) clear_panel();
    }

    // A block with all its zeros: panel_[place * panel_width_ + child]. slot_[f] is the place of feature f,
    // plus one. Between blocks all of panel_ is 0: only what is not needs to be written.
    void unpack(const PackedBlock& block, size_t n_children, std::span<const Visit> visits, size_t lookups) {
        panel_width_ = (n_children + kLaneStep - 1) / kLaneStep * kLaneStep;
        slot_.resize(forest_.n_features() + 1, 0);
        // Few rows meet a small part of the block's features: no others are put into the panel, which then
        // stays in faster memory.
        if (lookups * kMarkCost > block.n_bytes())
            return unpack_wanted(block, forest_.n_features(), [](size_t) { return true; });
        constexpr size_t bits = 64;
        wanted_.resize(slot_.size() / bits + 1, 0);
        for_each_feature(visits, [&](uint32_t f) { wanted_[f / bits] |= uint64_t{1} << (f % bits); });
        unpack_wanted(block, lookups, [wanted = wanted_.data()](size_t f) -> bool {
            return wanted[f / bits] >> (f % bits) & 1;
        });
        for_each_feature(visits, [&](uint32_t f) { wanted_[f / bits] = 0; });
    }
    template <class Wanted>
    void unpack_wanted(const PackedBlock& block, size_t most, Wanted&& wanted) {
        constexpr size_t least_bytes = 3;  // of a feature
        most = std::min({most, forest_.n_features(), block.n_bytes() / least_bytes}) + 1;
        if (placed_.size() < most) placed_.resize(most);
        // Room for 128 children: a damaged file may name any of them.
        if (panel_.size() < most * panel_width_ + kBlockChildren)
            panel_.resize(most * panel_width_ + kBlockChildren, 0);
        // What stands in registers need not be read again after each byte that is written.
        const size_t width = panel_width_, n_features = forest_.n_features();
        uint32_t *const placed = placed_.data(), *const slot = slot_.data();
        StoredWeight* row = panel_.data();
        size_t n = 0;
        block.for_each_feature([&](size_t f, const FeatureWeights& found) {
            const bool keep = f < n_features && n + 1 < most && wanted(f);
            if (found.size == 2) {  // without a branch: which are wanted is hard to predict
                row[found.bytes[0] % kBlockChildren] = keep ? found.weight(0) : StoredWeight{0};
            } else if (!keep) {
                return;
            } else if (found.spread() && has_room(found, block)) {
                kernels_.unspread(found.bytes, width, row);
            } else {
                found.for_each([&](size_t child, StoredWeight weight) { row[child] = weight; });
            }
            placed[n] = static_cast<uint32_t>(f);
            n += keep;
            row += keep ? width : 0;
            slot[keep ? f : n_features] = static_cast<uint32_t>(n);
        });
        n_placed_ = n;
    }
    void clear_panel() {
        std::fill_n(panel_.begin(), n_placed_ * panel_width_ + kBlockChildren, StoredWeight{0});
        for (size_t p = 0; p < n_placed_; ++p) slot_[placed_[p]] = 0;
    }
    template <class Fn>
    void for_each_feature(std::span<const Visit> visits, Fn&& fn) const {
        for (const Visit& v : visits)
            for (size_t e = block_.ptr[v.row]; e < block_.ptr[v.row + 1]; ++e) fn(block_.feature[e]);
    }

    void sum_unpacked(size_t row, int32_t* sum) {
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
        kernels_.sum_bytes(panel_.data(), panel_width_, places_.data(), values_.data(), n, sum);
    }

    // The features of a row that a block holds, by how many weights they have: up to two, four, eight, or
    // spread. Which comes next is hard to predict: they are sorted without a branch, and each kind needs
    // none.
    struct Hits {
        std::vector<SpreadBytes> list;
        size_t n = 0;
        void clear(size_t most) {
            if (list.size() < most) list.resize(most);
            n = 0;
        }
    };

    void sum_packed(size_t row, const PackedBlock& block, int32_t* sum) {
        constexpr size_t ahead = 8;
        const uint32_t* feature = block_.feature.data() + block_.ptr[row];
        const int16_t* value = block_.value.data() + block_.ptr[row];
        const size_t n = block_.row_size(row);
        for (Hits& hits : hits_) hits.clear(n);
        for (size_t step = 0; step < n + 2 * ahead; ++step) {
            if (step < n) block.expect_offset(feature[step]);
            if (step >= ahead && step - ahead < n) block.expect_record(feature[step - ahead]);
            if (step < 2 * ahead) continue;
            const FeatureWeights found = block.find(feature[step - 2 * ahead]);
            const int16_t v = value[step - 2 * ahead];
            if (!has_room(found, block)) {
                found.for_each([&](size_t child, StoredWeight weight) { add(v * weight, sum[child]); });
                continue;
            }
            Hits& hits = hits_[(found.size > 4) + (found.size > 8) + found.spread()];
            hits.list[hits.n] = {found.bytes, v, static_cast<uint8_t>(found.size)};
            hits.n += found.size > 1;  // a single byte can only stand in a damaged file
            __builtin_prefetch(found.bytes);
            __builtin_prefetch(found.bytes + 64);
        }
        sum_listed<2>(hits_[0], sum);
        sum_listed<4>(hits_[1], sum);
        sum_listed<8>(hits_[2], sum);
        kernels_.sum_spread(hits_[3].list.data(), hits_[3].n, sum);
    }

    // Whether what comes after it can be read along.
    static bool has_room(const FeatureWeights& found, const PackedBlock& block) {
        return found.size == 0 || block.end() - found.bytes >= static_cast<ptrdiff_t>(kSpreadRead);
    }

    // Wraps around: a damaged file may name a child more than once.
    static void add(int32_t product, int32_t& sum) {
        sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(product));
    }

    // Features of up to `most` weights; missing ones are 0, so that all have as many.
    template <size_t most>
    static void sum_listed(const Hits& hits, int32_t* sum) {
        for (size_t h = 0; h < hits.n; ++h) {
            const SpreadBytes& hit = hits.list[h];
            const size_t n = hit.size / 2;
            uint8_t child[most];
            std::memcpy(child, hit.bytes, most);
            uint64_t weights;
            std::memcpy(&weights, hit.bytes + n, sizeof weights);
            weights &= ~uint64_t{0} >> (64 - 8 * n);
            for (size_t w = 0; w < most; ++w)
                add(hit.factor * static_cast<StoredWeight>(weights >> (8 * w)),
                    sum[child[w] % kBlockChildren]);
        }
    }

    // The best children so far of all nodes of a level, as a heap with the worst on top.
    void advance(const Visit& v, size_t root, std::span<const int32_t> children, const float* margin) {
        auto& beam = beam_[v.row];
        alignas(64) float score[kBlockChildren];
        score_all(v.score, {margin, children.size()}, score);
        for_each_above(
            {score, children.size()},
            [&] { return beam.size() < beam_width_ ? kLowest : beam.front().score; },
            [&](size_t c) {
                const Candidate candidate{root + static_cast<size_t>(children[c]), score[c], margin[c]};
                if (beam.size() == beam_width_) {
                    if (!(candidate < beam.front())) return;
                    std::pop_heap(beam.begin(), beam.end());
                    beam.pop_back();
                }
                beam.push_back(candidate);
                std::push_heap(beam.begin(), beam.end());
            });
    }

    // out[c] = score of the path + that of the c-th margin
    void score_all(float path, std::span<const float> margin, float* out) const {
        // Spelt out: a constant loss is a loop that the compiler vectorises.
        if (params_.loss == Loss::squared_hinge)
            for (size_t c = 0; c < margin.size(); ++c)
                out[c] = path + log_score(Loss::squared_hinge, margin[c]);
        else
            for (size_t c = 0; c < margin.size(); ++c) out[c] = path + log_score(Loss::logistic, margin[c]);
    }

    // The mean over trees of exp(score), a tree that does not reach the label counting 0, kept on the log
    // scale. Of all labels only the few that can be among the k best are looked at with care.
    void rank(std::span<const Leaf> leaves, int32_t* ids, float* scores) {
        const double log_trees = std::log(static_cast<double>(forest_.n_trees()));
        choose(leaves, score_leaves(leaves));
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
            score_block(
                *ranker_, 0, block * kBlockChildren, {&visits_[begin], end - begin},
                [&](size_t i, size_t) { return &margins_[order_[begin + i].second * kBlockChildren]; },
                [](size_t, size_t, size_t) {});
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
    float score_leaves(std::span<const Leaf> leaves) {
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
            n = n_children(leaf.node);
            score_all(leaf.score, {margins_.data() + leaf.first, n}, out);
            largest_.offer({out, n});
            least = std::max(least, largest_.least());
            out += n;
        }
        return least;
    }

    // entries_ = what the trees say about all labels that can be among the k best, and about few others.
    // `base` is a score that k labels have in some tree. A label that T trees give less than a T-th of
    // exp(base) each cannot reach it.
    void choose(std::span<const Leaf> leaves, float base) {
        const auto n_trees = static_cast<float>(forest_.n_trees());
        const float bar = base - std::log(n_trees) * 1.001f;  // with room for rounding
        float* chosen = totals_.get();
        entries_.clear();
        size_t i = 0;
        for (const Leaf& leaf : leaves) {
            const int32_t* label = a_.children.data() + a_.child_ptr[leaf.node];
            const size_t n = n_children(leaf.node);
            for_each_above(
                {scores_.data() + i, n}, [&] { return bar; }, [&](size_t c) { chosen[label[c]] = 1; });
            i += n;
        }
        i = 0;
        for (const Leaf& leaf : leaves) {
            const int32_t* label = a_.children.data() + a_.child_ptr[leaf.node];
            const float* margin = margins_.data() + leaf.first;
            for (size_t c = 0; c < n_children(leaf.node); ++c, ++i)
                if (chosen[label[c]] != 0)
                    entries_.push_back({static_cast<uint32_t>(label[c]), scores_[i], margin[c]});
        }
        for (const Entry& e : entries_) chosen[e.label] = 0;
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
    std::vector<uint32_t> placed_;     // the features that have one: the first n_placed_
    size_t n_placed_ = 0;
    std::vector<uint64_t> wanted_;  // a bit for each feature, 0 between blocks
    size_t panel_width_ = 0;
    std::vector<uint32_t> places_;  // in panel_, of one row's features
    std::vector<int16_t> values_;   // of the same
    Hits hits_[4];
    std::vector<float> scores_;  // of one row's labels
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
    // As many tasks for each thread as for any other.
    const size_t n_tasks = (x.n_rows / (kRowsPerTask * pool.threads()) + 1) * pool.threads();
    const size_t rows = x.n_rows / n_tasks + 1;
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

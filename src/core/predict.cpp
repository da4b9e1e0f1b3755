#include "predict.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 1024;  // many rows share a node then, and its weights are read once for all

constexpr size_t kBytesPerTask = 64 << 20;  // for the candidates of a task's rows
constexpr size_t kLookupCost = 16;          // of one look-up, in entries of a table

float log_score(Loss loss, float margin) {
    if (loss == Loss::logistic) return std::min(margin, 0.0f) - std::log1p(std::exp(-std::abs(margin)));
    const float slack = std::max(0.0f, 1.0f - margin);
    return -slack * slack;
}

// Far beyond any margin that training produces. A file may hold scales that overflow; with NaN and infinities
// kept out, scores stay numbers, and numbers can be sorted.
float bounded(float margin) {
    constexpr float huge = 1e15f;
    return margin > -huge ? std::min(margin, huge) : -huge;
}

// A node or label that a row may go to.
struct Candidate {
    uint32_t id;
    float score;   // sum of the log scores along the path
    float margin;  // its own
};

// A label's standing over the trees seen so far: log-sum-exp of its scores, kept as (largest, sum of exp
// beside it).
struct Standing {
    uint32_t label;
    uint32_t n_trees;
    double largest;
    double sum;
    double margin;  // summed over trees

    void add(const Candidate& c) {
        if (c.score > largest) {
            sum = sum * std::exp(largest - c.score) + 1.0;
            largest = c.score;
        } else {
            sum += std::exp(c.score - largest);
        }
        margin += c.margin;
        ++n_trees;
    }
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
                value.push_back(v * factor);
            });
            ptr.push_back(feature.size());
        }
    }
    size_t size() const { return ptr.size() - 1; }
};

// One worker's search; the buffers live as long as the call.
class Searcher {
  public:
    Searcher(const Forest& forest, const PredictParams& params)
        : forest_(forest), a_(forest.arrays()), params_(params), place_(forest.n_labels(), 0) {}

    void run(const RowsView& x, size_t begin, size_t end, int32_t* ids, float* scores) {
        block_.read(x, begin, end, params_.normalize);
        const size_t n = block_.size();
        beam_.resize(n);
        found_.resize(n);
        for (auto& found : found_) found.clear();
        for (size_t t = 0; t < forest_.n_trees(); ++t) search_tree(t);
        for (size_t r = 0; r < n; ++r)
            rank(r, ids + (begin + r) * params_.k, scores + (begin + r) * params_.k);
    }

  private:
    struct Visit {
        uint32_t node;
        uint32_t row;
        float score;
    };

    // Level by level; all rows of the block that reach a node are served together.
    void search_tree(size_t tree) {
        std::vector<Visit> visits;
        for (uint32_t r = 0; r < block_.size(); ++r)
            if (block_.ptr[r] < block_.ptr[r + 1]) visits.push_back({0, r, 0.0f});
        while (!visits.empty()) {
            for (size_t begin = 0; begin < visits.size();) {
                size_t end = begin + 1;
                while (end < visits.size() && visits[end].node == visits[begin].node) ++end;
                visit(static_cast<size_t>(a_.tree_ptr[tree]) + visits[begin].node,
                      {&visits[begin], end - begin});
                begin = end;
            }
            visits.clear();
            for (uint32_t r = 0; r < beam_.size(); ++r) {
                keep_best(beam_[r]);
                for (const Candidate& c : beam_[r]) visits.push_back({c.id, r, c.score});
                beam_[r].clear();
            }
            std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
                return a.node != b.node ? a.node < b.node : a.row < b.row;
            });
        }
    }

    void keep_best(std::vector<Candidate>& candidates) const {
        if (params_.beam == 0 || candidates.size() <= params_.beam) return;
        const auto better = [](const Candidate& a, const Candidate& b) {
            if (a.score != b.score) return a.score > b.score;
            if (a.margin != b.margin) return a.margin > b.margin;
            return a.id < b.id;
        };
        std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(params_.beam) - 1,
                         candidates.end(), better);
        candidates.resize(params_.beam);
    }

    void visit(size_t node, std::span<const Visit> visits) {
        const auto n = static_cast<size_t>(a_.child_ptr[node + 1] - a_.child_ptr[node]);
        size_t lookups = 0;
        for (const Visit& v : visits) lookups += block_.ptr[v.row + 1] - block_.ptr[v.row];
        const auto first = static_cast<size_t>(a_.block_ptr[node]),
                   end = static_cast<size_t>(a_.block_ptr[node + 1]);
        margins_.assign(visits.size() * (end - first) * kBlockChildren, 0.0f);
        for (size_t b = first; b < end; ++b) {
            // A table of the block's features costs a pass over the block; each look-up without it reads a
            // bucket.
            const bool table = lookups * kLookupCost > forest_.n_features_of(b) + forest_.n_weights_of(b) / 4;
            if (table) enter_features(b);
            for (size_t i = 0; i < visits.size(); ++i)
                accumulate(b, visits[i].row, table,
                           margins_.data() + (i * (end - first) + b - first) * kBlockChildren);
            if (table) leave_features(b);
        }
        const float* scale = a_.scale.data() + a_.child_ptr[node];
        const float* bias = a_.bias.data() + a_.child_ptr[node];
        for (size_t i = 0; i < visits.size(); ++i) {
            float* margin = margins_.data() + i * (end - first) * kBlockChildren;
            for (size_t c = 0; c < n; ++c) margin[c] = bounded(margin[c] * scale[c] + bias[c]);
            collect(node, visits[i], margin);
        }
    }

    void enter_features(size_t block) {
        slot_.resize(forest_.n_features(), 0);
        forest_.weight_starts(block, starts_);
        forest_.for_each_feature(block,
                                 [&](size_t i, uint32_t f) { slot_[f] = static_cast<uint32_t>(i) + 1; });
    }

    void leave_features(size_t block) {
        forest_.for_each_feature(block, [&](size_t, uint32_t f) { slot_[f] = 0; });
    }

    // Adds to margin[c] for each child c of the block. The sum runs in the order of the row's features,
    // whichever way they are found, so that a row's scores do not depend on its companions. The seven bits of
    // a child cannot point beyond the 128 accumulators: no file can make this write elsewhere.
    void accumulate(size_t block, size_t row, bool table, float* margin) {
        const StoredWeight* weight = a_.weights.data() + a_.weight_ptr[block];
        const uint8_t* child = a_.weight_child.data() + a_.weight_ptr[block];
        for (size_t e = block_.ptr[row]; e < block_.ptr[row + 1]; ++e) {
            size_t first, end;
            if (table) {
                const uint32_t slot = slot_[block_.feature[e]];
                if (slot == 0) continue;
                first = starts_[slot - 1];
                end = starts_[slot];
            } else {
                std::tie(first, end) = forest_.find(block, block_.feature[e]);
            }
            const float v = block_.value[e];
            for (size_t w = first; w < end; ++w)
                margin[child[w] & ~kLastWeight] += v * static_cast<float>(weight[w]);
        }
    }

    void collect(size_t node, const Visit& v, const float* margins) {
        auto& list = a_.is_leaf[node] ? found_[v.row] : beam_[v.row];
        const int64_t first = a_.child_ptr[node];
        for (int64_t c = first; c < a_.child_ptr[node + 1]; ++c) {
            const float margin = margins[c - first];
            list.push_back(
                {static_cast<uint32_t>(a_.children[c]), v.score + log_score(params_.loss, margin), margin});
        }
    }

    // The mean over trees of exp(score), a tree that does not reach the label counting 0, kept on the log
    // scale.
    void rank(size_t row, int32_t* ids, float* scores) {
        standings_.clear();
        for (const Candidate& c : found_[row]) {
            uint32_t& place = place_[c.id];
            if (place == 0) {
                standings_.push_back({c.id, 0, -std::numeric_limits<double>::infinity(), 0.0, 0.0});
                place = static_cast<uint32_t>(standings_.size());
            }
            standings_[place - 1].add(c);
        }
        ranked_.clear();
        const double log_trees = std::log(static_cast<double>(forest_.n_trees()));
        for (const Standing& s : standings_) {
            place_[s.label] = 0;
            ranked_.push_back({s.largest + std::log(s.sum) - log_trees, s.margin / s.n_trees, s.label});
        }
        const size_t n = std::min(params_.k, ranked_.size());
        std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<int64_t>(n), ranked_.end());
        for (size_t r = 0; r < params_.k; ++r) {
            ids[r] = r < n ? static_cast<int32_t>(ranked_[r].label) : -1;
            scores[r] =
                r < n ? static_cast<float>(ranked_[r].score) : -std::numeric_limits<float>::infinity();
        }
    }

    const Forest& forest_;
    const ForestArrays& a_;
    const PredictParams& params_;
    Block block_;
    std::vector<uint32_t> slot_;                 // feature -> position in the block + 1, 0 between blocks
    std::vector<uint32_t> starts_;               // position in the block -> first weight
    std::vector<uint32_t> place_;                // label -> position among standings_ + 1, 0 between rows
    std::vector<float> margins_;                 // visits of a node x its children, padded to blocks
    std::vector<std::vector<Candidate>> beam_;   // for each row, the nodes of the next level
    std::vector<std::vector<Candidate>> found_;  // for each row, labels of all trees
    std::vector<Standing> standings_;
    std::vector<Ranked> ranked_;
};

// What a row can find in a tree at one level, at the most.
size_t most_candidates(const Forest& forest, const PredictParams& params) {
    const size_t all = forest.arrays().children.size();
    if (params.beam == 0 || params.beam > all / forest.max_children()) return all;
    return params.beam * forest.max_children();
}

}  // namespace

void predict_top_k(const Forest& forest, const RowsView& x, const PredictParams& params, Pool& pool,
                   int32_t* ids, float* scores) {
    // Small batches are cut finer, so that every thread has work; and so are rows that find many labels each.
    const size_t share = x.n_rows / (4 * size_t{pool.threads()}) + 1;
    const size_t room =
        kBytesPerTask / (sizeof(Candidate) * forest.n_trees() * most_candidates(forest, params)) + 1;
    const size_t rows = std::min({kRowsPerTask, share, room});
    std::vector<std::unique_ptr<Searcher>> searchers(pool.threads());
    pool.control().done = 0;
    pool.control().total = x.n_rows;
    pool.run((x.n_rows + rows - 1) / rows, [&](size_t task, unsigned worker) {
        auto& searcher = searchers[worker];
        if (!searcher) searcher = std::make_unique<Searcher>(forest, params);
        const size_t begin = task * rows, end = std::min(x.n_rows, begin + rows);
        searcher->run(x, begin, end, ids, scores);
        pool.control().done += end - begin;
    });
}

}  // namespace bonsai

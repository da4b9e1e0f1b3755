#include "predict.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

namespace bonsai {
namespace {

constexpr size_t kRowsPerTask = 128;

float log_score(Loss loss, float margin) {
    if (loss == Loss::logistic) return std::min(margin, 0.0f) - std::log1p(std::exp(-std::abs(margin)));
    const float slack = std::max(0.0f, 1.0f - margin);
    return -slack * slack;
}

// A node or label that a row may go to.
struct Candidate {
    uint32_t id;
    float score;   // sum of the log scores along the path
    float margin;  // its own
};

// A label's standing over the trees seen so far: log-sum-exp of its scores, kept as (largest, sum of exp beside it).
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
                visit(static_cast<size_t>(a_.tree_ptr[tree]) + visits[begin].node, {&visits[begin], end - begin});
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
        const size_t n_features = static_cast<size_t>(a_.feature_ptr[node + 1] - a_.feature_ptr[node]);
        size_t lookups = 0;
        for (const Visit& v : visits) lookups += block_.ptr[v.row + 1] - block_.ptr[v.row];
        // A table of the node's features costs two passes over them; searching costs a logarithm for each look-up.
        const bool table = lookups * std::bit_width(n_features) > 2 * n_features;
        if (table) enter_features(node);
        for (const Visit& v : visits) {
            margins(node, v.row, table);
            collect(node, v);
        }
        if (table) leave_features(node);
    }

    void enter_features(size_t node) {
        slot_.resize(forest_.n_features(), 0);
        const auto begin = static_cast<size_t>(a_.feature_ptr[node]), end = static_cast<size_t>(a_.feature_ptr[node + 1]);
        for (size_t f = begin; f < end; ++f)
            if (a_.features[f] < slot_.size()) slot_[a_.features[f]] = static_cast<uint32_t>(f - begin) + 1;
    }

    void leave_features(size_t node) {
        for (auto f = a_.feature_ptr[node]; f < a_.feature_ptr[node + 1]; ++f)
            if (a_.features[f] < slot_.size()) slot_[a_.features[f]] = 0;
    }

    // Position of the feature in the node's list, counted from 1; 0 if it is not there.
    size_t find(std::span<const uint32_t> features, uint32_t feature, bool table) const {
        if (table) return slot_[feature];
        const auto at = std::lower_bound(features.begin(), features.end(), feature);
        return at != features.end() && *at == feature ? static_cast<size_t>(at - features.begin()) + 1 : 0;
    }

    // margin_[c] for each child c. The sum runs in the order of the row's features, whichever way they are found,
    // so that a row's scores do not depend on its companions.
    void margins(size_t node, size_t row, bool table) {
        const auto n = static_cast<size_t>(a_.child_ptr[node + 1] - a_.child_ptr[node]);
        margin_.assign(std::max(n, kNarrow), 0.0f);
        if (n <= kNarrow)
            accumulate(node, row, table, a_.narrow.data() + a_.child_base[node], kNarrow);
        else
            accumulate(node, row, table, a_.wide.data() + a_.child_base[node], n);
        const float* scale = a_.scale.data() + a_.child_ptr[node];
        const float* bias = a_.bias.data() + a_.child_ptr[node];
        for (size_t c = 0; c < n; ++c) margin_[c] = margin_[c] * scale[c] + bias[c];
    }

    // A byte cannot point beyond 256 accumulators; four bytes are checked. So no file can make this write elsewhere.
    template <class Child>
    void accumulate(size_t node, size_t row, bool table, const Child* child, size_t n) {
        const auto begin = static_cast<size_t>(a_.feature_ptr[node]), end = static_cast<size_t>(a_.feature_ptr[node + 1]);
        const auto features = a_.features.subspan(begin, end - begin);
        const uint32_t* weight_ptr = a_.weight_ptr.data() + begin + node;
        const StoredWeight* weight = a_.weights.data() + a_.weight_base[node];
        const auto n_weights = static_cast<uint32_t>(a_.weight_base[node + 1] - a_.weight_base[node]);
        for (size_t e = block_.ptr[row]; e < block_.ptr[row + 1]; ++e) {
            const size_t at = find(features, block_.feature[e], table);
            if (at == 0) continue;
            const float v = block_.value[e];
            const uint32_t last = std::min(weight_ptr[at], n_weights);
            for (uint32_t w = weight_ptr[at - 1]; w < last; ++w) {
                if constexpr (sizeof(Child) > 1)
                    if (child[w] >= n) continue;
                margin_[child[w]] += v * static_cast<float>(weight[w]);
            }
        }
    }

    void collect(size_t node, const Visit& v) {
        auto& list = a_.is_leaf[node] ? found_[v.row] : beam_[v.row];
        const int64_t first = a_.child_ptr[node];
        for (int64_t c = first; c < a_.child_ptr[node + 1]; ++c) {
            const float margin = margin_[static_cast<size_t>(c - first)];
            list.push_back({static_cast<uint32_t>(a_.children[c]), v.score + log_score(params_.loss, margin), margin});
        }
    }

    // The mean over trees of exp(score), a tree that does not reach the label counting 0, kept on the log scale.
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
            scores[r] = r < n ? static_cast<float>(ranked_[r].score) : -std::numeric_limits<float>::infinity();
        }
    }

    const Forest& forest_;
    const ForestArrays& a_;
    const PredictParams& params_;
    Block block_;
    std::vector<uint32_t> slot_;                  // feature -> position in the node's list + 1, 0 between nodes
    std::vector<uint32_t> place_;                 // label -> position among standings_ + 1, 0 between rows
    std::vector<float> margin_;
    std::vector<std::vector<Candidate>> beam_;    // for each row, the nodes of the next level
    std::vector<std::vector<Candidate>> found_;   // for each row, labels of all trees
    std::vector<Standing> standings_;
    std::vector<Ranked> ranked_;
};

}  // namespace

void predict_top_k(const Forest& forest, const RowsView& x, const PredictParams& params, Pool& pool, int32_t* ids,
                   float* scores) {
    // Small batches are cut finer, so that every thread has work.
    const size_t share = x.n_rows / (4 * size_t{pool.threads()}) + 1;
    const size_t rows = std::min(kRowsPerTask, share);
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

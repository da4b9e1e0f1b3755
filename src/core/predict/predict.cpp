#include "predict/predict.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <ranges>
#include <stdexcept>
#include <string>

#include "base/groups.hpp"
#include "base/memory.hpp"
#include "predict/beam_search.hpp"
#include "predict/block_scoring.hpp"
#include "predict/select.hpp"

namespace bonsai {
namespace {

struct PredictParams {
    Loss loss;
    size_t beam;
    size_t k;
    bool normalize;
    float path_power;
};

// What one tree says about a label.
struct Entry {
    uint32_t label;
    float score;
    float margin;
    bool operator<(const Entry& other) const { return score > other.score; }
};

// The same, where it stands: the label is a child of the leaf of one of its row's visits, whose margins need
// not be known: the score is none that it surpasses then.
struct Contender {
    uint32_t label;
    uint32_t visit;
    uint32_t child;
    float score;
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

// At least e^x, at most 7 % more, for x from -80 to 80: the straight line between powers of two.
float over_exp(float x) {
    constexpr float log2_e = 1.442695f, one = 1 << 23;
    const auto bits = static_cast<int32_t>((std::clamp(x, -80.0f, 80.0f) * log2_e + 127.0f) * one);
    return std::bit_cast<float>(bits);
}

// Ranks the labels of the leaves that the search ends in.
class Ranking {
  public:
    Ranking(const Forest& forest, const Forest* ranker, const PredictParams& params, const Kernels& kernels,
            Pool& pool)
        : forest_(forest),
          ranker_(ranker),
          params_(params),
          pool_(pool),
          kernels_(kernels),
          scores_(params.loss, kernels_),
          search_(forest, scores_, params.beam, kernels, pool),
          workers_(pool.threads()),
          locks_(pool.threads() > 1 ? kLocks : 1),
          by_block_(ranker ? ranker->n_blocks(0) : 0) {}

    // The best labels of the rows of x from `begin` on, as many as there is room for; returns where they end.
    size_t run(const RowsView& x, size_t begin, int32_t* ids, float* scores) {
        const size_t end_of_batch = search_.read(x, begin, params_.normalize);
        ids_ = ids + begin * params_.k;
        best_scores_ = scores + begin * params_.k;
        search_.find_leaves();
        for (size_t row = 0, end; row < end_of_batch - begin; row = end) {
            if (ranker_)
                end = rank_by_ranker(row);
            else if (forest_.n_trees() == 1)
                end = rank_one_tree(row);
            else
                end = rank_trees(row);
            pool_.control().done += end - row;
        }
        return end_of_batch;
    }

  private:
    static constexpr size_t kLocks = 1024;

    // What a thread has for itself.
    struct Worker {
        explicit Worker(const Ranking& r)
            : chosen(r.ranker_ ? 0 : r.forest_.n_labels() / 32),
              totals(r.forest_.n_labels()),
              margins_at(r.ranker_ ? r.ranker_->n_blocks(0) : 0, kNowhere) {}

        Best<Entry> best;
        std::vector<Search::Bounded> blocks;
        std::vector<Entry> entries;
        std::vector<Ranked> ranked;
        ZeroedArray<uint32_t> chosen;  // a bit for each label, 0 between rows
        std::vector<uint32_t> where;
        std::vector<Contender> contenders, kept;
        ZeroedArray<float> totals;         // for each label, 0 between rows
        std::vector<uint32_t> margins_at;  // for each block of the ranker, kNowhere between rows
        std::vector<std::pair<uint32_t, uint32_t>> candidates;  // label, place in the ranker
        Best<Ranked> best_candidates;
    };

    Worker& worker(unsigned number) {
        auto& mine = workers_[number];
        if (!mine) mine = std::make_unique<Worker>(*this);
        return *mine;
    }

    // With one tree a label has one score: each row keeps its best while the leaves are gone through.
    size_t rank_one_tree(size_t begin) {
        const size_t per_row = std::min(params_.k, forest_.n_labels()) * sizeof(Ranked) + 1;
        const size_t end =
            std::min(search_.batch().size(), begin + std::max<size_t>(1, kMarginBytes / per_row));
        best_.resize(end - begin);
        for (auto& best : best_) best.clear(params_.k);
        search_.for_each_leaf_block(
            begin, end, [&](BlockScorer& scorer, const BlockRows& block, uint32_t row, float path) {
                alignas(64) float margin[kBlockChildren];
                const float largest = scorer.margins(row, margin);
                Best<Ranked>& best = best_[row - begin];
                if (scores_.at_most(path, largest) < best.bar()) return;
                const auto label = search_.children(block.node).subspan(block.from);
                const std::lock_guard lock(locks_[row % locks_.size()]);
                best.offer(scores_, path, {margin, scorer.n_children()}, [&](size_t c, float score) {
                    return Ranked{score, margin[c], static_cast<uint32_t>(label[c])};
                });
            });
        for_each_row(pool_, std::views::iota(begin, end), [&](size_t row, unsigned number) {
            Worker& mine = worker(number);
            const auto items = best_[row - begin].items();
            mine.ranked.assign(items.begin(), items.end());
            write_best(mine.ranked, row);
        });
        return end;
    }

    // The mean over trees of exp(score), a tree that does not reach the label counting 0, kept on the log
    // scale. Of all leaves only those are looked into that may hold a label of the k best, or hold one that
    // another tree puts there; and of all labels only the few that can be among them are looked at with care.
    size_t rank_trees(size_t begin) {
        const size_t end = search_.make_room(begin, learned_ ? search_.batch().size() : kFirstRows);
        contenders_.resize(search_.batch().size());
        gaps_.resize(search_.batch().size());
        open_.clear();
        for (size_t row = begin; row < end; ++row) {
            want_promising(row);
            contenders_[row].clear();
            open_.push_back(static_cast<uint32_t>(row));
        }
        while (!open_.empty()) {
            search_.find_margins(begin, end);
            for_each_row(pool_, open_, [&](size_t row, unsigned number) {
                Worker& mine = worker(number);
                if (contenders_[row].empty())
                    rank(mine, row);
                else
                    write_ranked(mine, row, contenders_[row]);
            });
            std::erase_if(open_, [&](size_t row) {
                return std::ranges::none_of(search_.visits(row),
                                            [](const Visit& v) { return v.first == Visit::kWanted; });
            });
        }
        if (!learned_) learn_gap(begin, end);
        return end;
    }

    // The leaves that are most likely needed: how far they may stay behind a row's best one is learnt from
    // the first rows. It changes what is looked at, not what is found.
    void want_promising(size_t row) {
        float best = kLowest;
        for (const Visit& v : search_.visits(row)) best = std::max(best, v.score);
        for (Visit& v : search_.visits(row))
            if (v.score >= best - gap_) v.first = Visit::kWanted;
        gaps_[row] = std::max(best, std::numeric_limits<float>::lowest());
    }
    void learn_gap(size_t begin, size_t end) {
        const auto first = gaps_.begin() + static_cast<int64_t>(begin);
        const auto most = first + static_cast<int64_t>((end - begin) * 2 / 3);
        std::nth_element(first, most, gaps_.begin() + static_cast<int64_t>(end));
        gap_ = *most;
        learned_ = true;
    }

    // Writes the best labels of a row, or lets it want more leaves.
    void rank(Worker& mine, size_t row) {
        const std::span<Visit> visits = search_.visits(row);
        const float bar = least_score(mine, visits);
        bool enough = true;
        const auto want = [&](Visit& v) {
            if (v.first == Visit::kUnknown) v.first = Visit::kWanted;
            enough &= v.first != Visit::kWanted;
        };
        for (Visit& v : visits)
            if (v.score >= bar) want(v);
        if (!enough) return;
        gaps_[row] -= bar;
        find_contenders(mine, visits, bar);
        for (const Contender& c : mine.contenders) want(visits[c.visit]);
        if (enough)
            write_ranked(mine, row, mine.contenders);
        else
            contenders_[row] = mine.contenders;
    }

    // A score that k labels have or surpass, or -infinity: that of the k best of each tree, as far as these
    // lists tell.
    float least_score(Worker& mine, std::span<const Visit> visits) const {
        mine.entries.clear();
        search_.for_each_tree(visits, [&](size_t, std::span<const Visit> in_tree) {
            mine.best.clear(params_.k);
            search_.offer_children(in_tree, mine.blocks, mine.best,
                                   [](int32_t label, float score, float margin) {
                                       return Entry{static_cast<uint32_t>(label), score, margin};
                                   });
            mine.entries.insert(mine.entries.end(), mine.best.items().begin(), mine.best.items().end());
        });
        combine(mine);
        if (mine.ranked.size() < params_.k || params_.k == 0) return kLowest;
        const auto kth = mine.ranked.begin() + static_cast<int64_t>(params_.k) - 1;
        std::nth_element(mine.ranked.begin(), kth, mine.ranked.end());
        const auto score = static_cast<float>(kth->score);
        return score - 1e-5f * (1 + std::abs(score));  // with room for rounding
    }

    // All labels whose mean can reach `bar`, and few others. One that stays below it in each tree cannot; no
    // label can that is only in leaves which are below it themselves.
    void find_contenders(Worker& mine, std::span<const Visit> visits, float bar) const {
        constexpr size_t bits = 32;
        for (const Visit& visit : visits) {
            if (visit.score < bar) continue;  // the others are all known
            const float least = scores_.least_margin(visit.score, bar);
            const auto label = search_.children(visit.node);
            search_.for_each_block(visit, [&](size_t from, float largest) {
                if (largest < least) return;
                scores_.for_each_reaching(visit.score, search_.margins(visit, from), least,
                                          [&](size_t c, float) {
                                              const auto l = static_cast<size_t>(label[from + c]);
                                              mine.chosen[l / bits] |= uint32_t{1} << (l % bits);
                                          });
            });
        }
        auto& contenders = mine.contenders;
        contenders.clear();
        for (uint32_t v = 0; v < visits.size(); ++v) {
            const auto label = search_.children(visits[v].node);
            if (mine.where.size() < label.size() + kLaneStep) mine.where.resize(label.size() + kLaneStep);
            const size_t n_found =
                kernels_.find_in_bitset(&mine.chosen[0], label.data(), label.size(), mine.where.data());
            for (const uint32_t c : std::span(mine.where).first(n_found))
                contenders.push_back({static_cast<uint32_t>(label[c]), v, c, score_at_most(visits[v], c)});
        }
        for (const Contender& c : contenders) mine.chosen[c.label / bits] = 0;
        if (bar > kLowest) drop_low(mine, bar);
    }
    float score_at_most(const Visit& visit, size_t child) const {
        return visit.known() ? scores_.of(visit.score, search_.margin(visit, child)) : visit.score;
    }

    // Drops labels whose mean is surely below `bar`. In some rows hundreds of labels have a tree where they
    // are not, but nearly all of them stay below in the mean.
    void drop_low(Worker& mine, float bar) const {
        auto& contenders = mine.contenders;
        for (const Contender& c : contenders) mine.totals[c.label] += over_exp(c.score - bar);
        const float least = static_cast<float>(forest_.n_trees()) * 0.999f;
        std::vector<Contender>& kept = mine.kept;
        kept.clear();
        for (const Contender& c : contenders)
            if (mine.totals[c.label] >= least) kept.push_back(c);
        for (const Contender& c : contenders) mine.totals[c.label] = 0;
        contenders.swap(kept);
    }

    // The k best of a row's contenders, which stand in the order of trees.
    void write_ranked(Worker& mine, size_t row, std::span<const Contender> contenders) {
        const auto visits = search_.visits(row);
        mine.entries.clear();
        for (const Contender& c : contenders) {
            const float margin = search_.margin(visits[c.visit], c.child);
            mine.entries.push_back({c.label, scores_.of(visits[c.visit].score, margin), margin});
        }
        combine(mine);
        write_best(mine.ranked, row);
    }

    // ranked = the labels of the entries, which stand in the order of trees.
    void combine(Worker& mine) const {
        const double log_trees = std::log(static_cast<double>(forest_.n_trees()));
        auto& entries = mine.entries;
        std::stable_sort(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.label < b.label; });
        mine.ranked.clear();
        for (size_t begin = 0, end; begin < entries.size(); begin = end) {
            const uint32_t label = entries[begin].label;
            Standing standing;
            for (end = begin; end < entries.size() && entries[end].label == label; ++end)
                standing.add(entries[end].score, entries[end].margin);
            mine.ranked.push_back({standing.largest + std::log(standing.sum) - log_trees,
                                   standing.margin / static_cast<double>(end - begin), label});
        }
    }

    // The k best of them.
    void write_best(std::vector<Ranked>& ranked, size_t row) const {
        const size_t n = std::min(params_.k, ranked.size());
        std::partial_sort(ranked.begin(), ranked.begin() + static_cast<int64_t>(n), ranked.end());
        for (size_t r = 0; r < params_.k; ++r) {
            ids_[row * params_.k + r] = r < n ? static_cast<int32_t>(ranked[r].label) : -1;
            best_scores_[row * params_.k + r] = r < n ? static_cast<float>(ranked[r].score) : kLowest;
        }
    }

    // A block of the ranker that holds a candidate of a row; its margins are the n-th of margins_.
    struct Need {
        uint32_t block;
        uint32_t row;
    };

    // As many rows at once as have room for the margins of the blocks that hold their candidates.
    size_t rank_by_ranker(size_t begin) {
        constexpr size_t room = kMarginBytes / (kBlockChildren * sizeof(float));
        size_t end = begin, most = 0;
        for (; end < search_.batch().size(); ++end) {
            size_t labels = 0;
            for (const Visit& v : search_.visits(end)) labels += forest_.n_children(v.node);
            most += std::min(labels, ranker_->n_blocks(0));
            if (end > begin && most > room) break;
        }
        needs_of_row_.resize(search_.batch().size());
        for_each_row(pool_, std::views::iota(begin, end),
                     [&](size_t row, unsigned number) { list_needs(worker(number), row); });
        needs_.clear();
        needs_ptr_.assign(1, 0);
        for (size_t row = begin; row < end; ++row) {
            for (const uint32_t block : needs_of_row_[row])
                needs_.push_back({block, static_cast<uint32_t>(row)});
            needs_ptr_.push_back(needs_.size());
        }
        margins_.ensure_size(needs_.size() * kBlockChildren);
        by_block_.group(needs_.size(), [&](size_t n) { return needs_[n].block; });
        rows_.resize(needs_.size());
        for (size_t i = 0; i < needs_.size(); ++i) rows_[i] = needs_[by_block_.item(i)].row;
        blocks_.clear();
        for (size_t g = 0; g < by_block_.size(); ++g)
            blocks_.push_back(
                {0, by_block_.key(g) * kBlockChildren, by_block_.begin(g), by_block_.part(g, rows_)});
        search_.loop().run(*ranker_, blocks_,
                           [&](BlockScorer& scorer, const BlockRows&, uint32_t row, size_t i) {
                               scorer.margins(row, &margins_[by_block_.item(i) * kBlockChildren]);
                           });
        for_each_row(pool_, std::views::iota(begin, end), [&](size_t row, unsigned number) {
            Worker& mine = worker(number);
            const size_t first = needs_ptr_[row - begin], last = needs_ptr_[row - begin + 1];
            for (size_t n = first; n < last; ++n) mine.margins_at[needs_[n].block] = static_cast<uint32_t>(n);
            rank_candidates(mine, row);
            for (size_t n = first; n < last; ++n) mine.margins_at[needs_[n].block] = kNowhere;
        });
        return end;
    }

    // fn(label, its place in the ranker, score of the leaf) for all labels of leaves that the ranker knows.
    template <class Fn>
    void for_each_candidate(std::span<const Visit> leaves, Fn&& fn) const {
        for (const Visit& leaf : leaves)
            for (const int32_t child : search_.children(leaf.node)) {
                const auto label = static_cast<uint32_t>(child);
                if (const uint32_t place = ranker_->place(label); place != kNowhere)
                    fn(label, place, leaf.score);
            }
    }

    void list_needs(Worker& mine, size_t row) {
        auto& needs = needs_of_row_[row];
        needs.clear();
        for_each_candidate(search_.visits(row), [&](uint32_t, uint32_t place, float) {
            const auto block = static_cast<uint32_t>(place / kBlockChildren);
            if (mine.margins_at[block] != kNowhere) return;
            mine.margins_at[block] = 0;
            needs.push_back(block);
        });
        for (const uint32_t block : needs) mine.margins_at[block] = kNowhere;
    }

    // By the label's own score times the path's, the mean over trees, to the given power.
    void rank_candidates(Worker& mine, size_t row) const {
        const auto leaves = search_.visits(row);
        float top = kLowest;
        for (const Visit& leaf : leaves) top = std::max(top, leaf.score);
        mine.candidates.clear();
        for_each_candidate(leaves, [&](uint32_t label, uint32_t place, float score) {
            float& total = mine.totals[label];
            if (total == 0) mine.candidates.push_back({label, place});
            total += std::max(std::exp(score - top), std::numeric_limits<float>::min());
        });
        const auto margin_at = [&](uint32_t place) {
            const size_t block = mine.margins_at[place / kBlockChildren];
            return margins_[block * kBlockChildren + place % kBlockChildren];
        };
        const float mean = top - static_cast<float>(std::log(static_cast<double>(forest_.n_trees())));
        Best<Ranked>& best = mine.best_candidates;
        best.clear(params_.k);
        for (const auto& [label, place] : mine.candidates) {
            const float path = params_.path_power > 0 ? std::log(mine.totals[label]) + mean : 0.0f;
            mine.totals[label] = 0;
            const float margin = margin_at(place);
            const float score = scores_.of(0, margin) + params_.path_power * path;
            if (score >= best.bar()) best.add({score, margin, label});
        }
        mine.ranked.assign(best.items().begin(), best.items().end());
        write_best(mine.ranked, row);
    }

    static constexpr size_t kFirstRows = 64;

    const Forest& forest_;
    const Forest* ranker_;  // or null: labels are ranked by the leaves' classifiers
    const PredictParams& params_;
    Pool& pool_;
    const Kernels& kernels_;
    const Scores scores_;
    Search search_;
    int32_t* ids_ = nullptr;  // of the batch's first row
    float* best_scores_ = nullptr;
    std::vector<std::unique_ptr<Worker>> workers_;

    // One tree
    std::vector<Best<Ranked>> best_;  // of each row
    std::vector<std::mutex> locks_;   // for these, shared by many rows each

    // Several trees
    float gap_ = 1;  // of log scores, for leaves that are looked into first
    bool learned_ = false;
    std::vector<float> gaps_;                         // of each row
    std::vector<std::vector<Contender>> contenders_;  // of rows that wait for some of their margins
    std::vector<uint32_t> open_;                      // rows that are not ranked yet

    // A ranker
    Groups by_block_;
    std::vector<uint32_t> rows_;  // of the needs, by block
    std::vector<BlockRows> blocks_;
    std::vector<std::vector<uint32_t>> needs_of_row_;
    std::vector<Need> needs_;
    std::vector<size_t> needs_ptr_;
    FloatBuffer margins_;  // of the blocks of needs_
};

}  // namespace

void top_k(const Model& model, const RowsView& x, const TopKParams& params, const Kernels& kernels,
           Pool& pool, int32_t* ids, float* scores) {
    if (x.n_features != model.n_features())
        throw std::invalid_argument("X has " + std::to_string(x.n_features) +
                                    " features, but the model has " + std::to_string(model.n_features()));
    pool.control().done = 0;
    pool.control().total = x.n_rows;
    const bool searches = model.trees() && !(params.exact && model.one_vs_rest());
    const Forest& forest = searches ? *model.trees() : *model.one_vs_rest();
    const PredictParams options{.loss = model.loss(),
                                .beam = params.exact ? 0 : params.beam_size,
                                .k = params.k,
                                .normalize = model.normalize(),
                                .path_power = params.path_weight};
    Ranking ranking(forest, searches ? model.one_vs_rest() : nullptr, options, kernels, pool);
    for (size_t begin = 0; begin < x.n_rows;) begin = ranking.run(x, begin, ids, scores);
}

}  // namespace bonsai

#include "predict.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "score.hpp"

namespace bonsai {
namespace {

// Rows that are searched together: the more they are, the more share a block, which is unpacked once for all
// of them. Bounds of what they need:
constexpr size_t kBatchRows = 8192;
constexpr size_t kBatchValues = 2 << 20;
constexpr size_t kSearchBytes = 48 << 20;   // for nodes on the way
constexpr size_t kMarginBytes = 128 << 20;  // for the margins of labels

constexpr size_t kRowsPerTask = 32;

float log_score(Loss loss, float margin) {
    if (loss == Loss::logistic) return std::min(margin, 0.0f) - std::log1p(std::exp(-std::abs(margin)));
    const float gap = 1.0f - margin, slack = gap > 0.0f ? gap : 0.0f;
    return -slack * slack;
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

// A row at a node.
struct Visit {
    size_t node;
    uint32_t row;
    float score;
};

// What one tree says about a label.
struct Entry {
    uint32_t label;
    float score;
    float margin;
    bool operator<(const Entry& other) const { return score > other.score; }
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

// The best of the items that several threads offer, up to a number of them: the same ones in whatever order
// they come, if no two are equal.
template <class Item>
class Best {
  public:
    void clear(size_t most) {
        most_ = most;
        bar_ = most > 0 ? kLowest : -kLowest;
        items_.clear();
    }
    // Nothing with a lower score is wanted.
    float bar() const {
        float bar;
        __atomic_load(&bar_, &bar, __ATOMIC_RELAXED);
        return bar;
    }
    // make(i) for scores that are high enough; the first of them takes the lock.
    template <class Make>
    void offer(std::span<const float> scores, std::mutex& mutex, Make&& make) {
        std::unique_lock lock(mutex, std::defer_lock);
        for_each_above(
            scores, [&] { return bar(); },
            [&](size_t i) {
                if (!lock) lock.lock();
                add(make(i));
            });
    }
    std::span<const Item> items() const { return items_; }

  private:
    void add(const Item& item) {
        if (items_.size() < most_) {
            items_.push_back(item);
            if (items_.size() < most_) return;
            std::make_heap(items_.begin(), items_.end());
        } else if (item < items_.front()) {
            replace_worst(item);
        }
        const auto bar = static_cast<float>(items_.front().score);
        __atomic_store(&bar_, &bar, __ATOMIC_RELAXED);
    }
    void replace_worst(const Item& item) {
        size_t at = 0;
        for (size_t below; (below = 2 * at + 1) < items_.size(); at = below) {
            if (below + 1 < items_.size()) below += items_[below] < items_[below + 1];
            if (!(item < items_[below])) break;
            items_[at] = items_[below];
        }
        items_[at] = item;
    }

    size_t most_ = 0;
    float bar_ = kLowest;      // read without the lock
    std::vector<Item> items_;  // once there are enough: a heap with the worst on top
};

// A table that begins as zeros. Not a vector: of memory that the system hands out as zeros, only what is used
// costs time.
template <class T>
class Zeros {
  public:
    explicit Zeros(size_t n) : data_(static_cast<T*>(std::calloc(n + 1, sizeof(T))), &std::free) {
        if (!data_) throw std::bad_alloc();
    }
    T& operator[](size_t i) { return data_[i]; }

  private:
    std::unique_ptr<T[], decltype(&std::free)> data_;
};

// Numbers that begin as anything: large memory is first touched where it is used, by many threads.
class Floats {
  public:
    void make_room(size_t n) {
        if (n <= size_) return;
        data_.reset();
        data_ = {PanelAllocator<float>().allocate(n), &std::free};
        size_ = n;
    }
    float& operator[](size_t i) { return data_[i]; }
    const float& operator[](size_t i) const { return data_[i]; }

  private:
    std::unique_ptr<float[], decltype(&std::free)> data_{nullptr, &std::free};
    size_t size_ = 0;
};

// Items by their keys: keys in ascending order, the items of each in the order they had.
class Groups {
  public:
    explicit Groups(size_t n_keys) : place_(n_keys) {}

    template <class KeyOf>
    void group(size_t n_items, KeyOf&& key_of) {
        keys_.clear();
        for (size_t i = 0; i < n_items; ++i)
            if (place_[key_of(i)]++ == 0) keys_.push_back(key_of(i));
        std::sort(keys_.begin(), keys_.end());
        ends_.clear();
        uint32_t begin = 0;
        for (const size_t key : keys_) {
            const uint32_t n = place_[key];
            place_[key] = begin;
            ends_.push_back(begin += n);
        }
        items_.resize(n_items);
        for (size_t i = 0; i < n_items; ++i) items_[place_[key_of(i)]++] = static_cast<uint32_t>(i);
        for (const size_t key : keys_) place_[key] = 0;
    }
    size_t size() const { return keys_.size(); }
    size_t key(size_t group) const { return keys_[group]; }
    std::span<const uint32_t> items(size_t group) const {
        const size_t begin = group > 0 ? ends_[group - 1] : 0;
        return {items_.data() + begin, ends_[group] - begin};
    }

  private:
    Zeros<uint32_t> place_;  // of each key
    std::vector<size_t> keys_;
    std::vector<uint32_t> ends_;
    std::vector<uint32_t> items_;
};

// The search for one call: batch by batch, and in each batch node by node, so that threads share the work by
// blocks of weights, and each block is read and unpacked once for all rows that need it.
class Search {
  public:
    Search(const Forest& forest, const Forest* ranker, const PredictParams& params, Pool& pool)
        : forest_(forest),
          ranker_(ranker),
          a_(forest.arrays()),
          params_(params),
          beam_width_(params.beam == 0 ? std::numeric_limits<size_t>::max() : params.beam),
          pool_(pool),
          kernels_(kernels()),
          workers_(pool.threads()),
          by_node_(std::max(a_.is_leaf.size(), ranker ? n_blocks(*ranker, 0) : 0)),
          locks_(pool.threads() > 1 ? kLocks : 1) {}

    // Reads the rows of x from `begin` on, as many as there is room for; returns where they end.
    size_t read(const RowsView& x, size_t begin) {
        size_t nodes = 1;  // that a row may be at, at once, in a tree
        for (size_t t = 0; t < forest_.n_trees(); ++t)
            nodes = std::max(nodes, static_cast<size_t>(a_.tree_ptr[t + 1] - a_.tree_ptr[t]));
        nodes = std::min(nodes, beam_width_) * forest_.n_trees();
        constexpr size_t bytes = 2 * sizeof(Visit) + sizeof(Candidate) + sizeof(Leaf);  // for each of them
        const size_t most = std::clamp<size_t>(kSearchBytes / bytes / nodes, 1, kBatchRows);
        size_t end = begin, values = 0;
        while (end < x.n_rows && end - begin < most && (values < kBatchValues || end == begin)) {
            values += x.dense ? x.n_features : static_cast<size_t>(x.ptr[end + 1] - x.ptr[end]);
            ++end;
        }
        batch_.read(x, begin, end, params_.normalize, pool_);
        mean_row_ = values / (end - begin) + 1;
        return end;
    }

    // The best labels of the rows that were read.
    void run(int32_t* ids, float* scores) {
        find_leaves();
        for (size_t begin = 0, end; begin < batch_.size(); begin = end) {
            if (ranker_)
                end = rank_by_ranker(begin, ids, scores);
            else if (forest_.n_trees() == 1)
                end = rank_one_tree(begin, ids, scores);
            else
                end = rank_trees(begin, ids, scores);
            pool_.control().done += end - begin;
        }
    }

  private:
    static constexpr size_t kLocks = 1024;

    // A leaf that a row has reached; its labels' margins begin at `first` of margins_, each block's at a
    // multiple of 16.
    struct Leaf {
        size_t node;
        size_t first;
        float score;
    };

    // A block, and the items whose rows need it.
    struct Part {
        size_t tree;
        size_t node;
        size_t from;
        std::span<const uint32_t> items;
        size_t cost = 0;
    };

    // A block of a leaf's labels, and a score that none of them surpasses.
    struct Bounded {
        float highest;
        uint32_t leaf;
        uint32_t from;
    };

    // What a thread has for itself.
    struct Worker {
        explicit Worker(const Search& s)
            : scorer(s.batch_),
              chosen(s.ranker_ ? 0 : s.forest_.n_labels() / 32),
              totals(s.forest_.n_labels()),
              margins_at(s.ranker_ ? n_blocks(*s.ranker_, 0) : 0, kNowhere) {}

        BlockScorer scorer;
        std::vector<uint32_t> rows;
        Zeros<uint32_t> chosen;  // a bit for each label, 0 between rows
        Best<Entry> best;
        std::mutex unshared;
        std::vector<Entry> entries, kept;
        std::vector<uint32_t> where;
        std::vector<Bounded> blocks;
        std::vector<Ranked> ranked;
        Zeros<float> totals;               // for each label, 0 between rows
        std::vector<uint32_t> margins_at;  // for each block of the ranker, kNowhere between rows
        std::vector<std::pair<uint32_t, uint32_t>> candidates;  // label, place in the ranker
        std::vector<float> scores;
        Best<Ranked> best_candidates;
    };

    Worker& worker(unsigned number) {
        auto& mine = workers_[number];
        if (!mine) mine = std::make_unique<Worker>(*this);
        return *mine;
    }

    static size_t n_blocks(const Forest& forest, size_t node) {
        return (forest.n_children(node) + kBlockChildren - 1) / kBlockChildren;
    }

    // fn(worker, part, item, row) for the items of all parts_, whose block the worker's scorer has open.
    template <class RowOf, class Fn>
    void for_each_item(const Forest& forest, RowOf&& row_of, Fn&& fn) {
        share_out(forest);
        pool_.run(parts_.size(), [&](size_t p, unsigned number) {
            const Part& part = parts_[p];
            Worker& mine = worker(number);
            mine.rows.clear();
            for (const uint32_t item : part.items) mine.rows.push_back(row_of(item));
            mine.scorer.open(forest, part.node, part.from, mine.rows);
            for (size_t i = 0; i < part.items.size(); ++i) fn(mine, part, part.items[i], mine.rows[i]);
        });
    }

    // Largest first, so that threads end together. A block that is most of the work is shared, if it has more
    // rows than it takes to unpack it twice.
    void share_out(const Forest& forest) {
        const size_t threads = pool_.threads();
        if (threads == 1) return;
        constexpr size_t multiply_cost = 3;  // of a value, in bytes to unpack
        size_t total = 0;
        for (Part& part : parts_) {
            part.cost = part.items.size() * mean_row_ * multiply_cost + n_bytes(forest, part);
            total += part.cost;
        }
        const size_t n = parts_.size();
        for (size_t p = 0; p < n; ++p) {
            const size_t bytes = n_bytes(forest, parts_[p]), cost = parts_[p].cost;
            const size_t pieces = std::min({2 * cost * threads / total + 1, threads,
                                            cost / (4 * bytes + 1) + 1, parts_[p].items.size()});
            const std::span<const uint32_t> items = parts_[p].items;
            for (size_t piece = 0; piece < pieces; ++piece) {
                Part part = parts_[p];
                const size_t begin = items.size() * piece / pieces, end = items.size() * (piece + 1) / pieces;
                part.items = items.subspan(begin, end - begin);
                part.cost = cost / pieces;
                if (piece == 0)
                    parts_[p] = part;
                else
                    parts_.push_back(part);
            }
        }
        std::stable_sort(parts_.begin(), parts_.end(),
                         [](const Part& a, const Part& b) { return a.cost > b.cost; });
    }
    static size_t n_bytes(const Forest& forest, const Part& part) {
        const auto block =
            static_cast<size_t>(forest.arrays().block_ptr[part.node]) + part.from / kBlockChildren;
        return static_cast<size_t>(forest.arrays().record_ptr[block + 1] - forest.arrays().record_ptr[block]);
    }

    void add_parts(size_t tree, size_t node, std::span<const uint32_t> items) {
        for (size_t from = 0; from < forest_.n_children(node); from += kBlockChildren)
            parts_.push_back({tree, node, from, items});
    }

    // Beam search, level by level, in all trees at once: arrivals_, sorted by row, then by tree.
    void find_leaves() {
        const size_t n_rows = batch_.size();
        beams_.resize(forest_.n_trees() * n_rows);
        for (auto& beam : beams_) beam.clear(beam_width_);
        visits_.clear();
        for (size_t t = 0; t < forest_.n_trees(); ++t)
            for (uint32_t r = 0; r < n_rows; ++r)
                if (batch_.row_size(r) > 0) visits_.push_back({static_cast<size_t>(a_.tree_ptr[t]), r, 0.0f});
        arrived_.resize(forest_.n_trees());
        for (auto& arrived : arrived_) arrived.clear();
        while (!visits_.empty()) {
            by_node_.group(visits_.size(), [&](size_t v) { return visits_[v].node; });
            parts_.clear();
            size_t tree = 0;
            for (size_t g = 0; g < by_node_.size(); ++g) {
                const size_t node = by_node_.key(g);
                while (node >= static_cast<size_t>(a_.tree_ptr[tree + 1])) ++tree;
                if (!a_.is_leaf[node])
                    add_parts(tree, node, by_node_.items(g));
                else
                    for (const uint32_t v : by_node_.items(g)) arrived_[tree].push_back(visits_[v]);
            }
            for_each_item(
                forest_, [&](uint32_t v) { return visits_[v].row; },
                [&](Worker& mine, const Part& part, uint32_t v, uint32_t row) {
                    advance(mine.scorer, part, row, visits_[v].score);
                });
            visits_.clear();
            for (size_t b = 0; b < beams_.size(); ++b) {
                for (const Candidate& c : beams_[b].items())
                    visits_.push_back({c.node, static_cast<uint32_t>(b % n_rows), c.score});
                beams_[b].clear(beam_width_);
            }
        }
        arrivals_ptr_.assign(n_rows + 2, 0);
        for (const auto& arrived : arrived_)
            for (const Visit& v : arrived) ++arrivals_ptr_[v.row + 2];
        for (size_t r = 0; r < n_rows; ++r) arrivals_ptr_[r + 2] += arrivals_ptr_[r + 1];
        arrivals_.resize(arrivals_ptr_.back());
        for (const auto& arrived : arrived_)
            for (const Visit& v : arrived) arrivals_[arrivals_ptr_[v.row + 1]++] = v;
    }

    // From a node to those of its children that are among the best of the next level so far.
    void advance(BlockScorer& scorer, const Part& part, uint32_t row, float path) {
        alignas(64) float margin[kBlockChildren], score[kBlockChildren];
        const float largest = scorer.margins(row, margin);
        auto& beam = beams_[part.tree * batch_.size() + row];
        if (highest_score(path, largest) < beam.bar()) return;
        score_all(path, {margin, scorer.width()}, score);
        const int32_t* child = a_.children.data() + a_.child_ptr[part.node] + part.from;
        const auto root = static_cast<size_t>(a_.tree_ptr[part.tree]);
        beam.offer({score, scorer.n_children()}, locks_[row % locks_.size()], [&](size_t c) {
            return Candidate{root + static_cast<size_t>(child[c]), score[c], margin[c]};
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
    // No margin up to `largest` gives a higher score, however logarithms are rounded.
    float highest_score(float path, float largest) const {
        const float score = path + log_score(params_.loss, largest);
        return score + 1e-5f * (1 + std::abs(score));
    }

    std::span<const Visit> arrivals(size_t row) const {
        return {arrivals_.data() + arrivals_ptr_[row], arrivals_ptr_[row + 1] - arrivals_ptr_[row]};
    }

    // fn(worker, row) for rows [begin, end)
    template <class Fn>
    void for_each_row(size_t begin, size_t end, Fn&& fn) {
        pool_.run((end - begin + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, unsigned number) {
            Worker& mine = worker(number);
            const size_t first = begin + task * kRowsPerTask;
            for (size_t row = first; row < std::min(end, first + kRowsPerTask); ++row) fn(mine, row);
        });
    }

    // Groups what arrived at leaves, of the rows [begin, end): an item is a place in arrivals_ beyond the
    // first of them.
    void take_leaves(size_t begin, size_t end) {
        const size_t first = arrivals_ptr_[begin];
        by_node_.group(arrivals_ptr_[end] - first, [&](size_t i) { return arrivals_[first + i].node; });
        parts_.clear();
        for (size_t g = 0; g < by_node_.size(); ++g) add_parts(0, by_node_.key(g), by_node_.items(g));
    }

    // With one tree a label has one score: each row keeps its best while the leaves are gone through.
    size_t rank_one_tree(size_t begin, int32_t* ids, float* scores) {
        const size_t per_row = std::min(params_.k, forest_.n_labels()) * sizeof(Ranked);
        const size_t end = std::min(batch_.size(), begin + std::max<size_t>(1, kMarginBytes / (per_row + 1)));
        best_.resize(batch_.size());
        for (size_t row = begin; row < end; ++row) best_[row - begin].clear(params_.k);
        take_leaves(begin, end);
        const Visit* visit = arrivals_.data() + arrivals_ptr_[begin];
        for_each_item(
            forest_, [&](uint32_t i) { return visit[i].row; },
            [&](Worker& mine, const Part& part, uint32_t i, uint32_t row) {
                alignas(64) float margin[kBlockChildren], score[kBlockChildren];
                const float largest = mine.scorer.margins(row, margin);
                auto& best = best_[row - begin];
                if (highest_score(visit[i].score, largest) < best.bar()) return;
                score_all(visit[i].score, {margin, mine.scorer.width()}, score);
                const int32_t* label = a_.children.data() + a_.child_ptr[part.node] + part.from;
                best.offer({score, mine.scorer.n_children()}, locks_[row % locks_.size()], [&](size_t c) {
                    return Ranked{score[c], margin[c], static_cast<uint32_t>(label[c])};
                });
            });
        for_each_row(begin, end, [&](Worker& mine, size_t row) {
            const auto items = best_[row - begin].items();
            mine.ranked.assign(items.begin(), items.end());
            write_best(mine.ranked, ids + row * params_.k, scores + row * params_.k);
        });
        return end;
    }

    // As many rows at once as have room for the margins of their labels.
    size_t rank_trees(size_t begin, int32_t* ids, float* scores) {
        leaves_.clear();
        size_t end = begin, n = 0;
        for (; end < batch_.size(); ++end) {
            const size_t n_before = n;
            for (const Visit& v : arrivals(end)) {
                leaves_.push_back({v.node, n, v.score});
                n += (forest_.n_children(v.node) + kLaneStep - 1) / kLaneStep * kLaneStep;
            }
            if (end > begin && n * sizeof(float) > kMarginBytes) {
                n = n_before;
                break;
            }
        }
        margins_.make_room(n);
        largest_.make_room(n / kLaneStep);
        take_leaves(begin, end);
        const size_t first = arrivals_ptr_[begin];
        for_each_item(
            forest_, [&](uint32_t i) { return arrivals_[first + i].row; },
            [&](Worker& mine, const Part& part, uint32_t i, uint32_t row) {
                const size_t at = leaves_[i].first + part.from;
                largest_[at / kLaneStep] = mine.scorer.margins(row, &margins_[at]);
            });
        for_each_row(begin, end, [&](Worker& mine, size_t row) {
            rank(mine, {leaves_.data() + arrivals_ptr_[row] - first, arrivals(row).size()},
                 ids + row * params_.k, scores + row * params_.k);
        });
        return end;
    }

    // The mean over trees of exp(score), a tree that does not reach the label counting 0, kept on the log
    // scale. Of all labels only the few that can be among the k best are looked at with care.
    void rank(Worker& mine, std::span<const Leaf> leaves, int32_t* ids, float* scores) {
        choose(mine, leaves, least_score(mine, leaves));
        combine(mine);
        write_best(mine.ranked, ids, scores);
    }

    void bound_blocks(Worker& mine, std::span<const Leaf> leaves) const {
        mine.blocks.clear();
        for (uint32_t l = 0; l < leaves.size(); ++l)
            for (uint32_t from = 0; from < forest_.n_children(leaves[l].node); from += kBlockChildren) {
                const float largest = largest_[(leaves[l].first + from) / kLaneStep];
                mine.blocks.push_back({highest_score(leaves[l].score, largest), l, from});
            }
    }

    // fn(scores, margins, labels) of a block
    template <class Fn>
    void score_block(std::span<const Leaf> leaves, const Bounded& block, Fn&& fn) const {
        const Leaf& leaf = leaves[block.leaf];
        alignas(64) float score[kBlockChildren];
        const size_t n = std::min(kBlockChildren, forest_.n_children(leaf.node) - block.from);
        const float* margin = &margins_[leaf.first + block.from];
        score_all(leaf.score, {margin, n}, score);
        fn(std::span<const float>(score, n), margin,
           a_.children.data() + a_.child_ptr[leaf.node] + block.from);
    }

    // A score that k labels have or surpass, or -infinity: that of the k best of each tree, as far as these
    // lists tell.
    float least_score(Worker& mine, std::span<const Leaf> leaves) {
        bound_blocks(mine, leaves);
        mine.entries.clear();
        for (size_t t = 0, begin = 0, end = 0; t < forest_.n_trees(); ++t, begin = end) {
            const auto tree_end = static_cast<size_t>(a_.tree_ptr[t + 1]);
            while (end < mine.blocks.size() && leaves[mine.blocks[end].leaf].node < tree_end) ++end;
            // The most promising first: most others need no look then.
            std::sort(mine.blocks.begin() + static_cast<int64_t>(begin),
                      mine.blocks.begin() + static_cast<int64_t>(end),
                      [](const Bounded& a, const Bounded& b) { return a.highest > b.highest; });
            mine.best.clear(params_.k);
            for (size_t b = begin; b < end && mine.blocks[b].highest >= mine.best.bar(); ++b)
                score_block(leaves, mine.blocks[b],
                            [&](std::span<const float> score, const float* margin, const int32_t* label) {
                                mine.best.offer(score, mine.unshared, [&](size_t c) {
                                    return Entry{static_cast<uint32_t>(label[c]), score[c], margin[c]};
                                });
                            });
            mine.entries.insert(mine.entries.end(), mine.best.items().begin(), mine.best.items().end());
        }
        combine(mine);
        if (mine.ranked.size() < params_.k || params_.k == 0) return kLowest;
        const auto kth = mine.ranked.begin() + static_cast<int64_t>(params_.k) - 1;
        std::nth_element(mine.ranked.begin(), kth, mine.ranked.end());
        const auto score = static_cast<float>(kth->score);
        return score - 1e-5f * (1 + std::abs(score));  // with room for rounding
    }

    // entries = what the trees say about all labels whose mean can reach `bar`, and about few others. One
    // that stays below it in each tree cannot.
    void choose(Worker& mine, std::span<const Leaf> leaves, float bar) const {
        constexpr size_t bits = 32;
        for (const Bounded& block : mine.blocks) {
            if (block.highest < bar) continue;
            score_block(leaves, block, [&](std::span<const float> score, const float*, const int32_t* label) {
                for_each_above(
                    score, [&] { return bar; },
                    [&](size_t c) {
                        mine.chosen[static_cast<size_t>(label[c]) / bits] |= uint32_t{1} << (label[c] % bits);
                    });
            });
        }
        mine.entries.clear();
        for (const Leaf& leaf : leaves) {
            const int32_t* label = a_.children.data() + a_.child_ptr[leaf.node];
            const float* margin = &margins_[leaf.first];
            const size_t n = forest_.n_children(leaf.node);
            if (mine.where.size() < n + kLaneStep) mine.where.resize(n + kLaneStep);
            const size_t n_found = kernels_.find_marked(&mine.chosen[0], label, n, mine.where.data());
            for (const uint32_t c : std::span(mine.where).first(n_found))
                mine.entries.push_back({static_cast<uint32_t>(label[c]),
                                        leaf.score + log_score(params_.loss, margin[c]), margin[c]});
        }
        for (const Entry& e : mine.entries) mine.chosen[e.label / bits] = 0;
        drop_low(mine, bar);
    }

    // Drops entries of labels whose mean is surely below `bar`. In some rows hundreds of labels have a tree
    // where they are not, but nearly all of them stay below in the mean.
    void drop_low(Worker& mine, float bar) const {
        if (bar == kLowest) return;
        auto& entries = mine.entries;
        for (const Entry& e : entries) mine.totals[e.label] += over_exp(e.score - bar);
        const float least = static_cast<float>(forest_.n_trees()) * 0.999f;
        mine.kept.clear();
        for (const Entry& e : entries)
            if (mine.totals[e.label] >= least) mine.kept.push_back(e);
        for (const Entry& e : entries) mine.totals[e.label] = 0;
        entries.swap(mine.kept);
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
    void write_best(std::vector<Ranked>& ranked, int32_t* ids, float* scores) const {
        const size_t n = std::min(params_.k, ranked.size());
        std::partial_sort(ranked.begin(), ranked.begin() + static_cast<int64_t>(n), ranked.end());
        for (size_t r = 0; r < params_.k; ++r) {
            ids[r] = r < n ? static_cast<int32_t>(ranked[r].label) : -1;
            scores[r] = r < n ? static_cast<float>(ranked[r].score) : kLowest;
        }
    }

    // A block of the ranker that holds a candidate of a row; its margins are the n-th of margins_.
    struct Need {
        uint32_t block;
        uint32_t row;
    };

    // As many rows at once as have room for the margins of the blocks that hold their candidates.
    size_t rank_by_ranker(size_t begin, int32_t* ids, float* scores) {
        constexpr size_t room = kMarginBytes / (kBlockChildren * sizeof(float));
        size_t end = begin, most = 0;
        for (; end < batch_.size(); ++end) {
            size_t labels = 0;
            for (const Visit& v : arrivals(end)) labels += forest_.n_children(v.node);
            most += std::min(labels, n_blocks(*ranker_, 0));
            if (end > begin && most > room) break;
        }
        needs_of_row_.resize(batch_.size());
        for_each_row(begin, end, [&](Worker& mine, size_t row) { list_needs(mine, row); });
        needs_.clear();
        needs_ptr_.assign(1, 0);
        for (size_t row = begin; row < end; ++row) {
            for (const uint32_t block : needs_of_row_[row])
                needs_.push_back({block, static_cast<uint32_t>(row)});
            needs_ptr_.push_back(needs_.size());
        }
        margins_.make_room(needs_.size() * kBlockChildren);
        by_node_.group(needs_.size(), [&](size_t n) { return needs_[n].block; });
        parts_.clear();
        for (size_t g = 0; g < by_node_.size(); ++g)
            parts_.push_back({0, 0, by_node_.key(g) * kBlockChildren, by_node_.items(g)});
        for_each_item(
            *ranker_, [&](uint32_t n) { return needs_[n].row; },
            [&](Worker& mine, const Part&, uint32_t n, uint32_t row) {
                mine.scorer.margins(row, &margins_[n * kBlockChildren]);
            });
        for_each_row(begin, end, [&](Worker& mine, size_t row) {
            const size_t first = needs_ptr_[row - begin], last = needs_ptr_[row - begin + 1];
            for (size_t n = first; n < last; ++n) mine.margins_at[needs_[n].block] = static_cast<uint32_t>(n);
            rank_candidates(mine, arrivals(row), ids + row * params_.k, scores + row * params_.k);
            for (size_t n = first; n < last; ++n) mine.margins_at[needs_[n].block] = kNowhere;
        });
        return end;
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

    void list_needs(Worker& mine, size_t row) {
        auto& needs = needs_of_row_[row];
        needs.clear();
        for_each_candidate(arrivals(row), [&](uint32_t, uint32_t place, float) {
            const auto block = static_cast<uint32_t>(place / kBlockChildren);
            if (mine.margins_at[block] != kNowhere) return;
            mine.margins_at[block] = 0;
            needs.push_back(block);
        });
        for (const uint32_t block : needs) mine.margins_at[block] = kNowhere;
    }

    // By the label's own score times the path's, the mean over trees, to the given power.
    void rank_candidates(Worker& mine, std::span<const Visit> leaves, int32_t* ids, float* scores) const {
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
        mine.scores.clear();
        for (const auto& [label, place] : mine.candidates) {
            const float path = params_.path_power > 0 ? std::log(mine.totals[label]) + mean : 0.0f;
            mine.scores.push_back(log_score(params_.loss, margin_at(place)) + params_.path_power * path);
            mine.totals[label] = 0;
        }
        Best<Ranked>& best = mine.best_candidates;
        best.clear(params_.k);
        best.offer(mine.scores, mine.unshared, [&](size_t c) {
            const auto [label, place] = mine.candidates[c];
            return Ranked{mine.scores[c], margin_at(place), label};
        });
        mine.ranked.assign(best.items().begin(), best.items().end());
        write_best(mine.ranked, ids, scores);
    }

    const Forest& forest_;
    const Forest* ranker_;  // or null: labels are ranked by the leaves' classifiers
    const ForestArrays& a_;
    const PredictParams& params_;
    const size_t beam_width_;
    Pool& pool_;
    const Kernels& kernels_;
    Batch batch_;
    size_t mean_row_ = 0;  // values in a row
    std::vector<std::unique_ptr<Worker>> workers_;
    Groups by_node_;                      // or by block of the ranker
    std::vector<std::mutex> locks_;       // of the rows' beams_ and best_, shared by many rows each
    std::vector<Best<Candidate>> beams_;  // for each tree and row, the nodes of the next level
    std::vector<Best<Ranked>> best_;      // for each row
    std::vector<Visit> visits_;
    std::vector<std::vector<Visit>> arrived_;  // at leaves, of each tree
    std::vector<Visit> arrivals_;              // the same, row by row
    std::vector<size_t> arrivals_ptr_;
    std::vector<Part> parts_;
    std::vector<Leaf> leaves_;  // the same as some of the arrivals
    Floats margins_;            // of the labels of leaves_, or of the blocks of needs_
    Floats largest_;            // of each block's margins; the n-th is that of those from 16 n on
    std::vector<std::vector<uint32_t>> needs_of_row_;
    std::vector<Need> needs_;
    std::vector<size_t> needs_ptr_;
};

}  // namespace

void predict_top_k(const Forest& forest, const Forest* ranker, const RowsView& x, const PredictParams& params,
                   Pool& pool, int32_t* ids, float* scores) {
    pool.control().done = 0;
    pool.control().total = x.n_rows;
    Search search(forest, ranker, params, pool);
    for (size_t begin = 0, end; begin < x.n_rows; begin = end) {
        end = search.read(x, begin);
        search.run(ids + begin * params.k, scores + begin * params.k);
    }
}

}  // namespace bonsai

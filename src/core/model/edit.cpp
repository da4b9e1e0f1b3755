#include "model/edit.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/sort.hpp"
#include "model/pack.hpp"

namespace bonsai {
namespace {

// A stored classifier: a column of a block.
struct Column {
    uint32_t source;
    size_t block;  // number in the source
    uint8_t place;
    uint8_t target;  // position in the new block
    float scale;
    bool operator<(const Column& other) const {
        return source != other.source ? source < other.source : block < other.block;
    }
};

// Finds the block of each child of a forest.
class BlockOfChild {
  public:
    explicit BlockOfChild(const Forest& forest) : a_(forest.arrays()), hint_(0) {}

    // Returns (block, position in it). Consecutive children are mostly of the same node.
    std::pair<size_t, uint8_t> operator()(int64_t child) {
        if (child < a_.child_ptr[hint_] || child >= a_.child_ptr[hint_ + 1]) {
            const auto after = std::upper_bound(a_.child_ptr.begin(), a_.child_ptr.end(), child);
            hint_ = static_cast<size_t>(after - a_.child_ptr.begin()) - 1;
        }
        const auto at = static_cast<size_t>(child - a_.child_ptr[hint_]);
        const int64_t block = a_.block_ptr[hint_] + static_cast<int64_t>(at / kBlockChildren);
        return {static_cast<size_t>(block), static_cast<uint8_t>(at % kBlockChildren)};
    }
    // The number of children in the block of the last child looked up.
    size_t n_children(size_t block) const {
        const auto n = static_cast<size_t>(a_.child_ptr[hint_ + 1] - a_.child_ptr[hint_]);
        return std::min(kBlockChildren,
                        n - (block - static_cast<size_t>(a_.block_ptr[hint_])) * kBlockChildren);
    }

  private:
    const ForestArrays& a_;
    size_t hint_;
};

// Packs blocks of the new forest, one at a time. One object per worker.
class BlockAssembler {
  public:
    explicit BlockAssembler(const Origins& origins)
        : origins_(origins), n_features_(origins.sources[0]->n_features()) {}

    // Packs the block of the children [first, first + n) of the new forest.
    OwnedForest assemble(size_t first, size_t n) {
        OwnedForest part;
        part.bucket_ptr = part.record_ptr = {0};
        if (!find_columns(first, n)) {
            gather();
            part.add_block(features_, ptr_, child_, weight_);
            return part;
        }
        const Forest& source = *origins_.sources[columns_[0].source];
        const ForestArrays& a = source.arrays();
        const size_t b = columns_[0].block;
        const auto copy = [b](auto& to, auto from, std::span<const int64_t> ptr) {
            const auto bytes =
                from.subspan(static_cast<size_t>(ptr[b]), static_cast<size_t>(ptr[b + 1] - ptr[b]));
            to.assign(bytes.begin(), bytes.end());
        };
        copy(part.buckets, a.buckets, a.bucket_ptr);
        copy(part.records, a.records, a.record_ptr);
        part.shift = {a.shift[b]};
        part.bucket_ptr.push_back(static_cast<int64_t>(part.buckets.size()));
        part.record_ptr.push_back(static_cast<int64_t>(part.records.size()));
        return part;
    }

  private:
    // Sets columns_ to the sources of the children; returns whether these are exactly one block of a source.
    bool find_columns(size_t first, size_t n) {
        columns_.clear();
        bool same = origins_.prune == 0;
        size_t n_children = 0;
        std::vector<BlockOfChild> blocks;
        for (const Forest* source : origins_.sources) blocks.emplace_back(*source);
        for (size_t c = 0; c < n; ++c) {
            const uint32_t source = origins_.source[first + c];
            const int64_t child = origins_.child[first + c];
            const auto [block, place] = blocks[source](child);
            if (c == 0) n_children = blocks[source].n_children(block);
            const float scale = origins_.sources[source]->arrays().scale[static_cast<size_t>(child)];
            columns_.push_back({source, block, place, static_cast<uint8_t>(c), scale});
            same = same && place == c && source == columns_[0].source && block == columns_[0].block;
        }
        std::stable_sort(columns_.begin(), columns_.end());
        return same && n_children == n;
    }

    // Sets features_, ptr_, child_ and weight_ to the weights of all columns, by feature and child. Sources
    // may be mapped memory that changes: they are read once, and a repeated child of a feature is left out.
    void gather() {
        found_.clear();
        for_each_weight([&](uint32_t feature, uint8_t child, StoredWeight weight) {
            found_.push_back(uint64_t{feature} << 32 | uint64_t{child} << 8 | static_cast<uint8_t>(weight));
        });
        sort_by_upper_half(found_);
        features_.clear();
        ptr_.assign(1, 0);
        child_.clear();
        weight_.clear();
        for (auto begin = found_.begin(); begin != found_.end();) {
            const uint64_t feature = *begin >> 32;
            const auto after =
                std::find_if(begin, found_.end(), [&](uint64_t w) { return w >> 32 != feature; });
            std::sort(begin, after);
            for (auto w = begin; w != after; ++w) {
                const auto child = static_cast<uint8_t>(*w >> 8);
                if (w != begin && child == child_.back()) continue;
                child_.push_back(child);
                weight_.push_back(static_cast<StoredWeight>(*w & 0xff));
            }
            features_.push_back(static_cast<uint32_t>(feature));
            ptr_.push_back(static_cast<uint32_t>(child_.size()));
            begin = after;
        }
    }

    // Calls fn(feature, position in the new block, weight).
    template <class Fn>
    void for_each_weight(Fn&& fn) {
        for (size_t begin = 0, end; begin < columns_.size(); begin = end) {
            uint8_t target[kBlockChildren];
            float scale[kBlockChildren];
            std::fill_n(target, kBlockChildren, kNowhere);
            for (end = begin; end < columns_.size() && !(columns_[begin] < columns_[end]); ++end) {
                target[columns_[end].place] = columns_[end].target;
                scale[columns_[end].place] = columns_[end].scale;
            }
            const PackedBlock block = origins_.sources[columns_[begin].source]->block(columns_[begin].block);
            block.for_each_feature([&](size_t feature, const FeatureWeights& found) {
                if (feature >= n_features_) return;  // a damaged file
                found.for_each([&](size_t c, StoredWeight weight) {
                    if (target[c] == kNowhere || weight == 0) return;
                    if (origins_.prune > 0 && !(std::abs(weight * scale[c]) > origins_.prune)) return;
                    fn(static_cast<uint32_t>(feature), target[c], weight);
                });
            });
        }
    }

    static constexpr uint8_t kNowhere = 255;
    const Origins& origins_;
    const size_t n_features_;
    std::vector<Column> columns_;  // by source and block
    std::vector<uint64_t> found_;  // weights: feature << 32 | child << 8 | weight
    std::vector<uint32_t> features_, ptr_;
    std::vector<uint8_t> child_;
    std::vector<StoredWeight> weight_;
};

void check(const OwnedForest& forest, const Origins& origins) {
    if (origins.source.size() != forest.children.size() || origins.child.size() != forest.children.size())
        throw std::invalid_argument("the number of origins differs from the number of children");
    for (size_t c = 0; c < forest.children.size(); ++c)
        if (origins.source[c] >= origins.sources.size() || origins.child[c] < 0 ||
            static_cast<size_t>(origins.child[c]) >=
                origins.sources[origins.source[c]]->arrays().children.size())
            throw std::invalid_argument("an origin refers to a classifier that does not exist");
    for (const Forest* source : origins.sources)
        if (source->n_features() != origins.sources[0]->n_features())
            throw std::invalid_argument("the forests have different numbers of features");
}

}  // namespace

void assemble(OwnedForest& forest, const Origins& origins, Pool& pool) {
    check(forest, origins);
    struct Block {
        size_t first, n;
    };
    std::vector<Block> blocks;
    forest.block_ptr.assign(1, 0);
    for (size_t v = 0; v < forest.is_leaf.size(); ++v) {
        const auto end = static_cast<size_t>(forest.child_ptr[v + 1]);
        for (auto from = static_cast<size_t>(forest.child_ptr[v]); from < end; from += kBlockChildren)
            blocks.push_back({from, std::min(kBlockChildren, end - from)});
        forest.block_ptr.push_back(static_cast<int64_t>(blocks.size()));
    }
    for (size_t c = 0; c < forest.children.size(); ++c) {
        const ForestArrays& from = origins.sources[origins.source[c]]->arrays();
        forest.bias.push_back(from.bias[static_cast<size_t>(origins.child[c])]);
        forest.scale.push_back(from.scale[static_cast<size_t>(origins.child[c])]);
    }
    std::vector<OwnedForest> parts(blocks.size());
    std::vector<std::unique_ptr<BlockAssembler>> workers(pool.threads());
    pool.run(blocks.size(), [&](size_t b, unsigned worker) {
        auto& assembler = workers[worker];
        if (!assembler) assembler = std::make_unique<BlockAssembler>(origins);
        parts[b] = assembler->assemble(blocks[b].first, blocks[b].n);
    });
    std::vector<OwnedForest*> in_order;
    for (OwnedForest& part : parts) in_order.push_back(&part);
    append(forest, in_order, pool);
}

std::shared_ptr<Forest> pruned(const Forest& forest, float prune, Pool& pool) {
    if (forest.residual()) throw std::invalid_argument("a forest with a residual cannot be pruned");
    const ForestArrays& a = forest.arrays();
    OwnedForest made;
    made.tree_ptr.assign(a.tree_ptr.begin(), a.tree_ptr.end());
    made.child_ptr.assign(a.child_ptr.begin(), a.child_ptr.end());
    made.children.assign(a.children.begin(), a.children.end());
    made.is_leaf.assign(a.is_leaf.begin(), a.is_leaf.end());
    std::vector<uint32_t> source(a.children.size(), 0);
    std::vector<int64_t> child(a.children.size());
    std::iota(child.begin(), child.end(), int64_t{0});
    const Forest* const sources[] = {&forest};
    assemble(made, {sources, source, child, prune}, pool);
    return std::make_shared<Forest>(std::move(made), forest.n_features(), forest.n_labels());
}

std::shared_ptr<const Forest> without_weights(const Forest& forest) {
    const ForestArrays& a = forest.arrays();
    OwnedForest empty;
    for_each_structure_array(
        [](const char*, auto& to, const auto& from) { to.assign(from.begin(), from.end()); }, empty, a);
    std::fill(empty.scale.begin(), empty.scale.end(), 0.0f);
    const size_t n_blocks = empty.shift.size();
    empty.shift.clear();
    empty.bucket_ptr = empty.record_ptr = {0};
    for (size_t b = 0; b < n_blocks; ++b) empty.add_block({}, std::vector<uint32_t>{0}, {}, {});
    return std::make_shared<const Forest>(std::move(empty), forest.n_features(), forest.n_labels());
}

}  // namespace bonsai

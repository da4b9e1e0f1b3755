// Margins of rows, block by block: the part of prediction that multiplies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "kernels/kernels.hpp"
#include "model/forest.hpp"
#include "predict/batch.hpp"
#include "predict/scores.hpp"

namespace bonsai {

// Computes the margins of a block's children for rows of a batch. For few rows it looks their features up in
// the packed block; for many it unpacks the block into a dense panel first, for some the part of it that it
// finds by looking each feature of the batch up once. One for each worker.
class BlockScorer {
  public:
    BlockScorer(const Batch& batch, const Kernels& kernels) : batch_(batch), kernels_(kernels) {}

    // Selects the block of a node's children from `from` on, and the rows whose margins will be asked for.
    void open(const Forest& forest, size_t node, size_t from, std::span<const uint32_t> rows);
    size_t n_children() const { return n_children_; }
    // The margins of a row, padded with -1e15 to a multiple of 16; returns the largest.
    float margins(size_t row, float* out) {
        float largest = add_products(row, bias_, out);
        if (with_residual_) largest = residual_->add_products(row, out, out);
        if (restricted_)  // of all lanes, in vector instructions
            for (size_t c = 0; c < width_; ++c) out[c] = ceiling_[c] < out[c] ? ceiling_[c] : out[c];
        return largest;
    }

  private:
    // out = weights . row + start; returns the largest.
    float add_products(size_t row, const float* start, float* out);
    // A feature of the block that a row has.
    struct Unpacked {
        const uint8_t* bytes;
        uint32_t id;
        uint32_t size;
    };
    static constexpr size_t kListed = 512;  // at most, of a kind, before they are written to the panel

    void unpack(size_t n_features, std::span<const uint32_t> rows, size_t lookups);
    template <bool wide>
    void unpack_found();
    static void add_listed(const FeatureWeights& found, size_t id, bool wanted, uint64_t& counts,
                           Unpacked* listed);
    template <class Wanted>
    void unpack_wanted(size_t n_features, Wanted&& wanted);
    void write_panel(uint64_t counts);
    void clear_slots();
    template <class Fn>
    void for_each_id(std::span<const uint32_t> rows, Fn&& fn) const;
    void sum_unpacked(const Batch::Row& row, int32_t* sum);
    void sum_packed(const Batch::Row& row, int32_t* sum);

    template <bool wide>
    void sum_packed_as(const Batch::Row& row, int32_t* sum);
    template <size_t most>
    static void sum_listed(std::span<const BitmapWeights> hits, int32_t* sum);

    const Batch& batch_;
    const Kernels& kernels_;
    static constexpr uint32_t kNoBuckets[] = {0};
    PackedBlock block_{kNoBuckets, {}, 0};
    size_t n_children_ = 0, width_ = 0;
    bool unpacked_ = false;
    bool with_residual_ = false;
    bool restricted_ = false;
    std::unique_ptr<BlockScorer> residual_;
    alignas(64) float scale_[kBlockChildren];
    alignas(64) float bias_[kBlockChildren];
    alignas(64) float ceiling_[kBlockChildren];  // if restricted: kExcluded for excluded children

    // Features of a row that the block has, by their number of weights: up to two, four, eight, or a bitmap.
    // Which comes next is hard to predict: they are sorted without a branch, and each kind needs none.
    std::vector<BitmapWeights> hits_[4];

    AlignedVector<StoredWeight> panel_;  // panel_[slot * width_ + child], zeros included
    std::vector<uint32_t> slot_;         // feature id -> slot; 0: none, as between blocks
    std::vector<uint32_t> id_of_slot_;
    size_t n_slots_ = 0;
    std::vector<Unpacked> listed_;     // kListed of each kind
    std::vector<uint64_t> wanted_;     // a bit for each feature id, 0 between blocks
    std::vector<uint32_t> row_slots_;  // of one row's features
    std::vector<int16_t> row_values_;
};

// A block of a node's children, from the `from`-th on, and the rows that need it. The caller numbers the rows
// of all blocks consecutively, from `first` on.
struct BlockRows {
    size_t node;
    size_t from;
    size_t first;
    std::span<const uint32_t> rows;
    size_t cost = 0;
};

// Visits blocks with all threads; each block is unpacked once for all rows that need it.
class BlockLoop {
  public:
    BlockLoop(const Batch& batch, const Kernels& kernels, Pool& pool)
        : batch_(batch), kernels_(kernels), pool_(pool), scorers_(pool.threads()) {}

    // fn(scorer of the block, block, row, its number) for all rows of all blocks. Reorders the blocks, and
    // splits large ones.
    template <class Fn>
    void run(const Forest& forest, std::vector<BlockRows>& blocks, Fn&& fn) {
        balance(forest, blocks);
        pool_.run(blocks.size(), [&](size_t b, unsigned worker) {
            auto& scorer = scorers_[worker];
            if (!scorer) scorer = std::make_unique<BlockScorer>(batch_, kernels_);
            scorer->open(forest, blocks[b].node, blocks[b].from, blocks[b].rows);
            for (size_t i = 0; i < blocks[b].rows.size(); ++i)
                fn(*scorer, blocks[b], blocks[b].rows[i], blocks[b].first + i);
        });
    }

  private:
    void balance(const Forest& forest, std::vector<BlockRows>& blocks) const;

    const Batch& batch_;
    const Kernels& kernels_;
    Pool& pool_;
    std::vector<std::unique_ptr<BlockScorer>> scorers_;
};

}  // namespace bonsai

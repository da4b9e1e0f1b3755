// Computes the margins of rows, block by block: the multiplications of prediction.
#pragma once

#include <atomic>
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

// The features that a row and a block share, while the row's margins are computed. One object per thread.
struct RowScratch {
    // Grouped by their number of weights: up to two, four, eight, or a bitmap. The next kind is
    // unpredictable: grouping needs no branch, and neither does each kind.
    std::vector<BitmapWeights> hits[4];
    std::vector<uint32_t> slots;  // in the panel
    std::vector<int16_t> values;
};

// A block that is ready to be multiplied with rows of a batch. For few rows it stays packed, and their
// features are looked up. For many rows it is unpacked into a dense panel first; in between, only the
// features of the batch are looked up and unpacked. Reusable. Threads share an open block.
class OpenBlock {
  public:
    OpenBlock(const Batch& batch, const Kernels& kernels) : batch_(batch), kernels_(kernels) {}

    // Selects the block of a node's children from `from` on, and the rows whose margins will be requested.
    // With a pool, all its threads unpack the block.
    void open(const Forest& forest, size_t node, size_t from, std::span<const uint32_t> rows,
              Pool* pool = nullptr);
    size_t n_children() const { return n_children_; }
    // The margins of a row, padded with -1e15 to a multiple of 16; returns the largest.
    float margins(size_t row, RowScratch& scratch, float* out) const {
        float largest = add_products(row, bias_, scratch, out);
        if (with_residual_) largest = residual_->add_products(row, out, scratch, out);
        if (restricted_)  // on all lanes, with vector instructions
            for (size_t c = 0; c < width_; ++c) out[c] = ceiling_[c] < out[c] ? ceiling_[c] : out[c];
        return largest;
    }

  private:
    // out = weights . row + start; returns the largest.
    float add_products(size_t row, const float* start, RowScratch& scratch, float* out) const;
    // A feature of the block that occurs in a row.
    struct Unpacked {
        const uint8_t* bytes;
        uint32_t id;
        uint32_t size;
    };
    static constexpr size_t kListed = 512;  // maximum per kind before they are written to the panel

    // Lists of features by kind, until they are written to the panel.
    struct Lists {
        Unpacked features[4][kListed];
        uint64_t n = 0;  // one 16-bit count per kind, in one register

        void add(const FeatureWeights& found, size_t id, bool wanted);
        // A record has up to 255 features: the next record might not fit.
        bool full() const { return n & 0x0100010001000100; }
    };

    void make_room();
    void unpack(size_t n_features, std::span<const uint32_t> rows, size_t lookups, Pool* pool);
    template <bool wide>
    void unpack_found(size_t first, size_t last);
    template <class Wanted>
    void unpack_wanted(size_t n_features, Pool* pool, Wanted&& wanted);
    template <class Wanted>
    void unpack_buckets(size_t first, size_t last, size_t n_features, Wanted&& wanted);
    void write_panel(Lists& lists);
    void clear_slots();
    template <class Fn>
    void for_each_id(std::span<const uint32_t> rows, Fn&& fn) const;
    void sum_unpacked(const Batch::Row& row, RowScratch& scratch, int32_t* sum) const;
    void sum_packed(const Batch::Row& row, RowScratch& scratch, int32_t* sum) const;

    template <bool wide>
    void sum_packed_as(const Batch::Row& row, RowScratch& scratch, int32_t* sum) const;
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
    std::unique_ptr<OpenBlock> residual_;
    alignas(64) float scale_[kBlockChildren];
    alignas(64) float bias_[kBlockChildren];
    alignas(64) float ceiling_[kBlockChildren];  // if restricted: kExcluded for excluded children

    Buffer<StoredWeight> panel_;  // panel_[slot * width_ + child], zeros included
    std::vector<uint32_t> slot_;  // feature id -> slot; 0: none; all 0 between blocks
    Buffer<uint32_t> id_of_slot_;
    size_t max_slots_ = 0;
    std::atomic<size_t> n_slots_ = 0;
    std::vector<uint64_t> wanted_;  // one bit per feature id; 0 between blocks
};

// A thread's access to an open block.
class BlockScorer {
  public:
    void select(const OpenBlock& block) { block_ = &block; }
    size_t n_children() const { return block_->n_children(); }
    // See OpenBlock.
    float margins(size_t row, float* out) { return block_->margins(row, scratch_, out); }

  private:
    const OpenBlock* block_ = nullptr;
    RowScratch scratch_;
};

// The block of a node's children from position `from` on, and the rows that need it. The caller numbers the
// rows of all blocks consecutively; those of this block start at `first`.
struct BlockRows {
    size_t node;
    size_t from;
    size_t first;
    std::span<const uint32_t> rows;
    size_t cost = 0;
};

// Visits blocks with all threads; each block is opened once for all rows that need it.
class BlockLoop {
  public:
    BlockLoop(const Batch& batch, const Kernels& kernels, Pool& pool)
        : batch_(batch), kernels_(kernels), pool_(pool), open_(pool.threads()), scorers_(pool.threads()) {}

    // Calls fn(scorer of the block, block, row, its number) for all rows of all blocks. Reorders the blocks.
    // Several threads share the rows of a large block.
    template <class Fn>
    void run(const Forest& forest, std::vector<BlockRows>& blocks, Fn&& fn) {
        const size_t share = balance(forest, blocks);
        pool_.run(blocks.size(), [&](size_t b, unsigned worker) {
            const BlockRows& block = blocks[b];
            auto& open = open_[worker];
            if (!open) open = std::make_unique<OpenBlock>(batch_, kernels_);
            const size_t n_pieces = std::min(block.cost / share, block.rows.size() / kLeastRows) + 1;
            open->open(forest, block.node, block.from, block.rows, n_pieces > 1 ? &pool_ : nullptr);
            const auto visit = [&](size_t piece, unsigned by) {
                scorers_[by].select(*open);
                const size_t end = block.rows.size() * (piece + 1) / n_pieces;
                for (size_t i = block.rows.size() * piece / n_pieces; i < end; ++i)
                    fn(scorers_[by], block, block.rows[i], block.first + i);
            };
            if (n_pieces == 1)
                visit(0, worker);
            else
                pool_.run(n_pieces, visit);
        });
    }

  private:
    static constexpr size_t kLeastRows = 32;  // rows of a piece

    // Returns the maximum cost that one thread should take at a time.
    size_t balance(const Forest& forest, std::vector<BlockRows>& blocks) const;

    const Batch& batch_;
    const Kernels& kernels_;
    Pool& pool_;
    std::vector<std::unique_ptr<OpenBlock>> open_;  // per worker
    std::vector<BlockScorer> scorers_;              // per worker
};

}  // namespace bonsai

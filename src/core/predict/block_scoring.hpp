// Margins of rows, block by block and by all threads: the part of prediction that multiplies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"
#include "model/forest.hpp"

namespace bonsai {

// Rows as lists of (feature, value). Values are whole numbers of 16 bits, times the row's unit. Times stored
// weights of 8 bits their sums are whole numbers, too: the same in any order, on every machine, and whatever
// the row's companions are.
class Batch {
  public:
    void read(const RowsView& x, size_t begin, size_t end, bool normalize, Pool& pool);

    size_t size() const { return rows_.size(); }
    // The number of its values that are not 0.
    size_t row_size(size_t row) const { return rows_[row].n; }
    // Of all rows; rounded up.
    size_t mean_row_size() const { return feature_.size() / std::max<size_t>(1, size()) + 1; }

  private:
    friend class BlockScorer;
    struct Row {
        size_t first;
        size_t n = 0;
        float unit = 0;
    };

    void read_row(const RowsView& x, size_t i, bool normalize, Row& row);
    void number_features(size_t n_features);

    std::vector<Row> rows_;
    std::vector<uint32_t> feature_;
    std::vector<int16_t> value_;
    // The features that occur, numbered from 1 on as they are met: frequent ones come early, so that tables
    // by number are small, and the parts of them that are read most stand together. Empty if there are too
    // few rows for tables.
    std::vector<uint32_t> number_;     // of each value's feature
    std::vector<uint32_t> number_of_;  // feature -> number; 0: does not occur
    std::vector<uint32_t> numbered_;   // number - 1 -> feature
};

// One worker's way into the weights.
class BlockScorer {
  public:
    BlockScorer(const Batch& batch, const Kernels& kernels) : batch_(batch), kernels_(kernels) {}

    // Takes up the block that holds a node's children from `from` on. `rows` are those of the batch whose
    // margins will be asked for: if there are many, the block is unpacked for them.
    void open(const Forest& forest, size_t node, size_t from, std::span<const uint32_t> rows);
    size_t n_children() const { return n_children_; }
    // A row's margins, and more up to a multiple of 16: these, of no child, are as low as margins can be.
    // Returns the largest.
    float margins(size_t row, float* out);

  private:
    void unpack(size_t n_features, std::span<const uint32_t> rows, size_t lookups);
    template <class Wanted>
    void unpack_wanted(size_t n_features, Wanted&& wanted);
    void place_found(uint64_t counts);
    void clear_slots();
    template <class Fn>
    void for_each_number(std::span<const uint32_t> rows, Fn&& fn) const;
    void sum_unpacked(size_t row, int32_t* sum);
    void sum_packed(size_t row, int32_t* sum);

    // A feature that a block holds, and that is wanted.
    struct Found {
        const uint8_t* bytes;
        uint32_t number;
        uint32_t size;
    };
    static constexpr size_t kListed = 512;  // at most, of a kind, before they are written to the panel

    // The features of a row that a block holds, by how many weights they have: up to two, four, eight, or
    // spread. Which comes next is hard to predict: they are sorted without a branch, and each kind needs
    // none.
    struct Hits {
        std::vector<BitmapWeights> list;
        size_t n = 0;
        void clear(size_t most) {
            if (list.size() < most) list.resize(most);
            n = 0;
        }
    };
    template <size_t most>
    static void sum_listed(const Hits& hits, int32_t* sum);

    const Batch& batch_;
    const Kernels& kernels_;
    static constexpr uint32_t kNoBuckets[] = {0};
    PackedBlock block_{kNoBuckets, {}, 0};
    size_t n_children_ = 0, width_ = 0;
    bool unpacked_ = false;
    alignas(64) float scale_[kBlockChildren];
    alignas(64) float bias_[kBlockChildren];
    std::vector<StoredWeight, PanelAllocator<StoredWeight>> panel_;  // see unpack
    std::vector<uint32_t> slot_;    // number of a feature -> its place in panel_; 0: none, as between blocks
    std::vector<uint32_t> placed_;  // place -> number
    size_t n_placed_ = 0;           // the first place that is not taken
    std::vector<Found> found_;      // kListed of each kind
    std::vector<uint64_t> wanted_;  // a bit for each number, 0 between blocks
    std::vector<uint32_t> places_;  // in panel_, of one row's features
    std::vector<int16_t> values_;   // of the same
    Hits hits_[4];
};

// A block of a node's children, from the `from`-th on, and the rows that need it, which the caller numbers
// through from `first` on.
struct BlockRows {
    size_t node;
    size_t from;
    size_t first;
    std::span<const uint32_t> rows;
    size_t cost = 0;
};

// Goes through blocks with all threads: each block is read and unpacked once for all rows that need it.
class BlockLoop {
  public:
    BlockLoop(const Batch& batch, const Kernels& kernels, Pool& pool)
        : batch_(batch), kernels_(kernels), pool_(pool), scorers_(pool.threads()) {}

    // fn(scorer that has the block open, block, row, its number) for all rows of all blocks. Orders the
    // blocks, and splits some.
    template <class Fn>
    void run(const Forest& forest, std::vector<BlockRows>& blocks, Fn&& fn) {
        share_out(forest, blocks);
        pool_.run(blocks.size(), [&](size_t b, unsigned worker) {
            auto& scorer = scorers_[worker];
            if (!scorer) scorer = std::make_unique<BlockScorer>(batch_, kernels_);
            scorer->open(forest, blocks[b].node, blocks[b].from, blocks[b].rows);
            for (size_t i = 0; i < blocks[b].rows.size(); ++i)
                fn(*scorer, blocks[b], blocks[b].rows[i], blocks[b].first + i);
        });
    }

  private:
    void share_out(const Forest& forest, std::vector<BlockRows>& blocks) const;

    const Batch& batch_;
    const Kernels& kernels_;
    Pool& pool_;
    std::vector<std::unique_ptr<BlockScorer>> scorers_;
};

}  // namespace bonsai

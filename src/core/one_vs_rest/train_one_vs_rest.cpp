#include "one_vs_rest/train_one_vs_rest.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/random.hpp"
#include "model/pack.hpp"
#include "one_vs_rest/label_units.hpp"

namespace bonsai {
namespace {

// Preparing the rows takes about 1 / kPreparation of the other work.
constexpr uint64_t kPreparation = 20;

// Packs a block of 128 classifiers as soon as its last classifier is solved.
class BlockPacker {
  public:
    BlockPacker(size_t n_labels, const Dataset& data)
        : data_(data),
          classifiers_(n_labels),
          blocks_((n_labels + kBlockChildren - 1) / kBlockChildren),
          missing_(std::make_unique<std::atomic<size_t>[]>(blocks_.size())) {
        for (size_t b = 0; b < blocks_.size(); ++b) missing_[b] = block(b).size();
    }

    void add(size_t position, QuantisedClassifier&& classifier) {
        classifiers_[position] = std::move(classifier);
        const size_t b = position / kBlockChildren;
        if (--missing_[b] == 0) blocks_[b] = pack_block(block(b), data_);
    }

    std::vector<PackedNode>& blocks() { return blocks_; }

  private:
    std::span<QuantisedClassifier> block(size_t b) {
        const size_t first = b * kBlockChildren;
        return std::span(classifiers_).subspan(first, std::min(kBlockChildren, classifiers_.size() - first));
    }

    const Dataset& data_;
    std::vector<QuantisedClassifier> classifiers_;
    std::vector<PackedNode> blocks_;
    std::unique_ptr<std::atomic<size_t>[]> missing_;  // missing classifiers per block
};

Bytes to_bytes(std::span<const QuantisedClassifier> classifiers) {
    std::vector<float> bias, scale;
    std::vector<int32_t> n_iter;
    std::vector<uint8_t> converged;
    std::vector<uint32_t> size;
    size_t n_weights = 0;
    for (const QuantisedClassifier& found : classifiers) {
        bias.push_back(found.bias);
        scale.push_back(found.scale);
        n_iter.push_back(found.n_iter);
        converged.push_back(found.converged);
        size.push_back(static_cast<uint32_t>(found.feature.size()));
        n_weights += size.back();
    }
    ByteWriter out;
    out.reserve(n_weights * 5 + classifiers.size() * 40 + 64);
    out.array(std::span<const float>(bias));
    out.array(std::span<const float>(scale));
    out.array(std::span<const int32_t>(n_iter));
    out.array(std::span<const uint8_t>(converged));
    out.array(std::span<const uint32_t>(size));
    for (const QuantisedClassifier& found : classifiers) {
        out.items(std::span<const uint32_t>(found.feature));
        out.items(std::span<const StoredWeight>(found.weight));
    }
    return out.take();
}

std::vector<QuantisedClassifier> from_bytes(std::span<const uint8_t> bytes, size_t n, size_t n_columns) {
    ByteReader in(bytes);
    const auto bias = in.array<float>(), scale = in.array<float>();
    const auto n_iter = in.array<int32_t>();
    const auto converged = in.array<uint8_t>();
    const auto size = in.array<uint32_t>();
    const auto fail = [] {
        throw std::invalid_argument("the result of a unit of work is not that of such labels");
    };
    if (bias.size() != n || scale.size() != n || n_iter.size() != n || converged.size() != n ||
        size.size() != n)
        fail();
    std::vector<QuantisedClassifier> classifiers(n);
    for (size_t c = 0; c < n; ++c) {
        QuantisedClassifier& found = classifiers[c];
        found.bias = bias[c];
        found.scale = scale[c];
        found.n_iter = n_iter[c];
        found.converged = converged[c] != 0;
        in.items(found.feature, size[c]);
        in.items(found.weight, size[c]);
        for (const uint32_t f : found.feature)
            if (f >= n_columns) fail();
        if (std::find(found.weight.begin(), found.weight.end(), 0) != found.weight.end()) fail();
        auto sorted = found.feature;
        std::sort(sorted.begin(), sorted.end());
        if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) fail();
    }
    in.end();
    return classifiers;
}

class OneVsRestClassifiers final : public ClassifierStage {
  public:
    OneVsRestClassifiers(const Dataset& data, std::span<const uint32_t> labels, std::span<const float> costs,
                         double frequent_share, uint64_t seed, const LinearParams& params, OldForest old,
                         const Kernels& kernels)
        : labels_(labels.begin(), labels.end()),
          costs_(costs.begin(), costs.end()),
          key_(derive(seed, kForSolver)),
          params_(params),
          old_forest_(std::move(old)),
          kernels_(kernels),
          rows_(data, labels_),
          plan_(rows_, frequent_share),
          packer_(std::make_unique<BlockPacker>(labels.size(), data)) {
        std::vector<uint64_t> unit_costs;
        for (size_t u = 0; u < plan_.n_units(); ++u) unit_costs.push_back(plan_.unit_cost(u));
        preparation_ = std::accumulate(unit_costs.begin(), unit_costs.end(), uint64_t{0}) / kPreparation;
        set_costs(std::move(unit_costs));
    }

    OwnedForest finish(Pool& pool, TrainReport& report, const Fetch&) override {
        require_complete();
        prepared_.reset();
        OwnedForest forest;
        forest.tree_ptr = {0, 1};
        forest.child_ptr = {0, static_cast<int64_t>(labels_.size())};
        forest.children.assign(labels_.begin(), labels_.end());
        forest.is_leaf = {1};
        std::vector<OwnedForest*> parts;
        for (PackedNode& block : packer_->blocks()) {
            parts.push_back(&block.part);
            add_numbers(block, block.part.bias.size(), report);
        }
        append(forest, parts, pool);
        forest.block_ptr = {0, static_cast<int64_t>(forest.shift.size())};
        return forest;
    }

  protected:
    void prepare(std::span<const uint32_t>, Pool& pool) override {
        if (!prepared_) prepared_.emplace(plan_, labels_.size() >= kIndexedLabels, key_, pool);
        if (old_forest_.forest && !old_)
            old_ = old_classifiers(*old_forest_.forest, old_forest_.n_rows, rows_, prepared_->slice);
        solver_ = std::make_unique<UnitSolver>(plan_, *prepared_, costs_, key_, params_,
                                               old_ ? &*old_ : nullptr, kernels_, pool, pool.control());
    }
    // The prepared rows are kept for the next call, until the last unit is solved.
    void release() override { solver_.reset(); }
    uint64_t preparation_cost() const override { return preparation_; }
    // Panels take long and are solved by one thread each: they come first, and windows fill the gaps.
    void sort_units(std::vector<uint32_t>& units) const override { std::sort(units.begin(), units.end()); }

    Bytes solve_unit(size_t unit, Pool&, unsigned, Wanted wanted) override {
        std::vector<QuantisedClassifier> found = solver_->solve(unit);
        Bytes bytes;
        if (wanted.as_bytes) bytes = to_bytes(found);
        if (wanted.keep) keep(unit, found);
        return bytes;
    }
    void add_unit(size_t unit, std::span<const uint8_t> result) override {
        auto found = from_bytes(result, plan_.unit(unit).size(), rows_.data().x().n_features);
        keep(unit, found);
    }

  private:
    void keep(size_t unit, std::vector<QuantisedClassifier>& found) {
        const auto positions = plan_.unit(unit);
        for (size_t c = 0; c < positions.size(); ++c) packer_->add(positions[c], std::move(found[c]));
    }

    const std::vector<uint32_t> labels_;
    const std::vector<float> costs_;
    const uint64_t key_;
    const LinearParams params_;
    const OldForest old_forest_;
    const Kernels& kernels_;
    const LabelRows rows_;
    const Plan plan_;
    uint64_t preparation_ = 0;
    std::unique_ptr<BlockPacker> packer_;
    std::optional<PreparedRows> prepared_;
    std::optional<OldClassifiers> old_;
    std::unique_ptr<UnitSolver> solver_;
};

}  // namespace

std::unique_ptr<ClassifierStage> one_vs_rest_classifiers(const Dataset& data,
                                                         std::span<const uint32_t> labels,
                                                         std::span<const float> costs, double frequent_share,
                                                         uint64_t seed, const LinearParams& params,
                                                         const Kernels& kernels, OldForest old) {
    return std::make_unique<OneVsRestClassifiers>(data, labels, costs, frequent_share, seed, params,
                                                  std::move(old), kernels);
}

// Active sets: all rows in two quantised forms, and the buffers of each thread.
double one_vs_rest_bytes(const ProblemSizes& sizes, const LinearParams& params, unsigned threads,
                         double model_bytes) {
    const bool indexed = sizes.n_present >= kIndexedLabels;
    const double used = sizes.n_used_features, lanes = kMaxLanes;
    double rows = slice_bytes(sizes, 1) + (4 + 2) * sizes.n_entries + 18 * sizes.n_rows;
    if (indexed) rows += 4 * sizes.n_entries + 12 * used;
    // For each thread: the weights of a classifier, dense and as a list; a panel of int16; 64 active sets,
    // and their weights before pruning, which drops most of them.
    const double per_label = model_bytes / std::max(1.0, sizes.n_present) / kPackedWeight;
    const double row_size = std::max(1.0, sizes.n_entries / std::max(1.0, sizes.n_rows));
    const double support = 8 * std::max(16.0, 4 * per_label / row_size);
    const double group = std::min(lanes, sizes.n_present);
    const double solver = (16 + 2 * lanes) * used + (indexed ? 14 : 8) * sizes.n_rows +
                          group * kGrowth * (support + 8 * kEntryBytes * per_label);
    // For windows: active sets, then classifiers before they are packed.
    const double window = std::min(sizes.n_present, kWindowGroups * lanes);
    const double n_windows = std::min<double>(threads, sizes.n_present / std::max(1.0, window));
    const double windows = n_windows * window * (72 + support + 5 * per_label) * kGrowth;
    return std::max(rows + threads * solver + windows + 72 * sizes.n_present + 1.3 * model_bytes,
                    1.3 * model_bytes + std::min<double>(kAppendedBytes, model_bytes));
}

}  // namespace bonsai

#include "one_vs_rest/train_one_vs_rest.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/random.hpp"
#include "data/slice.hpp"
#include "linear/solve.hpp"
#include "model/pack.hpp"
#include "one_vs_rest/active_set.hpp"
#include "one_vs_rest/quantised_rows.hpp"
#include "one_vs_rest/row_index.hpp"
#include "tree/train_trees.hpp"

namespace bonsai {
namespace {

// Groups of 64 labels in a window. Labels that need further rounds are regrouped within their window, so that
// many labels share a scan. All active sets of a window are in memory at the same time.
constexpr size_t kWindowGroups = 64;
// Preparing the rows takes about 1 / kPreparation of the other work.
constexpr uint64_t kPreparation = 20;

// The measured part of a label's work that is done after each round: the third round, the first with all
// passes, takes most of the time; after it, each round is the last one for half of the labels.
double part_solved(int round) {
    constexpr double warm_up[] = {0.05, 0.15, 0.55};
    return round < kWarmUpRounds ? warm_up[round] : 1 - 0.45 * std::pow(0.5, round - kWarmUpRounds + 1);
}

// Training as units of work: panels of frequent labels, then windows of the other labels. Labels are given by
// position.
class Plan {
  public:
    Plan(const Dataset& data, std::span<const uint32_t> labels, double frequent_share)
        : data_(data), labels_(labels) {
        const double most = frequent_share * static_cast<double>(data.n_rows());
        size_t sum = 0;
        for (uint32_t p = 0; p < labels.size(); ++p) {
            const bool is_frequent = static_cast<double>(n_positives(p)) > most;
            (is_frequent ? frequent_ : rare_).push_back(p);
            if (!is_frequent) sum += n_positives(p);
        }
        std::stable_sort(frequent_.begin(), frequent_.end(),
                         [&](uint32_t a, uint32_t b) { return n_positives(a) > n_positives(b); });
        mean_positives_ = std::max<uint64_t>(1, sum / std::max<size_t>(1, rare_.size()));
    }

    // Panels are few and take long: they come first, so that windows keep the other threads busy.
    size_t n_units() const { return n_panels() + n_windows(); }
    size_t n_panels() const { return (frequent_.size() + kMaxLanes - 1) / kMaxLanes; }
    size_t n_windows() const { return (rare_.size() + kWindow - 1) / kWindow; }

    const Dataset& data() const { return data_; }
    // All frequent labels, in descending order of frequency.
    std::span<const uint32_t> frequent() const { return frequent_; }
    std::span<const uint32_t> panel(size_t i) const { return part(frequent_, i, kMaxLanes); }
    std::span<const uint32_t> window(size_t i) const { return part(rare_, i, kWindow); }
    // The labels of a unit.
    std::span<const uint32_t> unit(size_t i) const {
        return i < n_panels() ? panel(i) : window(i - n_panels());
    }

    // The work of a unit in the measure of the progress. Half of a label's time grows with its positives
    // (measured on EURLEX57K, Delicious and YSO); a panel of frequent labels takes as long as one or two
    // groups.
    uint64_t cost(uint32_t position) const { return mean_positives_ + n_positives(position); }
    uint64_t panel_cost(size_t i) const { return 2 * mean_positives_ * panel(i).size(); }
    uint64_t unit_cost(size_t i) const {
        if (i < n_panels()) return panel_cost(i);
        uint64_t sum = 0;
        for (const uint32_t position : unit(i)) sum += cost(position);
        return sum;
    }

  private:
    static constexpr size_t kWindow = kWindowGroups * kMaxLanes;

    static std::span<const uint32_t> part(std::span<const uint32_t> all, size_t i, size_t size) {
        return all.subspan(i * size, std::min(size, all.size() - i * size));
    }
    size_t n_positives(uint32_t position) const { return data_.rows_of(labels_[position]).size(); }

    const Dataset& data_;
    std::span<const uint32_t> labels_;
    std::vector<uint32_t> rare_, frequent_;
    uint64_t mean_positives_ = 0;  // of the rare labels
};

// The rows in the form the solvers need, and the problem of the frequent labels.
struct PreparedRows {
    PreparedRows(const Dataset& data, const Plan& plan, std::span<const uint32_t> labels, uint64_t key,
                 Pool& pool)
        : slice(slice_of_all(data, pool)), rows(slice.rows(), pool) {
        if (labels.size() >= kIndexedLabels && RowIndex::can_index(slice.rows()))
            index.emplace(slice.rows(), pool);
        if (plan.n_panels() == 0) return;
        // Nearly every row affects a frequent label: the panel solver takes all rows, and the bias is learnt.
        std::vector<uint32_t> class_of_label(data.n_labels(), kNoClass), all(data.n_rows());
        std::iota(all.begin(), all.end(), 0u);
        const auto frequent = plan.frequent();
        for (uint32_t c = 0; c < frequent.size(); ++c) class_of_label[labels[frequent[c]]] = c;
        frequent_problem = build_problem(data, all, slice, class_of_label, frequent.size(), key);
    }

    static Slice slice_of_all(const Dataset& data, Pool& pool) {
        std::vector<uint32_t> all(data.n_rows());
        std::iota(all.begin(), all.end(), 0u);
        Slice::Scratch scratch;
        return {data.x(), all, data.factors(), scratch, pool};
    }

    Slice slice;
    QuantisedRows rows;
    std::optional<RowIndex> index;
    Problem frequent_problem;
};

// The classifiers of the labels in a forest, with the feature numbers of the slice of all rows.
OldClassifiers old_classifiers(const Forest& forest, size_t n_rows, std::span<const uint32_t> labels,
                               const Dataset& data, const Slice& slice) {
    std::vector<uint32_t> local(data.x().n_features, kAbsent), trained(forest.n_labels(), kAbsent);
    for (uint32_t f = 0; f < slice.features().size(); ++f) local[slice.features()[f]] = f;
    for (uint32_t p = 0; p < labels.size(); ++p) trained[labels[p]] = p;
    OldClassifiers old{.n_rows = n_rows, .weights = std::vector<std::vector<Entry>>(labels.size())};
    const auto children = forest.children(0);
    forest.for_each_weight(0, [&](size_t child, size_t feature, float value) {
        const uint32_t position = trained[children[child]];
        if (position == kAbsent) return;
        const uint32_t column = data.column_of(static_cast<uint32_t>(feature));
        if (column != Dataset::kNoColumn && local[column] != kAbsent)
            old.weights[position].push_back({local[column], value});
    });
    for (auto& weights : old.weights)
        std::sort(weights.begin(), weights.end(),
                  [](const Entry& a, const Entry& b) { return a.feature < b.feature; });
    return old;
}

// Solves the units of a plan. Its buffers belong to a pool.
class UnitSolver {
  public:
    // If `old` is null, all labels are trained from scratch.
    UnitSolver(const Plan& plan, const PreparedRows& prepared, std::span<const uint32_t> labels,
               std::span<const float> costs, uint64_t key, const LinearParams& params,
               const OldClassifiers* old, const Kernels& kernels, Pool& pool)
        : plan_(plan),
          prepared_(prepared),
          old_(old),
          context_(plan.data(), prepared.rows, prepared.index ? &*prepared.index : nullptr, labels, costs,
                   key, params, kernels, pool.control()),
          pool_(pool) {
        for (unsigned worker = 0; worker < pool.threads(); ++worker) solvers_.emplace_back(context_);
    }
    UnitSolver(const UnitSolver&) = delete;
    UnitSolver& operator=(const UnitSolver&) = delete;

    // The classifiers of the unit's labels.
    std::vector<QuantisedClassifier> solve(size_t unit) {
        return unit < plan_.n_panels() ? solve_frequent(unit) : solve_window(unit - plan_.n_panels());
    }

  private:
    // Labels of similar frequency share a panel and the mean of their costs.
    std::vector<QuantisedClassifier> solve_frequent(size_t panel) const {
        const auto positions = plan_.panel(panel);
        const size_t first = panel * kMaxLanes, n = positions.size();
        LinearParams params = context_.params;
        params.learn_bias = true;
        if (!context_.costs.empty()) {
            double sum = 0;
            for (const uint32_t position : positions) sum += context_.costs[position];
            params.c *= sum / static_cast<double>(n);
        }
        ProgressShare progress(pool_.control(), plan_.panel_cost(panel));
        const Solution solution = solve_panel(prepared_.frequent_problem, first, n, params, context_.kernels,
                                              context_.control, &progress);
        std::vector<std::vector<Entry>> weights(n);
        for (const Weight& w : solution.weights) weights[w.cls - first].push_back({w.feature, w.value});
        std::vector<QuantisedClassifier> found;
        for (size_t c = 0; c < n; ++c) {
            found.push_back(quantised(weights[c]));
            found[c].bias = solution.bias[c];
            found[c].n_iter = solution.n_iter[c];
            found[c].converged = solution.converged[c] != 0;
        }
        progress.finish();
        return found;
    }

    struct Window {
        std::vector<ActiveSet> sets;
        std::vector<ProgressShare> shares;
        std::vector<QuantisedClassifier> found;

        size_t index(const ActiveSet* set) const { return static_cast<size_t>(set - sets.data()); }
    };

    // Rounds of groups of 64, until all labels of the window are solved. In the warm-up, a group is 64
    // consecutive labels; later, 64 of the labels that are still unsolved.
    std::vector<QuantisedClassifier> solve_window(size_t number) {
        const auto positions = plan_.window(number);
        Window window{.sets = std::vector<ActiveSet>(positions.size()),
                      .shares = {},
                      .found = std::vector<QuantisedClassifier>(positions.size())};
        std::vector<ActiveSet*> open, resumed;
        for (size_t s = 0; s < positions.size(); ++s) {
            window.sets[s].position = positions[s];
            window.shares.emplace_back(pool_.control(), plan_.cost(positions[s]));
            const bool has_prior = old_ && !old_->weights[positions[s]].empty();
            (has_prior ? resumed : open).push_back(&window.sets[s]);
        }
        solve_rounds(window, std::move(open), false);
        solve_rounds(window, std::move(resumed), true);
        return std::move(window.found);
    }

    // `resumed`: these labels start from a prior.
    void solve_rounds(Window& window, std::vector<ActiveSet*> open, bool resumed) {
        for (int round = kWarmUpRounds - 1; round < kMaxRounds && !open.empty(); ++round) {
            std::vector<uint64_t> unsolved((open.size() + kMaxLanes - 1) / kMaxLanes);
            pool_.run(unsolved.size(), [&](size_t g, unsigned worker) {
                const size_t begin = g * kMaxLanes, size = std::min(kMaxLanes, open.size() - begin);
                unsolved[g] = solve_group(window, std::span(open).subspan(begin, size), round, resumed,
                                          solvers_[worker]);
            });
            size_t n_open = 0;
            for (size_t o = 0; o < open.size(); ++o)
                if (unsolved[o / kMaxLanes] >> (o % kMaxLanes) & 1) open[n_open++] = open[o];
            open.resize(n_open);
        }
    }

    // Returns bit l: group[l] is still unsolved. The others are finished; after the last round all are.
    uint64_t solve_group(Window& window, std::span<ActiveSet* const> group, int round, bool resumed,
                         ActiveSetSolver& solver) const {
        const auto report = [&](int after_round) {
            for (const ActiveSet* set : group)
                window.shares[window.index(set)].advance_to(part_solved(after_round));
        };
        const bool first = round < kWarmUpRounds;
        if (first && resumed) solver.resume(group, *old_);
        const uint64_t unsolved = first && !resumed ? solver.warm_up(group, report)
                                                    : solver.advance(group, std::max(round, kWarmUpRounds),
                                                                     resumed ? old_->n_rows : 0);
        report(round);
        for (size_t l = 0; l < group.size(); ++l) {
            const bool solved = !(unsolved >> l & 1);
            if (!solved && round + 1 < kMaxRounds) continue;
            group[l]->converged &= solved;
            const size_t s = window.index(group[l]);
            window.found[s] = finish(*group[l], solver);
            window.shares[s].finish();
        }
        return unsolved;
    }

    // The active set is freed.
    QuantisedClassifier finish(ActiveSet& set, ActiveSetSolver& solver) const {
        std::vector<Entry> weights = solver.weights(set);
        std::erase_if(weights, [&](const Entry& w) { return !(std::abs(w.value) > context_.params.prune); });
        QuantisedClassifier found = quantised(weights);
        found.bias = context_.params.fixed_bias;
        found.n_iter = set.n_iter;
        found.converged = set.converged;
        set.row = {};
        set.alpha = {};
        return found;
    }

    // Features are columns of the data.
    QuantisedClassifier quantised(std::span<const Entry> weights) const {
        const auto features = prepared_.slice.features();
        QuantisedClassifier found;
        for (const Entry& w : weights) found.scale = std::max(found.scale, scale_for(std::abs(w.value)));
        found.feature.reserve(weights.size());
        found.weight.reserve(weights.size());
        for (const Entry& w : weights) {
            const StoredWeight q = quantise(w.value, found.scale);
            if (q == 0) continue;
            found.feature.push_back(features[w.feature]);
            found.weight.push_back(q);
        }
        return found;
    }

    const Plan& plan_;
    const PreparedRows& prepared_;
    const OldClassifiers* const old_;
    const OneVsRestContext context_;
    Pool& pool_;
    std::vector<ActiveSetSolver> solvers_;  // one for each worker
};

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

bool can_use_active_sets(bool dense, const LinearParams& params) {
    return std::visit([](auto loss) { return loss.has_active_sets; }, params.loss) &&
           params.solver == Solver::dual && !params.learn_bias && params.fixed_bias <= -1 && !dense;
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
          plan_(data, labels_, frequent_share),
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
        if (!prepared_) prepared_.emplace(plan_.data(), plan_, labels_, key_, pool);
        if (old_forest_.forest && !old_)
            old_ = old_classifiers(*old_forest_.forest, old_forest_.n_rows, labels_, plan_.data(),
                                   prepared_->slice);
        solver_ = std::make_unique<UnitSolver>(plan_, *prepared_, labels_, costs_, key_, params_,
                                               old_ ? &*old_ : nullptr, kernels_, pool);
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
        auto found = from_bytes(result, plan_.unit(unit).size(), plan_.data().x().n_features);
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
                                                         const Kernels& kernels, Pool& pool, OldForest old) {
    if (can_use_active_sets(data.x().is_dense(), params))
        return std::make_unique<OneVsRestClassifiers>(data, labels, costs, frequent_share, seed, params,
                                                      std::move(old), kernels);
    if (!costs.empty())
        throw std::invalid_argument(
            "costs of labels need sparse rows, the squared hinge, the dual solver and a bias fixed at -1 or "
            "below");
    auto one_leaf = std::make_shared<std::vector<Tree>>();
    one_leaf->push_back({.child_ptr = {0, static_cast<int64_t>(labels.size())},
                         .children = {labels.begin(), labels.end()},
                         .is_leaf = {1}});
    return classifiers_of_trees(data, std::move(one_leaf), seed, params, kernels, pool);
}

// Active sets: all rows in two quantised forms, and the buffers of each thread.
double one_vs_rest_bytes(const ProblemSizes& sizes, const LinearParams& params, unsigned threads,
                         double model_bytes) {
    if (!can_use_active_sets(sizes.dense, params))
        return leaf_classifier_bytes(sizes, params, threads, model_bytes);
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

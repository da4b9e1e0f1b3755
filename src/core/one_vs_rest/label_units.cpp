#include "one_vs_rest/label_units.hpp"

#include <cmath>

#include "linear/solve.hpp"

namespace bonsai {
namespace {

// The measured part of a label's work that is done after each round: the third round, the first with all
// passes, takes most of the time; after it, each round is the last one for half of the labels.
double part_solved(int round) {
    constexpr double warm_up[] = {0.05, 0.15, 0.55};
    return round < kWarmUpRounds ? warm_up[round] : 1 - 0.45 * std::pow(0.5, round - kWarmUpRounds + 1);
}

Slice slice_of(const LabelRows& rows, Pool& pool) {
    Slice::Scratch scratch;
    return {rows.data().x(), rows.ids(), rows.data().factors(), scratch, pool};
}

}  // namespace

bool can_use_active_sets(bool dense, const LinearParams& params) {
    return std::visit([](auto loss) { return loss.has_active_sets; }, params.loss) &&
           params.solver == Solver::dual && !params.learn_bias && params.fixed_bias <= -1 && !dense;
}

Plan::Plan(const LabelRows& rows, double frequent_share) : rows_(rows) {
    const double most = frequent_share * static_cast<double>(rows.n_rows());
    size_t sum = 0;
    for (uint32_t p = 0; p < rows.labels().size(); ++p) {
        const bool is_frequent = static_cast<double>(n_positives(p)) > most;
        (is_frequent ? frequent_ : rare_).push_back(p);
        if (!is_frequent) sum += n_positives(p);
    }
    std::stable_sort(frequent_.begin(), frequent_.end(),
                     [&](uint32_t a, uint32_t b) { return n_positives(a) > n_positives(b); });
    mean_positives_ = std::max<uint64_t>(1, sum / std::max<size_t>(1, rare_.size()));
}

uint64_t Plan::unit_cost(size_t i) const {
    if (i < n_panels()) return panel_cost(i);
    uint64_t sum = 0;
    for (const uint32_t position : unit(i)) sum += cost(position);
    return sum;
}

PreparedRows::PreparedRows(const Plan& plan, bool indexed, uint64_t key, Pool& pool)
    : slice(slice_of(plan.rows(), pool)), rows(slice.rows(), pool) {
    if (indexed && RowIndex::can_index(slice.rows())) index.emplace(slice.rows(), pool);
    if (plan.n_panels() == 0) return;
    // Nearly every row affects a frequent label: the panel solver takes all rows, and the bias is learnt.
    const LabelRows& all = plan.rows();
    std::vector<uint32_t> class_of_label(all.data().n_labels(), kNoClass);
    const auto frequent = plan.frequent();
    for (uint32_t c = 0; c < frequent.size(); ++c) class_of_label[all.labels()[frequent[c]]] = c;
    frequent_problem = build_problem(all.data(), all.ids(), slice, class_of_label, frequent.size(), key);
}

OldClassifiers old_classifiers(const Forest& forest, size_t n_rows, const LabelRows& rows,
                               const Slice& slice) {
    const Dataset& data = rows.data();
    const std::span<const uint32_t> labels = rows.labels();
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

UnitSolver::UnitSolver(const Plan& plan, const PreparedRows& prepared, std::span<const float> costs,
                       uint64_t key, const LinearParams& params, const OldClassifiers* old,
                       const Kernels& kernels, Pool& pool, Control& progress)
    : plan_(plan),
      prepared_(prepared),
      old_(old),
      context_(plan.rows(), prepared.rows, prepared.index ? &*prepared.index : nullptr, costs, key, params,
               kernels, pool.control()),
      pool_(pool),
      progress_(progress),
      solvers_(pool.threads()) {}

// Labels of similar frequency share a panel and the mean of their costs.
std::vector<QuantisedClassifier> UnitSolver::solve_frequent(size_t panel) const {
    const auto positions = plan_.panel(panel);
    const size_t first = panel * kMaxLanes, n = positions.size();
    LinearParams params = context_.params;
    params.learn_bias = true;
    if (!context_.costs.empty()) {
        double sum = 0;
        for (const uint32_t position : positions) sum += context_.costs[position];
        params.c *= sum / static_cast<double>(n);
    }
    ProgressShare progress(progress_, plan_.panel_cost(panel));
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

// Rounds of groups of 64, until all labels of the window are solved. In the warm-up, a group is 64
// consecutive labels; later, 64 of the labels that are still unsolved.
std::vector<QuantisedClassifier> UnitSolver::solve_window(size_t number) {
    const auto positions = plan_.window(number);
    Window window{.sets = std::vector<ActiveSet>(positions.size()),
                  .shares = {},
                  .found = std::vector<QuantisedClassifier>(positions.size())};
    std::vector<ActiveSet*> open, resumed;
    for (size_t s = 0; s < positions.size(); ++s) {
        window.sets[s].position = positions[s];
        window.shares.emplace_back(progress_, plan_.cost(positions[s]));
        const bool has_prior = old_ && !old_->weights[positions[s]].empty();
        (has_prior ? resumed : open).push_back(&window.sets[s]);
    }
    solve_rounds(window, std::move(open), false);
    solve_rounds(window, std::move(resumed), true);
    return std::move(window.found);
}

// `resumed`: these labels start from a prior.
void UnitSolver::solve_rounds(Window& window, std::vector<ActiveSet*> open, bool resumed) {
    for (int round = kWarmUpRounds - 1; round < kMaxRounds && !open.empty(); ++round) {
        std::vector<uint64_t> unsolved((open.size() + kMaxLanes - 1) / kMaxLanes);
        pool_.run(unsolved.size(), [&](size_t g, unsigned worker) {
            const size_t begin = g * kMaxLanes, size = std::min(kMaxLanes, open.size() - begin);
            if (!solvers_[worker]) solvers_[worker].emplace(context_);
            unsolved[g] =
                solve_group(window, std::span(open).subspan(begin, size), round, resumed, *solvers_[worker]);
        });
        size_t n_open = 0;
        for (size_t o = 0; o < open.size(); ++o)
            if (unsolved[o / kMaxLanes] >> (o % kMaxLanes) & 1) open[n_open++] = open[o];
        open.resize(n_open);
    }
}

// Returns bit l: group[l] is still unsolved. The others are finished; after the last round all are.
uint64_t UnitSolver::solve_group(Window& window, std::span<ActiveSet* const> group, int round, bool resumed,
                                 ActiveSetSolver& solver) const {
    const auto report = [&](int after_round) {
        for (const ActiveSet* set : group)
            window.shares[window.index(set)].advance_to(part_solved(after_round));
    };
    const bool first = round < kWarmUpRounds;
    if (first && resumed) solver.resume(group, *old_);
    const uint64_t unsolved =
        first && !resumed ? solver.warm_up(group, report)
                          : solver.advance(group, std::max(round, kWarmUpRounds), resumed ? old_->n_rows : 0);
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
QuantisedClassifier UnitSolver::finish(ActiveSet& set, ActiveSetSolver& solver) const {
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
QuantisedClassifier UnitSolver::quantised(std::span<const Entry> weights) const {
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

}  // namespace bonsai

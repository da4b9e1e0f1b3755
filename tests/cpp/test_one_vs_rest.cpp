#include "one_vs_rest/train_one_vs_rest.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "check.hpp"
#include "data/slice.hpp"
#include "fixtures.hpp"
#include "one_vs_rest/active_set.hpp"
#include "one_vs_rest/quantised_rows.hpp"
#include "one_vs_rest/row_index.hpp"
#include "training.hpp"

using namespace bonsai;

namespace {

// Polls the progress of a running call: it never decreases, and never exceeds the total.
class ProgressWatch {
  public:
    explicit ProgressWatch(const Control& control)
        : thread_([this, &control] {
              for (uint64_t last = 0; !end_; std::this_thread::yield()) {
                  const uint64_t done = control.done, total = control.total;
                  good_ = good_ && done >= last && (total == 0 || done <= total);
                  last = done;
              }
          }) {}
    ~ProgressWatch() {
        end_ = true;
        thread_.join();
        CHECK(good_);
    }

  private:
    std::atomic<bool> end_ = false;
    bool good_ = true;
    std::thread thread_;
};

// Rows of a few topics, some twice, one without features; the last label is on all rows, the one before on
// one.
struct Topics {
    Topics(size_t n, size_t d, size_t n_labels, uint64_t seed) : n_labels(n_labels) {
        Rng rng(seed);
        x = {.n_rows = n, .n_features = d};
        x.ptr.push_back(0);
        label_ptr.push_back(0);
        for (size_t i = 0; i < n; ++i) {
            const size_t label = rng.below(n_labels - 2);
            for (size_t f = 0; f < d; ++f) {
                const bool own = f % (n_labels - 2) == label;
                if (i == 4 || rng.uniform() > (own ? 0.9 : 0.15)) continue;
                x.index.push_back(static_cast<int32_t>(f));
                x.value.push_back(static_cast<float>(rng.uniform() - (own ? 0.0 : 0.5)));
            }
            x.ptr.push_back(static_cast<int64_t>(x.index.size()));
            labels.push_back(static_cast<int32_t>(label));
            if (i == n / 2) labels.push_back(static_cast<int32_t>(n_labels - 2));
            labels.push_back(static_cast<int32_t>(n_labels - 1));
            label_ptr.push_back(static_cast<int64_t>(labels.size()));
        }
    }
    Topics(const Topics&) = delete;

    OwnedForest train(const LinearParams& params, const Kernels& k, unsigned threads, TrainReport& report,
                      uint64_t seed = 5) const {
        const Dataset data(x.view(), label_ptr, labels, n_labels, {}, true);
        std::vector<uint32_t> order(n_labels);
        for (size_t l = 0; l < n_labels; ++l) order[l] = static_cast<uint32_t>(n_labels - 1 - l);
        Control control;
        Pool pool(threads, control);
        const ProgressWatch watch(control);
        OwnedForest forest = train_one_vs_rest(data, order, {}, 1.0, seed, params, k, pool, report);
        CHECK(control.done == control.total && control.total > 0);
        return forest;
    }

    size_t n_labels;
    Rows x;
    std::vector<int64_t> label_ptr;
    std::vector<int32_t> labels;
};

LinearParams usual(float bias = -1.0f) {
    return {.loss = SquaredHinge{},
            .solver = Solver::dual,
            .c = 1.0,
            .tol = 0.01,
            .max_iter = 100,
            .learn_bias = false,
            .fixed_bias = bias,
            .prune = 0.0f};
}

bool same(const OwnedForest& a, const OwnedForest& b) {
    return a.children == b.children && a.bias == b.bias && a.scale == b.scale && a.block_ptr == b.block_ptr &&
           a.bucket_ptr == b.bucket_ptr && a.record_ptr == b.record_ptr && a.shift == b.shift &&
           a.buckets == b.buckets && a.records == b.records;
}

void test_same_for_any_threads_and_kernels() {
    const Topics topics(700, 90, 150, 3);
    TrainReport report;
    const OwnedForest first = topics.train(usual(), *all_kernels()[0], 1, report);
    CHECK(report.n_classifiers == 150 && report.n_unconverged == 0 && report.max_iter > 4);
    CHECK(first.children.front() == 149 && first.children.back() == 0);
    CHECK(first.tree_ptr == (std::vector<int64_t>{0, 1}) && first.is_leaf == std::vector<uint8_t>{1});
    CHECK(first.child_ptr == (std::vector<int64_t>{0, 150}) && first.shift.size() == 2);
    CHECK(first.bias == std::vector<float>(150, -1.0f));
    for (const Kernels* k : all_kernels())
        for (const unsigned threads : {1, 2, 5}) {
            TrainReport again;
            CHECK(same(topics.train(usual(), *k, threads, again), first));
            CHECK(again.max_iter == report.max_iter && again.n_unconverged == 0);
        }
    TrainReport other;
    CHECK(!same(topics.train(usual(), *all_kernels()[0], 1, other, 6), first));
}

void test_other_settings() {
    const Topics topics(120, 30, 12, 4);
    LinearParams learnt = usual();
    learnt.learn_bias = true;
    LinearParams logistic = usual();
    logistic.loss = Logistic{};
    LinearParams newton = usual();
    newton.solver = Solver::newton;
    for (const LinearParams& params : {learnt, logistic, newton, usual(-0.5f), usual(-2.0f)}) {
        TrainReport report;
        const OwnedForest forest = topics.train(params, kernels_named(""), 2, report);
        CHECK(report.n_classifiers == 12 && forest.is_leaf == std::vector<uint8_t>{1});
        CHECK(forest.children.front() == 11 && forest.children.back() == 0);
        const ForestArrays arrays{forest.tree_ptr,   forest.child_ptr, forest.children,  forest.is_leaf,
                                  forest.bias,       forest.scale,     forest.block_ptr, forest.bucket_ptr,
                                  forest.record_ptr, forest.shift,     forest.buckets,   forest.records};
        const Forest model(arrays, 30, 12);
        model.verify();
        CHECK(model.is_one_leaf() && model.position(11) == 0 && model.position(0) == 11);
    }
}

// More labels than a window holds, of few rows each, among them a frequent one: windows and blocks of the
// model overlap in every way.
void test_many_labels() {
    constexpr size_t n = 600, d = 50, n_labels = 4500;
    Rng rng(12);
    Rows x{.n_rows = n, .n_features = d, .ptr = {0}};
    std::vector<int64_t> label_ptr = {0};
    std::vector<int32_t> labels;
    for (size_t i = 0; i < n; ++i) {
        for (size_t f = 0; f < d; ++f) {
            if (rng.uniform() > 0.2) continue;
            x.index.push_back(static_cast<int32_t>(f));
            x.value.push_back(static_cast<float>(rng.uniform() + 0.1));
        }
        x.ptr.push_back(static_cast<int64_t>(x.index.size()));
        std::vector<int32_t> mine = {static_cast<int32_t>(n_labels / 2)};
        for (int j = 0; j < 22; ++j) mine.push_back(static_cast<int32_t>(rng.below(n_labels)));
        std::sort(mine.begin(), mine.end());
        mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
        labels.insert(labels.end(), mine.begin(), mine.end());
        label_ptr.push_back(static_cast<int64_t>(labels.size()));
    }
    const Dataset data(x.view(), label_ptr, labels, n_labels, {}, true);
    std::vector<uint32_t> order;
    for (uint32_t l = 0; l < n_labels; ++l)
        if (!data.rows_of(l).empty()) order.push_back(l);
    CHECK(order.size() > 4096 + 128);
    std::vector<OwnedForest> forests;
    for (const unsigned threads : {1, 3}) {
        Control control;
        Pool pool(threads, control);
        const ProgressWatch watch(control);
        TrainReport report;
        LinearParams params = usual();
        params.tol = 0.1;
        forests.push_back(
            train_one_vs_rest(data, order, {}, 0.5, 3, params, kernels_named(""), pool, report));
        CHECK(report.n_classifiers == order.size() && report.n_unconverged == 0);
        CHECK(control.done == control.total);
    }
    CHECK(same(forests[0], forests[1]));
    const auto frequent =
        static_cast<size_t>(std::find(order.begin(), order.end(), n_labels / 2) - order.begin());
    CHECK(forests[0].bias[frequent] != -1.0f);
    CHECK(std::count(forests[0].bias.begin(), forests[0].bias.end(), -1.0f) ==
          static_cast<int64_t>(order.size() - 1));
}

// Solved with solve_for_others, and added by several threads at once; blocks of the model have labels from
// several units.
void test_units_are_added_by_several_threads() {
    const Topics topics(300, 90, 400, 3);
    const Dataset data(topics.x.view(), topics.label_ptr, topics.labels, 400, {}, true);
    std::vector<uint32_t> order(400);
    for (uint32_t l = 0; l < 400; ++l) order[l] = l;
    Control control;
    Pool pool(2, control);
    const auto make = [&] {  // all labels count as frequent: small units
        return classifiers_of_labels(data, order, {}, 0.0, 5, usual(), kernels_named(""), pool);
    };
    const auto here = make(), there = make();
    std::vector<Bytes> results(there->n_units());
    there->solve_for_others(there->missing(), pool,
                            [&](size_t unit, Bytes&& result) { results[unit] = std::move(result); });
    CHECK(results.size() >= 5 && there->missing().size() == results.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            for (size_t unit = t; unit < results.size(); unit += 3) here->add(unit, results[unit]);
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(here->complete() && here->has_foreign());
    there->solve_all(pool);
    TrainReport one, other;
    CHECK(same(here->finish(pool, one), there->finish(pool, other)));
    CHECK(one.n_classifiers == other.n_classifiers && one.max_iter == other.max_iter);
}

void test_interrupt() {
    using namespace std::chrono;
    const Topics topics(700, 90, 150, 3);
    const Dataset data(topics.x.view(), topics.label_ptr, topics.labels, 150, {}, true);
    std::vector<uint32_t> order(150);
    for (uint32_t l = 0; l < 150; ++l) order[l] = l;
    for (const double part : {0.0, 0.1, 0.5}) {  // share of the work before the request to stop
        Control control;
        steady_clock::time_point asked;
        std::thread asks([&] {
            while (part > 0 && (control.total == 0 || static_cast<double>(control.done) <
                                                          part * static_cast<double>(control.total)))
                std::this_thread::yield();
            asked = steady_clock::now();
            control.stop = true;
        });
        if (part == 0) asks.join();
        Pool pool(2, control);
        TrainReport report;
        LinearParams params = usual();
        params.tol = 1e-6;  // long enough to be interrupted
        params.max_iter = 100000;
        CHECK_THROWS(train_one_vs_rest(data, order, {}, 1.0, 1, params, kernels_named(""), pool, report),
                     "interrupted");
        if (part > 0) asks.join();
        CHECK(steady_clock::now() - asked < 5s);
    }
}

// Values in words of 32 bits with their features: dot products and sums are within the rounding of the
// values. The more features, the fewer bits.
void test_quantised_rows() {
    for (const size_t d : {size_t{60}, (size_t{1} << 21) - 2, size_t{1} << 21}) {
        Rng rng(d);
        constexpr size_t n = 40;
        Rows x{.n_rows = n, .n_features = d, .ptr = {0}};
        for (size_t i = 0; i < n; ++i) {
            std::vector<uint32_t> features = rng.sample(std::min<size_t>(d, 200), i == 3 ? 0 : rng.below(30));
            for (uint32_t& f : features) f = static_cast<uint32_t>(d - 1 - f);
            std::sort(features.begin(), features.end());
            for (const uint32_t f : features) {
                x.index.push_back(static_cast<int32_t>(f));
                x.value.push_back(static_cast<float>(normal(rng)));
            }
            x.ptr.push_back(static_cast<int64_t>(x.index.size()));
        }
        Control control;
        Pool pool(2, control);
        const QuantisedRows rows(x.view(), pool);
        std::vector<float> w(d);
        for (float& v : w) v = static_cast<float>(normal(rng));
        const int bits = d == 60 ? 24 : d < (size_t{1} << 21) ? 10 : 24;  // bits of a value without its sign
        bool good = true;
        for (size_t i = 0; i < n; ++i) {
            double exact = 0, norm2 = 0, largest = 0, sum = 0;
            for_each_entry(x.view(), i, [&](uint32_t f, float v) {
                exact += double{v} * w[f];
                norm2 += double{v} * v;
                largest = std::max(largest, std::abs(double{v}));
                sum += std::abs(double{w[f]});
            });
            const double unit = largest * std::pow(0.5, bits);
            good &= std::abs(rows.dot(i, w.data()) - exact) <= unit * sum + 1e-5;
            good &= close(rows.norm2(i), norm2) && rows.row_size(i) == x.view().row_size(i);
            std::vector<float> added = w;
            rows.add(i, 0.5f, added.data());
            std::vector<double> expected(w.begin(), w.end());
            for_each_entry(x.view(), i, [&](uint32_t f, float v) { expected[f] += 0.5 * v; });
            for (size_t f = d - std::min<size_t>(d, 200); f < d; ++f)
                good &= std::abs(added[f] - expected[f]) <= unit + 1e-6;
            // With this scale no partial sum exceeds 16 bits.
            const double scale = rows.weight_scale(1.0, 0.3);
            good &= scale > 0 && scale * 0.3 <= 126.001 &&
                    scale * QuantisedRows::kUnits * std::sqrt(norm2) <= 32767.1 * largest;
        }
        CHECK(good);
        CHECK(rows.weight_scale(0.0, 0.0) == 0.0f);
    }
}

// Products of values that are rounded to levels, by plain loops.
void test_row_index() {
    Topics topics(300, 60, 20, 2);
    for (float& value : topics.x.value) value = std::abs(value);
    topics.x.value[7] = 0;
    Control control;
    Pool pool(2, control);
    const RowsView x = topics.x.view();
    CHECK(RowIndex::can_index(x));
    const RowIndex index(x, pool);
    double largest = 0, norm = 0;
    for (const float value : topics.x.value) largest = std::max(largest, double{value});
    for (size_t i = 0; i < 300; ++i) norm = std::max(norm, row_norm(x, i));
    CHECK(index.n_rows() == 300 && index.norm() == norm);
    size_t n_postings = 0;
    for (uint32_t f = 0; f < 60; ++f) {
        CHECK(std::is_sorted(index.list(f).begin(), index.list(f).end()));
        for (const uint32_t p : index.list(f)) {
            const auto row = p & ((uint32_t{1} << RowIndex::kRowBits) - 1);
            double value = -1;
            for_each_entry(x, row, [&](uint32_t g, float v) { value = g == f ? double{v} : value; });
            const double stored = index.values()[p >> RowIndex::kRowBits];
            CHECK(value >= 0 && (value < largest / 60000 || std::abs(std::log2(stored / value)) < 0.126));
        }
        n_postings += index.list(f).size();
    }
    CHECK(n_postings == topics.x.value.size());
    Rng rng(4);
    RowSearch search(index);
    for (const float least_product : {0.5f, 0.1f, 0.01f, 1e-9f}) {
        std::vector<Entry> weights;
        double norm2 = 0;
        for (uint32_t f = 0; f < 60; f += 2) {
            weights.push_back({f, static_cast<float>(rng.uniform() - 0.4)});
            norm2 += std::pow(std::max(weights.back().value, 0.0f), 2);
        }
        const auto found = search.find(weights, least_product, 0.5f);
        std::vector<double> sums(300, 0.0);
        size_t n = 0;
        for (const Entry& w : weights)
            for (const uint32_t p : index.list(w.feature)) {
                const float product = w.value * index.values()[p >> RowIndex::kRowBits];
                if (product < least_product) continue;
                sums[p & 0xffffff] += product;
                ++n;
            }
        CHECK(std::abs(static_cast<double>(search.n_postings()) - static_cast<double>(n)) <= 1);
        std::vector<int> times(300, 0);
        for (const uint32_t row : found) ++times[row];
        const double rounding = 30 * std::sqrt(norm2) * norm * 1.1 / 32000;
        for (size_t i = 0; i < 300; ++i) {
            CHECK(times[i] <= 1);
            if (std::abs(sums[i] - 0.5) > rounding) CHECK(times[i] == (sums[i] > 0.5));
        }
    }
    CHECK(search.find({}, 0.1f, 0.5f).empty());
    const Rows dense{.n_rows = 1, .n_features = 1, .dense = {1.0f}};
    CHECK(!RowIndex::can_index(dense.view()));
}

// Enough labels for a row index: each row has one feature and 50 labels of its own.
void test_indexed_labels() {
    const size_t n_rows = 1000, n_labels = 50 * n_rows;
    Rows x{.n_rows = n_rows, .n_features = n_rows + 1, .ptr = {0}};
    std::vector<int64_t> label_ptr = {0};
    std::vector<int32_t> labels;
    for (size_t i = 0; i < n_rows; ++i) {
        x.index.insert(x.index.end(), {static_cast<int32_t>(i), static_cast<int32_t>(n_rows)});
        x.value.insert(x.value.end(), {1.0f, 0.5f});
        x.ptr.push_back(static_cast<int64_t>(x.index.size()));
        for (size_t l = 50 * i; l < 50 * (i + 1); ++l) labels.push_back(static_cast<int32_t>(l));
        label_ptr.push_back(static_cast<int64_t>(labels.size()));
    }
    const Dataset data(x.view(), label_ptr, labels, n_labels, {}, true);
    std::vector<uint32_t> order(n_labels);
    for (uint32_t l = 0; l < n_labels; ++l) order[l] = l;
    OwnedForest forests[2];
    for (const unsigned threads : {1, 2}) {
        Control control;
        Pool pool(threads, control);
        TrainReport report;
        LinearParams params = usual();
        params.tol = 0.1;
        forests[threads - 1] =
            train_one_vs_rest(data, order, {}, 1.0, 3, params, kernels_named(""), pool, report);
        CHECK(report.n_classifiers == n_labels && report.n_unconverged == 0);
    }
    CHECK(same(forests[0], forests[1]));
}

// Checks solved classifiers with plain loops: the weights are the sum of y alpha x, rows outside the active
// set do not violate the margin, and the projected gradient of rows inside is within the tolerance. A search
// that costs more than a scan is not used.
void test_active_sets(bool indexed, double scan_cost = 0) {
    Topics topics(700, 90, 100, 9);
    if (indexed)
        for (float& value : topics.x.value) value = std::abs(value);
    const Dataset data(topics.x.view(), topics.label_ptr, topics.labels, 100, {}, true);
    std::vector<uint32_t> all(700), labels(64);
    for (uint32_t i = 0; i < 700; ++i) all[i] = i;
    for (uint32_t l = 0; l < 64; ++l) labels[l] = 99 - l;
    Control control;
    Pool pool(1, control);
    Slice::Scratch scratch;
    const Slice slice(data.x(), all, data.factors(), scratch, pool);
    const QuantisedRows rows(slice.rows(), pool);
    LinearParams params = usual();
    params.tol = 0.02;
    std::vector<float> costs(64);
    for (size_t l = 0; l < 64; ++l) costs[l] = 0.5f + static_cast<float>(l % 3);
    std::optional<RowIndex> index;
    CHECK(RowIndex::can_index(slice.rows()) == indexed);
    if (indexed) index.emplace(slice.rows(), pool);
    const LabelRows of_labels(data, labels);
    OneVsRestContext context(of_labels, rows, index ? &*index : nullptr, costs, 5, params, kernels_named(""),
                             control);
    CHECK(context.scan_cost == static_cast<double>(topics.x.value.size()));
    context.scan_cost = scan_cost;
    ActiveSetSolver solver(context), other(context);
    std::vector<ActiveSet> sets(64);
    std::vector<ActiveSet*> open;
    for (uint32_t l = 0; l < 64; ++l) {
        sets[l].position = l;
        open.push_back(&sets[l]);
    }
    int n_rounds = 0;
    uint64_t unsolved = solver.warm_up(open, [&](int round) { CHECK(round == n_rounds++); });
    CHECK(n_rounds == kWarmUpRounds && unsolved != 0);
    for (int round = kWarmUpRounds; unsolved && round < kMaxRounds; ++round) {
        std::vector<ActiveSet*> left;
        for (size_t l = 0; l < open.size(); ++l)
            if (unsolved >> l & 1) left.push_back(open[l]);
        open = left;
        std::vector<ActiveSet> alone;
        for (const ActiveSet* set : open) alone.push_back(*set);
        unsolved = solver.advance(open, round);
        for (size_t l = 0; l < open.size(); ++l) {  // further rounds do not depend on the group
            ActiveSet* one = &alone[l];
            CHECK(other.advance({&one, 1}, round) == (unsolved >> l & 1));
            CHECK(one->row == open[l]->row && one->alpha == open[l]->alpha);
        }
    }
    CHECK(unsolved == 0);
    const RowsView x = slice.rows();
    for (const ActiveSet& set : sets) {
        CHECK(set.row.capacity() == set.row.size() && set.converged);
        CHECK(set.scanned == (indexed && scan_cost == 0));
        std::vector<double> w(x.n_features, 0.0), alpha(700, -1.0), found(x.n_features, 0.0);
        for (size_t m = 0; m < set.row.size(); ++m) {
            CHECK(set.alpha[m] >= 0 && alpha[set.row[m]] < 0);
            alpha[set.row[m]] = set.alpha[m];
            for_each_entry(x, set.row[m],
                           [&](uint32_t f, float v) { w[f] += double{set.sign(m) * set.alpha[m]} * v; });
        }
        for (const Entry& e : solver.weights(set)) found[e.feature] = e.value;
        double difference = 0, low = 0, high = 0;
        for (size_t f = 0; f < w.size(); ++f) difference = std::max(difference, std::abs(found[f] - w[f]));
        CHECK(difference < 1e-4);
        const auto positives = data.rows_of(labels[set.position]);
        for (uint32_t i = 0; i < 700; ++i) {
            const bool positive =
                std::binary_search(positives.begin(), positives.end(), static_cast<int32_t>(i));
            double margin = -1;
            for_each_entry(x, i, [&](uint32_t f, float v) { margin += w[f] * v; });
            const double a = std::max(0.0, alpha[i]),
                         g = (positive ? margin : -margin) - 1 + a * 0.5 / costs[set.position];
            high = std::max(high, a > 0 ? g : 0.0);
            low = std::min(low, g);
        }
        CHECK(high - low <= 3 * params.tol);
    }
}

}  // namespace

int main() {
    test_quantised_rows();
    test_row_index();
    test_active_sets(false);
    test_active_sets(true);
    test_active_sets(true, 1e9);
    test_indexed_labels();
    test_same_for_any_threads_and_kernels();
    test_other_settings();
    test_many_labels();
    test_units_are_added_by_several_threads();
    test_interrupt();
    return check::report("one_vs_rest");
}

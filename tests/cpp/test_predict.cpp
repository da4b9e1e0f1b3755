// Prediction of many rows with several threads, compared with the same rows one by one.
#include "predict/top_k.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/random.hpp"
#include "check.hpp"
#include "training.hpp"

using namespace bonsai;

namespace {

constexpr size_t kFeatures = 120, kLabels = 300, kRows = 500;
constexpr LinearParams kLinear{.loss = SquaredHinge{},
                               .solver = Solver::dual,
                               .c = 4,
                               .tol = 0.05,
                               .max_iter = 50,
                               .learn_bias = true,
                               .fixed_bias = -1,
                               .prune = 0.01f};

// Each label has a feature or two of its own; a row has those of its labels, and some noise.
struct Texts {
    std::vector<int64_t> ptr = {0}, label_ptr = {0};
    std::vector<int32_t> index, labels;
    std::vector<float> value;

    Texts() {
        Rng rng(1);
        for (size_t i = 0; i < kRows; ++i) {
            std::vector<int32_t> features, mine;
            const size_t n = i % 50 == 7 ? 0 : 1 + rng.below(3);  // some rows are empty
            for (size_t l = 0; l < n; ++l) {
                mine.push_back(static_cast<int32_t>(rng.below(kLabels)));
                features.push_back(mine.back() % static_cast<int32_t>(kFeatures));
                features.push_back(mine.back() * 7 % static_cast<int32_t>(kFeatures));
                features.push_back(static_cast<int32_t>(rng.below(kFeatures)));
            }
            for (auto* list : {&features, &mine}) {
                std::sort(list->begin(), list->end());
                list->erase(std::unique(list->begin(), list->end()), list->end());
            }
            for (const int32_t f : features) {
                index.push_back(f);
                value.push_back(static_cast<float>(0.5 + rng.uniform()));
            }
            labels.insert(labels.end(), mine.begin(), mine.end());
            ptr.push_back(static_cast<int64_t>(index.size()));
            label_ptr.push_back(static_cast<int64_t>(labels.size()));
        }
    }
    RowsView rows(size_t begin, size_t end) const {
        RowsView view{};
        view.n_rows = end - begin;
        view.n_features = kFeatures;
        view.ptr = ptr.data() + begin;
        view.index = index.data();
        view.value = value.data();
        return view;
    }
};

// A root, inner nodes, and leaves: one with more labels than a block holds, others with few.
struct HandMade {
    std::vector<int64_t> child_ptr = {0};
    std::vector<int32_t> children;
    std::vector<uint8_t> is_leaf;

    explicit HandMade(uint64_t seed) {
        std::vector<int32_t> order(kLabels);
        std::iota(order.begin(), order.end(), 0);
        Rng(seed).shuffle(order);
        const auto add = [&](const std::vector<int32_t>& list, bool leaf) {
            children.insert(children.end(), list.begin(), list.end());
            child_ptr.push_back(static_cast<int64_t>(children.size()));
            is_leaf.push_back(leaf);
        };
        const auto leaf = [&](size_t begin, size_t end) {
            std::vector<int32_t> labels(order.begin() + static_cast<int64_t>(begin),
                                        order.begin() + static_cast<int64_t>(end));
            std::sort(labels.begin(), labels.end());
            add(labels, true);
        };
        add({1, 2, 3}, false);
        leaf(0, 160);
        add({4, 5, 6, 7, 8}, false);
        leaf(160, 190);
        for (size_t begin = 190; begin < kLabels; begin += 22) leaf(begin, begin + 22);
    }
    TreeView view() const { return {child_ptr, children, is_leaf}; }
};

struct Answer {
    std::vector<int32_t> ids;
    std::vector<float> scores;
    bool operator==(const Answer&) const = default;
};

Answer ask(const Model& model, const RowsView& x, const TopKParams& params, unsigned threads) {
    Answer answer{std::vector<int32_t>(x.n_rows * params.k), std::vector<float>(x.n_rows * params.k)};
    Control control;
    Pool pool(threads, control);
    top_k(model, x, params, kernels(), pool, answer.ids.data(), answer.scores.data());
    CHECK(control.done == x.n_rows && control.total == x.n_rows);
    return answer;
}

// Results do not depend on the other rows of the batch or the number of threads; nearly all rows get a label
// of their own.
void check_search(const Texts& texts, const Model& model, const TopKParams& params) {
    Answer one_by_one;
    for (size_t i = 0; i < kRows; ++i) {
        const Answer row = ask(model, texts.rows(i, i + 1), params, 1);
        one_by_one.ids.insert(one_by_one.ids.end(), row.ids.begin(), row.ids.end());
        one_by_one.scores.insert(one_by_one.scores.end(), row.scores.begin(), row.scores.end());
    }
    for (const unsigned threads : {1u, 2u, 5u})
        CHECK(ask(model, texts.rows(0, kRows), params, threads) == one_by_one);
    // With k = all labels, every label is scored; with a small k, most blocks are skipped.
    TopKParams all = params;
    all.k = kLabels;
    const Answer whole = ask(model, texts.rows(0, kRows), all, 2);
    bool same = true;
    for (size_t i = 0; i < kRows; ++i)
        for (size_t r = 0; r < params.k; ++r) {
            same &= whole.ids[i * kLabels + r] == one_by_one.ids[i * params.k + r];
            same &= whole.scores[i * kLabels + r] == one_by_one.scores[i * params.k + r];
        }
    CHECK(same);
    size_t right = 0, asked = 0;
    for (size_t i = 0; i < kRows; ++i) {
        const auto first = texts.labels.begin() + texts.label_ptr[i];
        const auto last = texts.labels.begin() + texts.label_ptr[i + 1];
        const int32_t best = one_by_one.ids[i * params.k];
        CHECK(std::is_sorted(one_by_one.scores.begin() + static_cast<int64_t>(i * params.k),
                             one_by_one.scores.begin() + static_cast<int64_t>((i + 1) * params.k),
                             std::greater<>()));
        if (first == last) {
            CHECK(best == -1);
            continue;
        }
        ++asked;
        right += std::binary_search(first, last, best);
    }
    CHECK(right > asked * 4 / 5);
}

// Enough rows for two batches, and for several threads in the steps between loops.
void check_many_rows(const Texts& texts, const Model& model, const TopKParams& params) {
    constexpr size_t n_copies = 20;
    std::vector<int64_t> ptr = {0};
    std::vector<int32_t> index;
    std::vector<float> value;
    for (size_t copy = 0; copy < n_copies; ++copy) {
        index.insert(index.end(), texts.index.begin(), texts.index.end());
        value.insert(value.end(), texts.value.begin(), texts.value.end());
        for (size_t i = 0; i < kRows; ++i) ptr.push_back(ptr.back() + texts.ptr[i + 1] - texts.ptr[i]);
    }
    RowsView many = texts.rows(0, kRows);
    many.n_rows = n_copies * kRows;
    many.ptr = ptr.data();
    many.index = index.data();
    many.value = value.data();
    const Answer once = ask(model, texts.rows(0, kRows), params, 1);
    Answer expected;
    for (size_t copy = 0; copy < n_copies; ++copy) {
        expected.ids.insert(expected.ids.end(), once.ids.begin(), once.ids.end());
        expected.scores.insert(expected.scores.end(), once.scores.begin(), once.scores.end());
    }
    for (const unsigned threads : {1u, 3u, 16u}) CHECK(ask(model, many, params, threads) == expected);
}

// The expected blend: one-vs-rest scores of all labels, and tree scores of the 32 best labels (of all labels
// with exact search), combined label by label.
void check_blend(const Texts& texts, const Model& trees, const Model& one_vs_rest, const Model& blend,
                 size_t beam_size, bool exact) {
    const TopKParams all{.k = kLabels, .beam_size = beam_size, .exact = exact, .n_probe = 0};
    const double w = blend.blend_weight();
    std::vector<std::vector<double>> expected(kRows, std::vector<double>(kLabels, 0.0));
    const auto add = [&](const Model& model, size_t n, double share) {
        TopKParams params = all;
        params.k = n;
        const Answer answer = ask(model, texts.rows(0, kRows), params, 2);
        for (size_t at = 0; at < answer.ids.size(); ++at)
            if (answer.ids[at] >= 0)
                expected[at / n][static_cast<size_t>(answer.ids[at])] +=
                    share * std::exp(double{answer.scores[at]});
    };
    add(one_vs_rest, kLabels, 1 - w);
    if (w > 0) add(trees, exact ? kLabels : 32, w);
    TopKParams few = all;
    few.k = 7;
    const Answer answer = ask(blend, texts.rows(0, kRows), few, 2);
    bool same = true, best = true;
    for (size_t i = 0; i < kRows; ++i) {
        std::vector<double> score = expected[i];
        for (size_t l = 0; l < kLabels && !blend.label_offsets().empty(); ++l)
            score[l] *= std::exp(double{blend.label_offsets()[l]});
        std::vector<double> sorted = score;
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        for (size_t r = 0; r < few.k; ++r) {
            const int32_t id = answer.ids[i * few.k + r];
            if (id < 0) continue;
            const double found = std::exp(double{answer.scores[i * few.k + r]});
            same &= std::abs(found - score[static_cast<size_t>(id)]) < 1e-5;
            best &= std::abs(found - sorted[r]) < 1e-5;
        }
    }
    CHECK(same);
    CHECK(best);
}

void check_refused(std::shared_ptr<const Forest> trees, std::shared_ptr<const Forest> one_vs_rest,
                   const Blend& blend) {
    CHECK_THROWS(Model(trees, one_vs_rest, SquaredHinge{}, true, blend), "inconsistent");
}

void test_batches() {
    const Texts texts;
    const Dataset data(texts.rows(0, kRows), texts.label_ptr, texts.labels, kLabels, {}, true);
    const HandMade trees[] = {HandMade(1), HandMade(2), HandMade(3)};
    const TreeView views[] = {trees[0].view(), trees[1].view(), trees[2].view()};
    LinearParams linear = kLinear;
    Control control;
    Pool pool(2, control);
    TrainReport report;
    const auto train = [&](std::span<const TreeView> some) {
        return std::make_shared<const Forest>(train_trees(data, some, 0, linear, kernels(), pool, report),
                                              kFeatures, kLabels);
    };
    const auto several = train(views), one = train({views, 1});
    linear.learn_bias = false;
    std::vector<uint32_t> labels(kLabels);
    std::iota(labels.begin(), labels.end(), 0u);
    const auto all = std::make_shared<const Forest>(
        train_one_vs_rest(data, labels, {}, 1.0, 0, linear, kernels(), pool, report), kFeatures, kLabels);
    std::vector<float> offsets(kLabels);
    for (size_t l = 0; l < kLabels; ++l) offsets[l] = -0.05f * static_cast<float>(l % 11);
    const Model models[] = {
        Model(several, nullptr, SquaredHinge{}, true),  // several trees
        Model(one, nullptr, SquaredHinge{}, true),      // one
        Model(nullptr, all, SquaredHinge{}, true),      // one-vs-rest, all labels
        Model(nullptr, all, SquaredHinge{}, true, {.label_offsets = offsets}),
        Model(several, all, SquaredHinge{}, true, {.weight = 0.3f}),
        Model(several, all, SquaredHinge{}, true, {.weight = 0.6f, .label_offsets = offsets}),
    };
    for (const size_t beam : {size_t{0}, size_t{3}})
        for (const size_t m : {size_t{3}, size_t{4}, size_t{5}})
            for (const bool exact : {false, true})
                check_blend(texts, models[0], models[2], models[m], exact ? 0 : beam, exact);
    check_refused(several, all, {});                          // two ways of ranking without a weight
    check_refused(several, nullptr, {.weight = 0.3f});        // nothing to blend with
    check_refused(several, all, {.weight = 1.0f});            // no weight for one-vs-rest
    check_refused(nullptr, all, {.label_offsets = {-0.1f}});  // one offset for all labels
    offsets[3] = 0.5f;
    check_refused(nullptr, all, {.label_offsets = offsets});  // above 0
    for (const Model& model : models)
        for (const size_t beam : {size_t{0}, size_t{3}})
            for (const size_t k : {size_t{1}, size_t{5}, size_t{40}})
                check_search(texts, model, {.k = k, .beam_size = beam, .exact = false, .n_probe = 0});
    for (const size_t m : {0, 1, 4})
        check_many_rows(texts, models[m], {.k = 5, .beam_size = 0, .exact = false, .n_probe = 0});
}

}  // namespace

int main() {
    test_batches();
    return check::report("predict");
}

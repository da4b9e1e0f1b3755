#include "linear/solve.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "check.hpp"
#include "fixtures.hpp"

using namespace bonsai;

namespace {

struct TestProblem {
    TestProblem(size_t n, size_t d, size_t n_classes, bool dense, uint64_t key)
        : rng(key), rows(n, d, 0.4, rng) {
        problem.rows = dense ? rows.dense : rows.sparse.view();
        problem.n_classes = n_classes;
        problem.key = key;
        problem.class_ptr.push_back(0);
        for (size_t i = 0; i < n; ++i) {
            double norm2 = 0;
            for (size_t f = 0; f < d; ++f) norm2 += rows.at(i, f) * rows.at(i, f);
            problem.norm2.push_back(static_cast<float>(norm2));
            problem.weight.push_back(i % 3 ? 1.0f : 2.0f);
            for (uint32_t c = 0; c < n_classes; ++c)
                if (rng.uniform() < 0.02 + 0.5 * c / static_cast<double>(n_classes))
                    problem.classes.push_back(c);
            problem.class_ptr.push_back(static_cast<int64_t>(problem.classes.size()));
        }
    }
    Rng rng;
    TestRows rows;
    Problem problem;
};

constexpr LinearParams kParams{.loss = SquaredHinge{},
                               .solver = Solver::dual,
                               .c = 1,
                               .tol = 1e-3,
                               .max_iter = 3000,
                               .learn_bias = true,
                               .fixed_bias = 0,
                               .prune = -1};

// weights[class * d + feature]; each of the panel's classes once for each feature, since nothing is pruned
std::vector<float> spelled_out(const Solution& s, size_t first, size_t n, size_t d) {
    std::vector<float> w(n * d, 0.0f);
    std::vector<int> seen(n * d, 0);
    for (const Weight& e : s.weights) {
        w[(e.cls - first) * d + e.feature] = e.value;
        ++seen[(e.cls - first) * d + e.feature];
    }
    CHECK(seen == std::vector<int>(n * d, 1));
    return w;
}

void test_panels(const Kernels& k, Loss loss, Solver solver, bool dense) {
    const Control control;
    const size_t n = 40, d = 15, n_classes = 80;
    const TestProblem test(n, d, n_classes, dense, 11);
    LinearParams params = kParams;
    params.loss = loss;
    params.solver = solver;
    std::vector<float> w, bias;
    std::vector<int32_t> n_iter;
    for (const size_t first : {0u, 64u}) {
        const size_t size = std::min<size_t>(64, n_classes - first);
        const Solution s = solve_panel(test.problem, first, size, params, k, control);
        const auto part = spelled_out(s, first, size, d);
        w.insert(w.end(), part.begin(), part.end());
        bias.insert(bias.end(), s.bias.begin(), s.bias.end());
        n_iter.insert(n_iter.end(), s.n_iter.begin(), s.n_iter.end());
        CHECK(std::count(s.converged.begin(), s.converged.end(), 1) == static_cast<int64_t>(size));
    }
    CHECK(*std::max_element(n_iter.begin(), n_iter.end()) > *std::min_element(n_iter.begin(), n_iter.end()));
    for (const auto& [first, size] :
         {std::pair<size_t, size_t>{0, 1}, {3, 20}, {30, 33}, {60, 17}, {79, 1}}) {
        const Solution s = solve_panel(test.problem, first, size, params, k, control);
        const auto part = spelled_out(s, first, size, d);
        CHECK(std::equal(part.begin(), part.end(), w.begin() + static_cast<int64_t>(first * d)));
        CHECK(std::equal(s.bias.begin(), s.bias.end(), bias.begin() + static_cast<int64_t>(first)));
        CHECK(std::equal(s.n_iter.begin(), s.n_iter.end(), n_iter.begin() + static_cast<int64_t>(first)));
    }
    // pruning drops exactly the weights up to `prune`
    params.prune = 0.3f;
    const Solution pruned = solve_panel(test.problem, 0, 64, params, k, control);
    const auto above =
        std::count_if(w.begin(), w.begin() + 64 * d, [](float v) { return std::abs(v) > 0.3f; });
    CHECK(static_cast<int64_t>(pruned.weights.size()) == above && above > 0);
    // one pass is not enough
    params.max_iter = 1;
    params.tol = 1e-9;
    const Solution hasty = solve_panel(test.problem, 0, 20, params, k, control);
    CHECK(std::count(hasty.converged.begin(), hasty.converged.end(), 0) == 20);
    CHECK(hasty.n_iter == std::vector<int32_t>(20, 1));
}

// Separate singleton entries change nothing: the classifiers are those with all entries in the rows.
void test_singleton_features(const Kernels& k, bool learn_bias) {
    const size_t n = 40, n_classes = 20;
    TestProblem test(n, 15, n_classes, false, 7);
    Rows rows{.n_rows = n, .n_features = 15};
    rows.ptr.push_back(0);
    for (size_t i = 0; i < n; ++i) {
        for_each_entry(test.problem.rows, i, [&](uint32_t f, float v) {
            rows.index.push_back(static_cast<int32_t>(f));
            rows.value.push_back(v);
        });
        for (size_t e = 0; e < i % 3; ++e) {  // row 1 has no other entries
            rows.index.push_back(static_cast<int32_t>(rows.n_features++));
            rows.value.push_back(e == 0 ? 0.7f : -1.5f);
        }
        rows.ptr.push_back(static_cast<int64_t>(rows.index.size()));
    }
    std::vector<uint32_t> ids(n);
    for (size_t i = 0; i < n; ++i) ids[i] = static_cast<uint32_t>(i);
    LinearParams params = kParams;
    params.learn_bias = learn_bias;
    params.tol = 1e-4;
    params.max_iter = 10000;
    std::vector<std::vector<float>> w, bias;
    for (const bool apart : {false, true}) {
        Control control;
        Pool pool(1, control);
        Slice::Scratch scratch;
        const Slice slice(rows.view(), ids, {}, scratch, pool, apart);
        Problem problem = test.problem;
        problem.rows = slice.rows();
        if (apart) problem.singletons = &slice.singletons();
        for (size_t i = 0; i < n; ++i)
            problem.norm2[i] = static_cast<float>(row_norm(rows.view(), i) * row_norm(rows.view(), i));
        CHECK(slice.rows().n_features == (apart ? 15 : rows.n_features));
        for (const float prune : {-1.0f, 0.2f}) {
            params.prune = prune;
            const Solution s = solve_panel(problem, 0, n_classes, params, k, Control());
            CHECK(std::count(s.converged.begin(), s.converged.end(), 1) == int64_t{n_classes});
            if (prune < 0) CHECK(s.weights.size() == rows.n_features * n_classes);
            w.emplace_back(rows.n_features * n_classes, 0.0f);
            for (const Weight& e : s.weights) {
                CHECK(std::abs(e.value) > prune);
                w.back()[e.cls * rows.n_features + slice.features()[e.feature]] = e.value;
            }
            bias.push_back(s.bias);
        }
    }
    CHECK(all_close(w[2], w[0], 1e-3));
    CHECK(all_close(bias[2], bias[0], 1e-3));
    size_t n_pruned = 0;
    for (size_t e = 0; e < w[2].size(); ++e) {
        CHECK(w[3][e] == (std::abs(w[2][e]) > 0.2f ? w[2][e] : 0.0f));
        n_pruned += e % rows.n_features >= 15 && w[2][e] != 0 && w[3][e] == 0;
    }
    CHECK(n_pruned > 0);
}

// Gradient of the objective at the solution, by plain loops: zero up to the tolerance.
void test_optimum(const Kernels& k, Loss loss, Solver solver, bool learn_bias) {
    const size_t n = 50, d = 12, n_classes = 20;
    const TestProblem test(n, d, n_classes, false, 3);
    LinearParams params = kParams;
    params.loss = loss;
    params.solver = solver;
    params.c = 0.7;
    params.tol = 1e-5;
    params.max_iter = 5000;
    params.learn_bias = learn_bias;
    params.fixed_bias = -0.3f;
    const Solution s = solve_panel(test.problem, 0, n_classes, params, k, Control());
    const auto w = spelled_out(s, 0, n_classes, d);
    double largest = 0;
    for (size_t c = 0; c < n_classes; ++c) {
        std::vector<double> gradient(w.begin() + static_cast<int64_t>(c * d),
                                     w.begin() + static_cast<int64_t>((c + 1) * d));
        gradient.push_back(s.bias[c]);
        CHECK(learn_bias || s.bias[c] == -0.3f);
        for (size_t i = 0; i < n; ++i) {
            const auto* begin = test.problem.classes.data() + test.problem.class_ptr[i];
            const auto* end = test.problem.classes.data() + test.problem.class_ptr[i + 1];
            const double y = std::find(begin, end, c) != end ? 1.0 : -1.0;
            double z = s.bias[c];
            for (size_t f = 0; f < d; ++f) z += test.rows.at(i, f) * w[c * d + f];
            z *= y;
            const double slope = std::holds_alternative<SquaredHinge>(loss) ? -2 * std::max(0.0, 1 - z)
                                                                            : -1 / (1 + std::exp(z));
            const double step = params.c * (i % 3 ? 1 : 2) * slope * y;
            for (size_t f = 0; f < d; ++f) gradient[f] += step * test.rows.at(i, f);
            gradient[d] += step;
        }
        if (!learn_bias) gradient.pop_back();
        for (const double g : gradient) largest = std::max(largest, std::abs(g));
    }
    CHECK(largest < 2e-3);
}

void test_corners(const Kernels& k, Loss loss, Solver solver) {
    LinearParams params = kParams;
    params.loss = loss;
    params.solver = solver;
    Problem empty;
    empty.class_ptr = {0};
    empty.n_classes = 3;
    const Rows none{.n_rows = 0, .n_features = 4, .ptr = {0}};
    empty.rows = none.view();
    const Solution nothing = solve_panel(empty, 0, 3, params, k, Control());
    CHECK(nothing.bias == std::vector<float>(3, 0.0f) &&
          std::count(nothing.converged.begin(), nothing.converged.end(), 1) == 3);

    // rows without features and a fixed bias: no weights, and training terminates
    Problem empty_rows;
    const Rows zeros{.n_rows = 5, .n_features = 2, .ptr = std::vector<int64_t>(6, 0)};
    empty_rows.rows = zeros.view();
    empty_rows.norm2.assign(5, 0.0f);
    empty_rows.class_ptr = {0, 1, 1, 1, 1, 1};
    empty_rows.classes = {0};
    empty_rows.n_classes = 1;
    params.learn_bias = false;
    params.fixed_bias = 0.5f;
    const Solution nowhere = solve_panel(empty_rows, 0, 1, params, k, Control());
    CHECK(nowhere.bias == std::vector<float>{0.5f});
    for (const Weight& w : nowhere.weights) CHECK(w.value == 0.0f);

    Control stopped;
    stopped.stop = true;
    const TestProblem test(20, 5, 3, false, 3);
    CHECK_THROWS(solve_panel(test.problem, 0, 3, params, k, stopped), "interrupted");
}

}  // namespace

int main() {
    for (const Kernels* k : all_kernels()) {
        for (const bool learn_bias : {false, true}) test_singleton_features(*k, learn_bias);
        for (const Loss loss : {Loss(SquaredHinge{}), Loss(Logistic{})})
            for (const Solver solver : {Solver::dual, Solver::newton}) {
                for (const bool flag : {false, true}) {
                    test_panels(*k, loss, solver, flag);
                    test_optimum(*k, loss, solver, flag);
                }
                test_corners(*k, loss, solver);
            }
    }
    return check::report("linear");
}

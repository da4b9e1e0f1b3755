#include "tree/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "fixtures.hpp"
#include "training.hpp"

using namespace bonsai;

namespace {

using Clusters = std::vector<uint32_t>;

KMeansParams params(size_t k) {
    return {.k = k, .tol = 1e-4, .max_iter = 50, .plus_plus = false, .balanced = false};
}

Partition partition(const Rows& rows, const KMeansParams& p, uint64_t key, unsigned threads = 1,
                    const Kernels& kernels = kernels_named("")) {
    Control control;
    Pool pool(threads, control);
    return partition_rows(rows.view(), p, Rng(key), kernels, pool);
}

Rows dense(size_t n_features, std::vector<float> values) {
    Rows rows{.n_rows = values.size() / n_features, .n_features = n_features};
    rows.dense = std::move(values);
    return rows;
}

Rows to_sparse(const Rows& rows) {
    Rows out{.n_rows = rows.n_rows, .n_features = rows.n_features};
    out.ptr.push_back(0);
    for (size_t i = 0; i < rows.n_rows; ++i) {
        for_each_entry(rows.view(), i, [&](uint32_t f, float v) {
            out.index.push_back(static_cast<int32_t>(f));
            out.value.push_back(v);
        });
        out.ptr.push_back(static_cast<int64_t>(out.index.size()));
    }
    return out;
}

Rows random_unit_rows(size_t n, size_t d, uint64_t key, double zero_share) {
    Rng rng(key);
    Rows rows{.n_rows = n, .n_features = d};
    for (size_t i = 0; i < n; ++i) {
        std::vector<double> v(d);
        double norm2 = 0;
        const bool zero = rng.uniform() < zero_share;
        for (auto& x : v) {
            x = zero || rng.below(2) ? 0.0 : rng.uniform() - 0.3;
            norm2 += x * x;
        }
        for (const double x : v)
            rows.dense.push_back(norm2 > 0 ? static_cast<float>(x / std::sqrt(norm2)) : 0.0f);
    }
    return rows;
}

// Two directions, found from every start.
void test_two_groups() {
    const Rows rows = dense(2, {1, 0, 0, 1, 0.96f, 0.28f, 0.28f, 0.96f});
    for (uint64_t key = 0; key < 20; ++key) {
        KMeansParams p = params(2);
        p.plus_plus = key % 2;
        const Partition found = partition(rows, p, key);
        CHECK(found.n_clusters == 2);
        const uint32_t east = found.cluster[0];
        CHECK(found.cluster == Clusters{east, 1 - east, east, 1 - east});
        CHECK(found.objective.size() >= 2);
        CHECK(std::abs(found.objective.back() - std::hypot(1.96, 0.28) / 2) < 1e-6);
    }
}

void test_alike_and_zero() {
    const Rows alike = dense(2, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0});
    for (const bool plus_plus : {false, true}) {
        KMeansParams p = params(3);
        p.plus_plus = plus_plus;
        CHECK(partition(alike, p, 1).n_clusters == 1);
    }
    KMeansParams balanced = params(3);
    balanced.balanced = true;
    CHECK(partition(alike, balanced, 1).n_clusters == 3);
    // only zero rows: distributed in turn
    const Rows zeros = dense(1, {0, 0, 0, 0, 0});
    CHECK(partition(zeros, params(2), 1).cluster == Clusters{0, 1, 0, 1, 0});
    CHECK(partition(zeros, params(9), 1).cluster == Clusters{0, 1, 2, 3, 4});
    CHECK(partition(zeros, params(2), 1).objective.empty());
    // zero rows go to the smaller side, one by one
    const Rows mixed = dense(2, {0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0});
    for (uint64_t key = 0; key < 10; ++key) {
        KMeansParams p = params(2);
        p.plus_plus = true;
        const Clusters c = partition(mixed, p, key).cluster;
        const uint32_t small = c[4], large = c[1];
        CHECK(small != large && c[0] == small && c[6] == std::min(small, large));
        CHECK(c[7] == std::max(small, large));
    }
    // stored zeros are zeros
    const Rows stored{.n_rows = 4,
                      .n_features = 2,
                      .ptr = {0, 1, 2, 4, 5},
                      .index = {0, 1, 0, 1, 1},
                      .value = {1, 1, 0, 0, 0},
                      .dense = {}};
    const Partition dealt = partition(stored, params(2), 1),
                    plain = partition(dense(2, {1, 0, 0, 1, 0, 0, 0, 0}), params(2), 1);
    CHECK(dealt.cluster == plain.cluster);
    CHECK(partition(dense(2, {1, 0}), params(2), 1).cluster == Clusters{0});
    const Rows none{.n_rows = 0, .n_features = 2, .ptr = {0}};
    CHECK(partition(none, params(2), 1).n_clusters == 0);
}

void check_valid(const Partition& found, size_t n, const KMeansParams& p) {
    std::vector<size_t> size(found.n_clusters, 0);
    bool inside = found.cluster.size() == n && found.n_clusters <= p.k;
    for (const uint32_t c : found.cluster) {
        inside &= c < size.size();
        if (c < size.size()) ++size[c];
    }
    CHECK(inside);
    const auto [least, most] = std::minmax_element(size.begin(), size.end());
    CHECK(*least > 0);
    if (p.balanced) CHECK(*most - *least <= 1);
}

void test_any_rows() {
    for (uint64_t key = 0; key < 40; ++key) {
        Rng rng(derive(77, key));
        const size_t n = 1 + rng.below(300), d = 1 + rng.below(40);
        const Rows rows = random_unit_rows(n, d, key, key % 3 ? 0.1 : 0.0), sparse = to_sparse(rows);
        KMeansParams p = params(2 + rng.below(150));
        p.plus_plus = rng.below(2);
        p.balanced = rng.below(2);
        p.max_iter = 1 + static_cast<int>(rng.below(10));
        for (const Kernels* kernels : all_kernels()) {
            const Partition found = partition(sparse, p, key, 1, *kernels);
            check_valid(found, n, p);
            check_valid(partition(rows, p, key, 1, *kernels), n, p);
            for (const unsigned threads : {2u, 3u}) {
                const Partition threaded = partition(sparse, p, key, threads, *kernels);
                CHECK(threaded.cluster == found.cluster && threaded.objective == found.objective);
            }
        }
    }
}

void test_interrupt() {
    Control control;
    Pool pool(2, control);
    control.stop = true;
    const Rows rows = random_unit_rows(50, 5, 1, 0);
    CHECK_THROWS(partition_rows(rows.view(), params(4), Rng(1), kernels_named(""), pool), "interrupted");
}

// max_depth is strict, unless oversized leaves are to be split.
void test_depth_limit() {
    const Rows rows = to_sparse(random_unit_rows(900, 20, 6, 0.05));
    std::vector<uint32_t> labels(900);
    std::iota(labels.begin(), labels.end(), 0u);
    Control control;
    Pool pool(2, control);
    struct Shape {
        size_t depth;
        int64_t largest_leaf;
    };
    const auto build = [&](size_t max_leaf_size, size_t max_depth, bool split_oversized) {
        const TreeParams p{.kmeans = params(2),
                           .max_leaf_size = max_leaf_size,
                           .max_depth = max_depth,
                           .split_oversized = split_oversized,
                           .bounded = false,
                           .seed = 8};
        const Tree tree = build_trees(rows.view(), labels, 1, p, kernels_named(""), pool)[0];
        validate_tree(tree.view(), 900);
        std::vector<size_t> depth(tree.n_nodes(), 1);
        Shape shape{1, 0};
        for (size_t v = 0; v < tree.n_nodes(); ++v) {
            shape.depth = std::max(shape.depth, depth[v]);
            const auto children = tree.view().children_of(v);
            if (tree.is_leaf[v])
                shape.largest_leaf = std::max(shape.largest_leaf, static_cast<int64_t>(children.size()));
            else
                for (const int32_t child : children) depth[child] = depth[v] + 1;
        }
        return shape;
    };
    for (const size_t max_depth : {1, 2, 3}) {
        const Shape strict = build(1, max_depth, false);
        CHECK(strict.depth == max_depth);
        CHECK(strict.largest_leaf >= 900 >> (max_depth - 1));
    }
    CHECK(build(1, 1, true).largest_leaf < 100);
    CHECK(build(1, 2, true).largest_leaf < 100 && build(1, 2, true).depth > 2);
    CHECK(build(2, 2, true).largest_leaf < 200);
    CHECK(build(9, 2, true).largest_leaf >= 450 && build(9, 2, true).depth == 2);
    CHECK(build(9, 0, false).depth > 5);
}

// Root with children 1 and 2; leaves {0, 3} and {1}.
void test_validation() {
    const Tree good{.child_ptr = {0, 2, 4, 5}, .children = {1, 2, 0, 3, 1}, .is_leaf = {0, 1, 1}};
    validate_tree(good.view(), 4);
    const auto refuse = [&](const char* why, auto change, size_t n_labels = 4) {
        Tree tree = good;
        change(tree);
        CHECK_THROWS((validate_tree(tree.view(), n_labels), 0), std::string("not a label tree: ") + why);
    };
    refuse("it has no nodes", [](Tree& t) { t = {}; });
    refuse("child_ptr must have one more entry", [](Tree& t) { t.child_ptr.pop_back(); });
    refuse("child_ptr decreases at node 1", [](Tree& t) { t.child_ptr[2] = 1; });
    refuse("child_ptr does not span", [](Tree& t) { t.child_ptr[3] = 6; });
    refuse("child_ptr does not span", [](Tree& t) { t.children.push_back(2); });
    refuse("child_ptr does not span", [](Tree& t) { t.child_ptr = {-3, 2, 4, 5}; });
    refuse("label 3, a child of node 1, is out of range", [](Tree&) {}, 3);
    refuse("label -1, a child of node 1, is out of range", [](Tree& t) { t.children[2] = -1; });
    refuse("node 3, a child of node 0, is out of range", [](Tree& t) { t.children[1] = 3; });
    refuse("node -2147483648, a child", [](Tree& t) { t.children[1] = INT32_MIN; });
    refuse("node 0 does not come after its parent 0", [](Tree& t) { t.children[0] = 0; });
    refuse("node 2 has two parents", [](Tree& t) { t.children[0] = 2; });
    refuse("label 1 is in two leaves", [](Tree& t) { t.children[2] = 1; });
    refuse("a node cannot be reached", [](Tree& t) {
        t.children = {1, 0, 3, 1};
        t.child_ptr = {0, 1, 3, 4};
    });

    // One tree of a forest: pointers that do not begin at 0.
    Tree later = good;
    for (int64_t& p : later.child_ptr) p += 100;
    validate_tree(later.view(), 4);
    CHECK(later.view().children_of(1)[1] == 3);
    CHECK(node_keys(later.view(), 5) == node_keys(good.view(), 5));
}

// Breadth-first numbers, children after their parent and in a row, every label in one leaf.
void test_trees() {
    const Rows rows = to_sparse(random_unit_rows(200, 20, 5, 0.05));
    std::vector<uint32_t> labels;
    for (uint32_t l = 0; l < 200; l += 1 + l % 2) labels.push_back(l);
    std::vector<Tree> trees;
    for (const unsigned threads : {1u, 2u, 5u}) {
        Control control;
        Pool pool(threads, control);
        const TreeParams p{.kmeans = params(3),
                           .max_leaf_size = 4,
                           .max_depth = 0,
                           .split_oversized = true,
                           .bounded = false,
                           .seed = 8};
        auto built = build_trees(rows.view(), labels, 3, p, kernels_named(""), pool);
        CHECK(control.done == control.total);
        CHECK(built[0].children != built[2].children);
        trees.push_back(std::move(built[2]));
    }
    const Tree& tree = trees[0];
    for (const Tree& other : trees)
        CHECK(other.children == tree.children && other.child_ptr == tree.child_ptr &&
              other.is_leaf == tree.is_leaf);
    std::vector<uint32_t> found;
    int32_t next = 1;
    for (size_t v = 0; v < tree.n_nodes(); ++v) {
        for (int64_t c = tree.child_ptr[v]; c < tree.child_ptr[v + 1]; ++c) {
            if (tree.is_leaf[v])
                found.push_back(static_cast<uint32_t>(tree.children[c]));
            else
                CHECK(tree.children[c] == next++);
        }
    }
    CHECK(static_cast<size_t>(next) == tree.n_nodes() && next > 10);
    std::sort(found.begin(), found.end());
    CHECK(found == labels);
    const auto keys = node_keys(tree.view(), root_key(8, 2));
    CHECK(keys[0] == derive(derive(8, 0), 2));
    CHECK(keys[1] == derive(keys[0], 0) && keys[2] == derive(keys[0], 1));
}

}  // namespace

int main() {
    test_two_groups();
    test_alike_and_zero();
    test_any_rows();
    test_interrupt();
    test_trees();
    test_depth_limit();
    test_validation();
    return check::report("tree");
}

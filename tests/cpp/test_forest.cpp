#include "model/forest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "check.hpp"
#include "forests.hpp"
#include "model/edit.hpp"
#include "model/pack.hpp"
#include "predict/model.hpp"

using namespace bonsai;
using namespace forests;

namespace {

// As from a file. A copy's vectors are exactly as large as their contents, so that a sanitizer sees the first
// byte beyond.
void construct(const OwnedForest& forest) {
    const OwnedForest exact = forest;
    Forest(exact.arrays(), kFeatures, kLabels);
}

template <class Change>
OwnedForest changed(Change&& change) {
    OwnedForest forest = make_forest(1);
    change(forest);
    return forest;
}

#define REFUSES(statement, why) \
    CHECK_THROWS(construct(changed([](OwnedForest& f) { statement; })), "the model is inconsistent: " why)

void test_structure() {
    construct(make_forest(1));
    REFUSES(f.tree_ptr.clear(), "it has no tree");
    REFUSES((f.tree_ptr = {0}), "it has no tree");
    REFUSES((f = {}), "it has no tree");
    REFUSES(f.tree_ptr[0] = 1, "tree_ptr");
    REFUSES(f.tree_ptr[2] = 7, "tree_ptr");
    REFUSES((f.tree_ptr = {0, 5, 3, 6}), "tree_ptr");
    REFUSES((f.tree_ptr = {0, 5, 5, 6}), "tree 1 is not a label tree: it has no nodes");
    REFUSES(f.child_ptr.pop_back(), "child_ptr");
    REFUSES(f.child_ptr[0] = -1, "child_ptr");
    REFUSES(f.child_ptr[2] = 100000, "child_ptr");
    REFUSES(f.child_ptr[1] = f.child_ptr[2] + 1, "child_ptr");
    REFUSES(f.children.push_back(0), "child_ptr");
    REFUSES(f.block_ptr[2] = -1, "block_ptr");
    REFUSES(f.block_ptr.pop_back(), "block_ptr");
    REFUSES(f.shift.pop_back(), "block_ptr");
    REFUSES(f.record_ptr[1] = std::numeric_limits<int64_t>::max(), "record_ptr");
    REFUSES(f.record_ptr[1] = -1, "record_ptr");
    REFUSES(f.record_ptr[0] = 1, "record_ptr");
    REFUSES(f.records.pop_back(), "record_ptr");
    REFUSES(f.records.clear(), "record_ptr");
    REFUSES(f.record_ptr.push_back(f.record_ptr.back()), "record_ptr");
    REFUSES(f.bucket_ptr[3] = 0, "bucket_ptr");
    REFUSES(f.bucket_ptr[3] = f.bucket_ptr[4], "a block without buckets");
    REFUSES(f.buckets.push_back(0), "bucket_ptr");
    REFUSES(f.buckets.clear(), "bucket_ptr");
    REFUSES(f.bias.pop_back(), "bias and scale");
    REFUSES(f.scale.push_back(1), "bias and scale");
    REFUSES(f.shift[0] = 17, "shift");
}

#define REFUSES_TREE(statement, why) REFUSES(statement, "tree 0 is not a label tree: " why)

void test_nodes() {
    REFUSES_TREE(f.children[0] = 0, "node 0 does not come after its parent 0");
    REFUSES_TREE(f.children[0] = -1, "node -1, a child of node 0, is out of range");
    REFUSES_TREE(f.children[1] = 5,
                 "node 5, a child of node 0, is out of range");  // the root of the next tree
    REFUSES_TREE(f.children[2] = -1, "label -1, a child of node 1, is out of range");
    REFUSES_TREE(f.children[2] = kLabels, "label 700, a child of node 1, is out of range");
    REFUSES_TREE(f.children[0] = 2, "node 2 has two parents");
    REFUSES_TREE(f.children[0] = 4, "node 4 has two parents");
    REFUSES_TREE(f.children[2] = f.children[3], "label 1 is in two leaves");
    REFUSES_TREE(f.is_leaf[1] = 0, "node 0 does not come after its parent 1");
    REFUSES(f.block_ptr[4] -= 1, "blocks that do not fit a node's children");
    REFUSES(f.bias[7] = NAN, "a bias or scale that is not finite");
    REFUSES(f.bias[7] = -INFINITY, "a bias or scale that is not finite");
    REFUSES(f.scale[500] = INFINITY, "a bias or scale that is not finite");
    const OwnedForest forest = make_forest(1);
    CHECK_THROWS(Forest(forest.arrays(), kFeatures, kLabels - 1),
                 "label 699, a child of node 0, is out of range");
    constexpr size_t too_many = size_t{1} << 31;
    CHECK_THROWS(Forest(forest.arrays(), too_many, kLabels), "too many features or labels");
    CHECK_THROWS(Forest(forest.arrays(), kFeatures, too_many), "too many features or labels");
    const Forest model(forest.arrays(), kFeatures, kLabels);
    CHECK(model.n_trees() == 2);
    CHECK(model.n_features() == kFeatures && model.n_labels() == kLabels);
}

// All structure is copied, so that later changes of the caller's arrays have no effect. Weights are not
// copied.
void test_ownership() {
    OwnedForest mine = make_forest(1);
    const OwnedForest before = mine;
    const Forest forest(mine.arrays(), kFeatures, kLabels);
    for_each_structure_array(
        [](const char*, auto& array, auto view, const auto& original) {
            std::fill(array.begin(), array.end(), array.back());
            CHECK(view.data() != array.data() && std::equal(view.begin(), view.end(), original.begin()));
        },
        mine, forest.arrays(), before);
    CHECK(forest.arrays().buckets.data() == mine.buckets.data());
    CHECK(forest.arrays().records.data() == mine.records.data());
    forest.verify();

    auto owner = std::make_shared<const OwnedForest>(make_forest(2));
    const std::weak_ptr<const OwnedForest> alive = owner;
    {
        const Forest mapped(owner->arrays(), kFeatures, kLabels, owner);
        owner.reset();
        mapped.verify();
        CHECK(!alive.expired());
    }
    CHECK(alive.expired());

    const Forest made(make_forest(1), kFeatures, kLabels);  // takes the vectors over
    for_each_array(
        [](const char*, auto view, const auto& original) {
            CHECK(std::equal(view.begin(), view.end(), original.begin(), original.end()));
        },
        made.arrays(), before);
}

// Weights above a threshold stay as they are, for any number of threads.
void test_pruned() {
    const Forest whole(make_forest(1), kFeatures, kLabels);
    const ForestArrays& a = whole.arrays();
    float largest = 0;
    for (size_t v = 0; v < a.is_leaf.size(); ++v)
        whole.for_each_weight(v, [&](size_t, size_t, float w) { largest = std::max(largest, std::abs(w)); });
    for (const unsigned threads : {1u, 3u})
        for (const float prune : {0.0f, 0.4f * largest, largest}) {
            Control control;
            Pool pool(threads, control);
            const auto part = pruned(whole, prune, pool);
            part->verify();
            for (size_t v = 0; v < a.is_leaf.size(); ++v) {
                std::map<std::pair<size_t, size_t>, float> expected, found;
                whole.for_each_weight(v, [&](size_t child, size_t feature, float w) {
                    if (std::abs(w) > prune) expected[{child, feature}] = w;
                });
                part->for_each_weight(v, [&](size_t c, size_t feature, float w) { found[{c, feature}] = w; });
                CHECK(found == expected);
            }
        }
}

// Parts that exceed the bytes copied at a time, including an empty part.
void test_append() {
    std::vector<OwnedForest> parts(4);
    std::vector<OwnedForest*> order;
    for (size_t p = 0; p < parts.size(); ++p) {
        OwnedForest& part = parts[p];
        order.push_back(&part);
        if (p == 1) continue;
        part.bias = part.scale = {static_cast<float>(p)};
        part.shift = {static_cast<uint8_t>(p)};
        part.buckets.assign(p + 1, 7);
        part.records.assign(kAppendedBytes * 2 / 3 + p, static_cast<uint8_t>(p));
        part.bucket_ptr = {0, static_cast<int64_t>(part.buckets.size())};
        part.record_ptr = {0, static_cast<int64_t>(part.records.size())};
    }
    Control control;
    Pool pool(2, control);
    OwnedForest forest;
    append(forest, order, pool);
    CHECK(forest.bias == (std::vector<float>{0, 2, 3}) && forest.scale == forest.bias);
    CHECK(forest.shift == (std::vector<uint8_t>{0, 2, 3}));
    CHECK(forest.bucket_ptr == (std::vector<int64_t>{0, 1, 4, 8}) && forest.buckets.size() == 8);
    size_t begin = 0;
    for (size_t block = 0; block < 3; ++block) {
        const auto end = static_cast<size_t>(forest.record_ptr[block + 1]);
        CHECK(end - begin == kAppendedBytes * 2 / 3 + forest.shift[block]);
        CHECK(std::count(forest.records.begin() + static_cast<int64_t>(begin),
                         forest.records.begin() + static_cast<int64_t>(end),
                         forest.shift[block]) == static_cast<int64_t>(end - begin));
        begin = end;
    }
    CHECK(begin == forest.records.size());
    for (const OwnedForest& part : parts) CHECK(part.records.empty());
}

// One leaf, as one-vs-rest classifiers are.
std::shared_ptr<const Forest> one_leaf(size_t n_features, size_t n_labels) {
    Rng rng(3);
    OwnedForest f;
    f.tree_ptr = f.child_ptr = f.block_ptr = f.bucket_ptr = f.record_ptr = {0};
    add_node(f, {4, 2, 7}, true, rng);
    f.tree_ptr.push_back(1);
    return std::make_shared<const Forest>(std::move(f), n_features, n_labels);
}

void test_model() {
    const auto trees = std::make_shared<const Forest>(make_forest(1), kFeatures, kLabels);
    const auto all = one_leaf(kFeatures, kLabels);
    CHECK(all->is_one_leaf() && !trees->is_one_leaf());
    CHECK(all->position(2) == 1 && all->position(7) == 2 && all->position(3) == kAbsent);
    const auto make = [](auto first, auto second, float weight = 0) {
        Model(first, second, Logistic{}, true, {.weight = weight});
    };
    const std::shared_ptr<const Forest> none;
    make(trees, none);
    make(none, all);
    make(trees, all, 0.5f);
    CHECK_THROWS(make(trees, all), "a blend weight");
    CHECK_THROWS(make(none, none), "neither trees nor one-vs-rest classifiers");
    CHECK_THROWS(make(none, trees), "not in a single leaf");
    CHECK_THROWS(make(trees, one_leaf(kFeatures, kLabels + 1), 0.5f),
                 "differ in their number of labels or features");
    CHECK_THROWS(make(trees, one_leaf(kFeatures + 1, kLabels), 0.5f),
                 "differ in their number of labels or features");
}

}  // namespace

int main() {
    test_structure();
    test_nodes();
    test_ownership();
    test_pruned();
    test_append();
    test_model();
    return check::report("forest");
}

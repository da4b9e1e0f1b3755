#include "model/label_tree.hpp"

#include <stdexcept>
#include <string>

#include "base/random.hpp"

namespace bonsai {

namespace {

[[noreturn]] void fail(const std::string& why) {
    throw std::invalid_argument("not a label tree: " + why);
}

}  // namespace

void validate_tree(const TreeView& tree, size_t n_labels) {
    const size_t n = tree.n_nodes();
    if (n == 0) fail("it has no nodes");
    if (tree.child_ptr.size() != n + 1) fail("child_ptr must have one more entry than there are nodes");
    for (size_t v = 0; v < n; ++v)
        if (tree.child_ptr[v] > tree.child_ptr[v + 1])
            fail("child_ptr decreases at node " + std::to_string(v));
    if (tree.child_ptr[0] < 0 ||
        tree.child_ptr[n] - tree.child_ptr[0] != static_cast<int64_t>(tree.children.size()))
        fail("child_ptr does not span the children");
    std::vector<bool> has_parent(n, false), has_leaf(n_labels, false);
    size_t n_reached = 1;
    for (size_t v = 0; v < n; ++v) {
        const bool leaf = tree.is_leaf[v] != 0;
        for (const int32_t child : tree.children_of(v)) {
            const auto name = [&] { return (leaf ? "label " : "node ") + std::to_string(child); };
            if (child < 0 || static_cast<size_t>(child) >= (leaf ? n_labels : n))
                fail(name() + ", a child of node " + std::to_string(v) + ", is out of range");
            if (!leaf && static_cast<size_t>(child) <= v)
                fail(name() + " does not come after its parent " + std::to_string(v));
            auto seen = (leaf ? has_leaf : has_parent)[static_cast<size_t>(child)];
            if (seen) fail(name() + (leaf ? " is in two leaves" : " has two parents"));
            seen = true;
            n_reached += !leaf;
        }
    }
    if (n_reached < n) fail("a node cannot be reached from the root");
}

uint64_t root_key(uint64_t seed, size_t tree) {
    return derive(derive(seed, 0), tree);
}

std::vector<uint64_t> node_keys(const TreeView& tree, uint64_t root) {
    std::vector<uint64_t> keys(tree.n_nodes(), root);
    for (size_t v = 0; v < keys.size(); ++v) {
        if (tree.is_leaf[v]) continue;
        const auto children = tree.children_of(v);
        for (size_t c = 0; c < children.size(); ++c) keys[children[c]] = derive(keys[v], c);
    }
    return keys;
}

}  // namespace bonsai

#include "model/forest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/kernels.hpp"
#include "model/label_tree.hpp"

namespace bonsai {
namespace {

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the model is inconsistent: ") + what);
}

void require_offsets(std::span<const int64_t> ptr, size_t n, size_t end, const char* what) {
    require(ptr.size() == n + 1 && ptr[0] == 0 && ptr[n] == static_cast<int64_t>(end), what);
    require(std::is_sorted(ptr.begin(), ptr.end()), what);
}

}  // namespace

Forest::Forest(OwnedForest&& made, size_t n_features, size_t n_labels)
    : owned_(std::move(made)), a_(owned_.arrays()), n_features_(n_features), n_labels_(n_labels) {
    index();
}

Forest::Forest(const ForestArrays& arrays, size_t n_features, size_t n_labels,
               std::shared_ptr<const void> owner, std::shared_ptr<const Forest> residual)
    : owner_(std::move(owner)), residual_(std::move(residual)), n_features_(n_features), n_labels_(n_labels) {
    a_ = arrays;
    for_each_structure_array(
        [](const char*, auto& view, auto& copy, const auto& given) {
            copy.assign(given.begin(), given.end());
            view = copy;
        },
        a_, owned_, arrays);
    check_structure();
    if (residual_) check_residual();
    index();
}

Forest::Forest(std::shared_ptr<const Forest> whole, std::span<const uint8_t> allowed)
    : owner_(whole),
      residual_(whole->residual_),
      a_(whole->a_),
      n_features_(whole->n_features_),
      n_labels_(whole->n_labels_),
      position_(whole->position_),
      allowed_(a_.children.size()),
      inner_(whole->inner_) {
    require(allowed.size() == n_labels_, "the number of marks differs from the number of labels");
    for (size_t t = n_trees(); t-- > 0;) {
        const int64_t root = a_.tree_ptr[t];
        std::vector<uint8_t> has_label(static_cast<size_t>(a_.tree_ptr[t + 1] - root));
        for (int64_t v = a_.tree_ptr[t + 1]; v-- > root;)  // children come after their parents
            for (int64_t c = a_.child_ptr[v]; c < a_.child_ptr[v + 1]; ++c) {
                const auto child = static_cast<size_t>(a_.children[c]);
                allowed_[c] = a_.is_leaf[v] ? allowed[child] != 0 : has_label[child];
                has_label[v - root] |= allowed_[c];
            }
    }
    if (!is_one_leaf()) return;
    masks_.resize(n_blocks(0) * kBlockChildren, 0);
    for (size_t c = 0; c < allowed_.size(); ++c) masks_[c] = static_cast<int16_t>(-allowed_[c]);
}

void Forest::index() {
    for (size_t t = 0; t < n_trees(); ++t) {
        InnerNodes& inner = inner_.emplace_back();
        for (int64_t v = a_.tree_ptr[t]; v < a_.tree_ptr[t + 1]; ++v) {
            if (a_.is_leaf[v]) continue;
            const size_t n = padded_lanes(n_children(static_cast<size_t>(v)));
            inner.children += n;
            inner.widest = std::max(inner.widest, n);
        }
    }
    if (!is_one_leaf()) return;
    position_.assign(n_labels_, kAbsent);
    for (size_t c = 0; c < a_.children.size(); ++c) position_[a_.children[c]] = static_cast<uint32_t>(c);
}

size_t Forest::max_choices(size_t beam_size) const {
    size_t all = 0;
    for (const InnerNodes& inner : inner_)
        all += beam_size > inner.children / std::max<size_t>(1, inner.widest) ? inner.children
                                                                              : beam_size * inner.widest;
    return all;
}

Forest::Classifier Forest::classifier(size_t child) const {
    if (child >= a_.children.size()) throw std::invalid_argument("the forest has no such child");
    const auto after =
        std::upper_bound(a_.child_ptr.begin(), a_.child_ptr.end(), static_cast<int64_t>(child));
    const auto node = static_cast<size_t>(after - a_.child_ptr.begin()) - 1;
    const size_t at = child - static_cast<size_t>(a_.child_ptr[node]);
    return {.block = static_cast<size_t>(a_.block_ptr[node]) + at / kBlockChildren,
            .lane = at % kBlockChildren,
            .scale = a_.scale[child],
            .bias = a_.bias[child]};
}

void Forest::check_structure() const {
    const size_t nodes = a_.is_leaf.size(), children = a_.children.size(), blocks = a_.shift.size();
    constexpr size_t most = std::numeric_limits<int32_t>::max();
    require(n_features_ <= most && n_labels_ <= most, "too many features or labels");
    require(nodes <= most, "too many nodes");
    require(a_.tree_ptr.size() >= 2, "it has no tree");
    require_offsets(a_.tree_ptr, a_.tree_ptr.size() - 1, nodes, "tree_ptr");
    require_offsets(a_.child_ptr, nodes, children, "child_ptr");
    require_offsets(a_.block_ptr, nodes, blocks, "block_ptr");
    require_offsets(a_.bucket_ptr, blocks, a_.buckets.size(), "bucket_ptr");
    require_offsets(a_.record_ptr, blocks, a_.records.size(), "record_ptr");
    require(a_.bias.size() == children && a_.scale.size() == children, "bias and scale");
    for (size_t t = 0; t < n_trees(); ++t) check_tree(t);
    for (size_t v = 0; v < nodes; ++v)
        require(static_cast<size_t>(a_.block_ptr[v + 1] - a_.block_ptr[v]) == n_blocks(v),
                "blocks that do not fit a node's children");
    for (size_t c = 0; c < children; ++c)
        require(std::isfinite(a_.bias[c]) && std::isfinite(a_.scale[c]),
                "a bias or scale that is not finite");
    for (size_t b = 0; b < blocks; ++b) {
        require(a_.shift[b] <= kMaxShift, "shift");
        require(a_.bucket_ptr[b] < a_.bucket_ptr[b + 1], "a block without buckets");
    }
}

void Forest::check_tree(size_t tree) const {
    const auto first = static_cast<size_t>(a_.tree_ptr[tree]);
    const size_t n = static_cast<size_t>(a_.tree_ptr[tree + 1]) - first;
    const auto child_ptr = a_.child_ptr.subspan(first, n + 1);
    const auto n_children = static_cast<size_t>(child_ptr[n] - child_ptr[0]);
    try {
        validate_tree({child_ptr, a_.children.subspan(static_cast<size_t>(child_ptr[0]), n_children),
                       a_.is_leaf.subspan(first, n)},
                      n_labels_);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("the model is inconsistent: tree " + std::to_string(tree) + " is " +
                                    error.what());
    }
}

void Forest::check_residual() const {
    const auto& other = residual_->a_;
    require(residual_->n_features_ == n_features_ && std::ranges::equal(other.tree_ptr, a_.tree_ptr) &&
                std::ranges::equal(other.child_ptr, a_.child_ptr) &&
                std::ranges::equal(other.block_ptr, a_.block_ptr),
            "a residual of other trees");
}

void Forest::verify() const {
    if (residual_) residual_->verify();
    for (size_t v = 0; v < a_.is_leaf.size(); ++v) {
        size_t left = n_children(v);
        for (int64_t b = a_.block_ptr[v]; b < a_.block_ptr[v + 1]; ++b) {
            const size_t n_children = std::min(left, kBlockChildren);
            block(static_cast<size_t>(b)).verify(n_features_, n_children);
            left -= n_children;
        }
    }
}

void OwnedForest::add_block(std::span<const uint32_t> features, std::span<const uint32_t> ptr,
                            std::span<const uint8_t> child, std::span<const StoredWeight> weight) {
    shift.push_back(static_cast<uint8_t>(encode_block(features, ptr, child, weight, buckets, records)));
    bucket_ptr.push_back(static_cast<int64_t>(buckets.size()));
    record_ptr.push_back(static_cast<int64_t>(records.size()));
}

}  // namespace bonsai

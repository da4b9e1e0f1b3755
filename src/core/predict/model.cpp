#include "predict/model.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace bonsai {

Model::Model(std::shared_ptr<const Forest> trees, std::shared_ptr<const Forest> one_vs_rest, Loss loss,
             bool normalize, Blend blend, std::shared_ptr<const LabelIndex> index, bool strict_beam,
             std::shared_ptr<const RowTrees> row_trees)
    : trees_(std::move(trees)),
      one_vs_rest_(std::move(one_vs_rest)),
      loss_(loss),
      normalize_(normalize),
      blend_(std::move(blend)),
      index_(std::move(index)),
      strict_beam_(strict_beam),
      row_trees_(std::move(row_trees)) {
    const auto require = [](bool holds, const char* what) {
        if (!holds) throw std::invalid_argument(std::string("the model is inconsistent: ") + what);
    };
    require(trees_ || one_vs_rest_, "it has neither trees nor one-vs-rest classifiers");
    require(blend_.weight >= 0 && blend_.weight < 1, "its blend weight is not between 0 and 1");
    require((blend_.weight > 0) == (trees_ && one_vs_rest_),
            "a blend weight needs trees and one-vs-rest classifiers, and they need one");
    require(
        blend_.row_trees >= 0 && blend_.row_trees < 1 && (blend_.row_trees > 0) == (row_trees_ != nullptr),
        "trees over rows need a weight between 0 and 1, and only they have one");
    require(!row_trees_ || (one_vs_rest_ && row_trees_->n_labels() == one_vs_rest_->n_labels() &&
                            row_trees_->n_features() == one_vs_rest_->n_features()),
            "trees over rows need one-vs-rest classifiers of the same labels and features");
    require(blend_.label_offsets.empty() ||
                (one_vs_rest_ && blend_.label_offsets.size() == one_vs_rest_->n_labels()),
            "the number of label offsets differs from the number of labels of its one-vs-rest classifiers");
    for (const float offset : blend_.label_offsets)
        require(offset <= 0 && std::isfinite(offset), "the offset of a label is above 0 or not finite");
    require(!index_ || (one_vs_rest_ && index_->n_features() == one_vs_rest_->n_features() &&
                        index_->n_positions() == one_vs_rest_->arrays().children.size()),
            "its label index does not belong to its one-vs-rest classifiers");
    if (!one_vs_rest_) return;
    require(!strict_beam_, "a strict beam is for trees that rank labels alone");
    require(!one_vs_rest_->residual(), "one-vs-rest classifiers have a residual");
    require(one_vs_rest_->is_one_leaf(), "the one-vs-rest classifiers are not in a single leaf");
    require(!trees_ || (trees_->n_labels() == one_vs_rest_->n_labels() &&
                        trees_->n_features() == one_vs_rest_->n_features()),
            "trees and one-vs-rest classifiers differ in their number of labels or features");
}

namespace {

std::shared_ptr<const Forest> restricted(const std::shared_ptr<const Forest>& forest,
                                         std::span<const uint8_t> allowed) {
    return forest ? std::make_shared<const Forest>(forest, allowed) : nullptr;
}

}  // namespace

Model::Model(const Model& whole, std::span<const uint8_t> allowed)
    : trees_(restricted(whole.trees_, allowed)),
      one_vs_rest_(restricted(whole.one_vs_rest_, allowed)),
      loss_(whole.loss_),
      normalize_(whole.normalize_),
      blend_(whole.blend_),
      index_(whole.index_),
      strict_beam_(whole.strict_beam_),
      row_trees_(whole.row_trees_) {}

}  // namespace bonsai

// The data of prediction: trees, one-vs-rest classifiers or both, and the conversion of margins into scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "linear/loss.hpp"
#include "model/forest.hpp"
#include "predict/row_trees.hpp"
#include "search/label_index.hpp"

namespace bonsai {

// How the scores of trees and one-vs-rest classifiers are combined.
struct Blend {
    float weight = 0;     // of the trees in the blend, in [0, 1); 0: the trees only find candidates
    float row_trees = 0;  // of trees over rows in the blend, in [0, 1)
    std::vector<float> label_offsets = {};  // added to the log score of each label, at most 0; empty: none
};

// Immutable. Trees alone rank labels by the classifiers of their leaves. One-vs-rest classifiers, a forest of
// one leaf that holds all labels, rank all labels, or the labels found by the trees' beam search or by an
// index over the classifiers. With a blend weight, labels are ranked by the weighted mean of both scores,
// which may include trees over rows as well.
//
// A beam search keeps the best inner nodes of each level; leaves that it reaches are kept with all their
// labels. With a strict beam, leaves compete with inner nodes, and a leaf contributes at most as many labels
// as the beam has nodes: the search of omikuji.
class Model {
  public:
    // Trees or one-vs-rest classifiers may be null, not both. Throws std::invalid_argument unless all parts
    // are consistent.
    Model(std::shared_ptr<const Forest> trees, std::shared_ptr<const Forest> one_vs_rest, Loss loss,
          bool normalize, Blend blend = {}, std::shared_ptr<const LabelIndex> index = nullptr,
          bool strict_beam = false, std::shared_ptr<const RowTrees> row_trees = nullptr);

    // The same model restricted to some of its labels: other labels are never found and take no place in a
    // beam. It shares the weights. `allowed` has one byte per label, 0 for excluded ones.
    Model(const Model& whole, std::span<const uint8_t> allowed);

    const Forest* trees() const { return trees_.get(); }
    const Forest* one_vs_rest() const { return one_vs_rest_.get(); }
    // The index over the one-vs-rest classifiers; may be null.
    const LabelIndex* index() const { return index_.get(); }
    // Trees over rows that the blend includes; may be null.
    const RowTrees* row_trees() const { return row_trees_.get(); }
    const std::shared_ptr<const Forest>& shared_trees() const { return trees_; }
    const std::shared_ptr<const Forest>& shared_one_vs_rest() const { return one_vs_rest_; }
    const std::shared_ptr<const LabelIndex>& shared_index() const { return index_; }
    const std::shared_ptr<const RowTrees>& shared_row_trees() const { return row_trees_; }
    Loss loss() const { return loss_; }
    // Whether rows are divided by their norm before prediction.
    bool normalize() const { return normalize_; }
    bool strict_beam() const { return strict_beam_; }
    float blend_weight() const { return blend_.weight; }
    float row_tree_weight() const { return blend_.row_trees; }
    std::span<const float> label_offsets() const { return blend_.label_offsets; }
    size_t n_features() const { return any().n_features(); }
    size_t n_labels() const { return any().n_labels(); }

  private:
    const Forest& any() const { return trees_ ? *trees_ : *one_vs_rest_; }

    std::shared_ptr<const Forest> trees_, one_vs_rest_;
    Loss loss_;
    bool normalize_;
    Blend blend_;
    std::shared_ptr<const LabelIndex> index_;
    bool strict_beam_;
    std::shared_ptr<const RowTrees> row_trees_;
};

}  // namespace bonsai

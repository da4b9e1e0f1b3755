// All that prediction needs: trees, one-vs-rest classifiers or both, and how margins become scores.
#pragma once

#include <cstddef>
#include <memory>

#include "linear/loss.hpp"
#include "model/forest.hpp"

namespace bonsai {

// Immutable. Trees alone rank labels by the classifiers of their leaves. One-vs-rest classifiers, a forest of
// one leaf that holds all labels, rank all labels, or those that the trees' beam search finds.
class Model {
  public:
    // Either may be null, not both. Throws std::invalid_argument unless they fit each other.
    Model(std::shared_ptr<const Forest> trees, std::shared_ptr<const Forest> one_vs_rest, Loss loss,
          bool normalize);

    const Forest* trees() const { return trees_.get(); }
    const Forest* one_vs_rest() const { return one_vs_rest_.get(); }
    const std::shared_ptr<const Forest>& shared_trees() const { return trees_; }
    const std::shared_ptr<const Forest>& shared_one_vs_rest() const { return one_vs_rest_; }
    Loss loss() const { return loss_; }
    // Whether rows are divided by their norm first.
    bool normalize() const { return normalize_; }
    size_t n_features() const { return any().n_features(); }
    size_t n_labels() const { return any().n_labels(); }

  private:
    const Forest& any() const { return trees_ ? *trees_ : *one_vs_rest_; }

    std::shared_ptr<const Forest> trees_, one_vs_rest_;
    Loss loss_;
    bool normalize_;
};

}  // namespace bonsai

// The training of FastXML (Prabhu, Varma, KDD 2014) and PfastreXML (Jain, Prabhu, Varma, KDD 2016): trees
// over rows whose leaves hold labels.
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.hpp"
#include "data/dataset.hpp"
#include "kernels/kernels.hpp"
#include "predict/row_trees.hpp"
#include "systems/fastxml_split.hpp"
#include "systems/l1_logistic.hpp"

namespace bonsai {

struct FastXmlParams {
    uint32_t n_trees;          /// each trained on all rows
    uint32_t max_leaf_rows;    /// a node with more rows is divided, if it can be
    uint32_t max_leaf_labels;  /// number of most frequent labels that a leaf keeps
    double c;                  /// weight of the losses of a node, relative to the L1 penalty of its weights
    SideGain gain;             /// how the rows of a node are divided
    L1Params solver;
    uint64_t seed;
};

// label_weights: none (FastXML), or one for each label in (0, 1], by which its occurrences are weighted
// (PfastXML).
OwnedRowTrees train_fastxml(const Dataset& data, std::span<const float> label_weights,
                            const FastXmlParams& params, const Kernels& kernels, Pool& pool);

}  // namespace bonsai

// Prediction: the k best labels of each row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "data/sizes.hpp"
#include "kernels/kernels.hpp"
#include "predict/model.hpp"

namespace bonsai {

// Maximum number of rows that are predicted together.
inline constexpr size_t kBatchRows = 8192;

struct TopKParams {
    size_t k;          /// labels for each row
    size_t beam_size;  /// nodes kept at each level of a tree; 0: all
    bool exact;        /// all labels are ranked, whatever beam_size is
    size_t n_probe;    /// blocks of classifiers that are scored where there is an index; 0: all
};

// For each row its k best labels: ids (n x k, -1 where there are fewer candidates) and log scores (n x k,
// -infinity there), best first. Ties go to the larger mean margin, then to the smaller label. Throws
// std::invalid_argument if x or the parameters do not fit the model.
void top_k(const Model& model, const RowsView& x, const TopKParams& params, const Kernels& kernels,
           Pool& pool, int32_t* ids, float* scores);

// The expected needs of a row in beam search: nodes visited at the same time, nodes that the batch size
// assumes, and children to choose from. All 0 without trees.
struct ExpectedVisits {
    double n_nodes, n_assumed, n_choices;
};
// Bytes of top_k for rows like those of a problem.
double top_k_bytes(const ProblemSizes& sizes, double n_rows, const ExpectedVisits& visits, double k,
                   double batch_rows);

}  // namespace bonsai

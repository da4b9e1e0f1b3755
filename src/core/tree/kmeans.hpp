// Spherical k-means: rows of vectors -> a partition. Knows nothing of labels or trees.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {

struct KMeansParams {
    size_t k;        /// clusters asked for, >= 2
    double tol;      /// stop when the mean similarity gains less
    int max_iter;    /// >= 1
    bool plus_plus;  /// first centres by k-means++ instead of at random
    bool balanced;   /// cluster sizes differ by at most one
};

struct Partition {
    std::vector<uint32_t> cluster;  // for each row, in [0, n_clusters); no cluster is empty
    size_t n_clusters = 0;
    std::vector<double> objective;  // mean similarity of a row to its centre, for each iteration
};

// `rows` are unit or zero. Zero rows resemble nothing: they are dealt out to the smallest clusters.
Partition partition_rows(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels,
                         Pool& pool);

}  // namespace bonsai

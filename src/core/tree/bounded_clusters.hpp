// k-means with clusters of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"
#include "tree/kmeans.hpp"

namespace bonsai {

// Splits each cluster of more than `largest` rows again, into parts of the overall mean size, until no such
// cluster is left; a cluster of equal rows is cut. So there may be more than k clusters. `found` is the
// result of partition_rows with the same parameters; `key` is the key of the random numbers.
void split_large_clusters(Partition& found, const RowsView& rows, const KMeansParams& params, size_t largest,
                          uint64_t key, const Kernels& kernels, Pool& pool);

}  // namespace bonsai

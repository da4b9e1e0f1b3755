// k-means with clusters of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"
#include "tree/kmeans.hpp"

namespace bonsai {

// Splits each cluster of more than `largest` rows again, into so many that they have the mean size of all,
// until no such cluster is left; where its rows are equal, it is cut. So there may be more than k clusters.
// `found` is what partition_rows found with the same parameters; `key` gives the random numbers.
void split_large_clusters(Partition& found, const RowsView& rows, const KMeansParams& params, size_t largest,
                          uint64_t key, const Kernels& kernels, Pool& pool);

}  // namespace bonsai

// k-means with clusters of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"
#include "tree/kmeans.hpp"

namespace bonsai {

// As partition_rows with the key's random numbers. Then each cluster of more than `largest` rows is split
// again, into so many that they have the mean size of all, until no such cluster is left; where its rows are
// equal, it is cut. So there may be more than k clusters.
Partition partition_bounded(const RowsView& rows, const KMeansParams& params, size_t largest, uint64_t key,
                            const Kernels& kernels, Pool& pool);

}  // namespace bonsai

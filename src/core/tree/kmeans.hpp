// Spherical k-means: partitions rows; independent of labels and trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.hpp"
#include "base/random.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {

struct KMeansParams {
    size_t k;        /// requested clusters, >= 2
    double tol;      /// stop when the mean similarity improves by less
    int max_iter;    /// >= 1
    bool plus_plus;  /// initial centres by k-means++ instead of random rows
    bool balanced;   /// cluster sizes differ by at most one
};

struct Partition {
    std::vector<uint32_t> cluster;  // for each row, in [0, n_clusters); no cluster is empty
    size_t n_clusters = 0;
    std::vector<double> objective;  // mean similarity of a row to its centre, for each iteration
};

// Lloyd's algorithm with cosine similarity (Dhillon and Modha, "Concept decompositions for large sparse text
// data using clustering", Machine Learning 2001). `rows` have norm 1 or 0. Zero rows have no similarity to
// any centre: they are distributed over the smallest clusters.
Partition partition_rows(const RowsView& rows, const KMeansParams& params, Rng rng, const Kernels& kernels,
                         Pool& pool);

// Bytes of clustering n rows with this many columns in use.
double kmeans_bytes(double n, double n_columns, bool dense, const KMeansParams& params);

}  // namespace bonsai

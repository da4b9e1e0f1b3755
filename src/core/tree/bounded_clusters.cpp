#include "tree/bounded_clusters.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "data/slice.hpp"

namespace bonsai {
namespace {

class BoundedClusters {
  public:
    BoundedClusters(const RowsView& rows, const KMeansParams& params, size_t largest, uint64_t key,
                    const Kernels& kernels, Pool& pool)
        : rows_(rows), params_(params), largest_(largest), key_(key), kernels_(kernels), pool_(pool) {}

    void run(Partition& found) {
        clusters_.resize(found.n_clusters);
        for (uint32_t row = 0; row < rows_.n_rows; ++row) clusters_[found.cluster[row]].push_back(row);
        // Parts of clusters are appended: they form the next round.
        for (size_t first = 0; first < clusters_.size();) first = split_from(first);
        found.n_clusters = 0;
        for (const Cluster& cluster : clusters_) {
            for (const uint32_t row : cluster) found.cluster[row] = static_cast<uint32_t>(found.n_clusters);
            found.n_clusters += !cluster.empty();
        }
    }

  private:
    using Cluster = std::vector<uint32_t>;  // rows, ascending; empty once it has been split

    // Splits the clusters from `first` on; returns the position of the first part.
    size_t split_from(size_t first) {
        const size_t end = clusters_.size();
        std::vector<size_t> large;
        for (size_t c = first; c < end; ++c)
            if (clusters_[c].size() > largest_) large.push_back(c);
        std::vector<Partition> parts(large.size());
        pool_.run(large.size(), [&](size_t i, unsigned) { parts[i] = split(large[i]); });
        for (size_t i = 0; i < large.size(); ++i) {
            const Cluster whole = std::exchange(clusters_[large[i]], {});
            const size_t begin = clusters_.size();
            clusters_.resize(begin + parts[i].n_clusters);
            for (size_t r = 0; r < whole.size(); ++r)
                clusters_[begin + parts[i].cluster[r]].push_back(whole[r]);
        }
        return end;
    }

    Partition split(size_t c) const {
        const Cluster& whole = clusters_[c];
        const size_t n = whole.size();
        KMeansParams params = params_;
        params.k = std::clamp<size_t>((n * params_.k + rows_.n_rows - 1) / rows_.n_rows, 2, params_.k);
        Partition parts = partition_rows(SortedSlice(rows_, whole, pool_).rows(), params,
                                         Rng(derive(key_, c)), kernels_, pool_);
        if (parts.n_clusters < 2) {
            parts.n_clusters = (n + largest_ - 1) / largest_;
            for (size_t i = 0; i < n; ++i) parts.cluster[i] = static_cast<uint32_t>(i * parts.n_clusters / n);
        }
        return parts;
    }

    const RowsView rows_;
    const KMeansParams& params_;
    const size_t largest_;
    const uint64_t key_;
    const Kernels& kernels_;
    Pool& pool_;
    std::vector<Cluster> clusters_;
};

}  // namespace

void split_large_clusters(Partition& found, const RowsView& rows, const KMeansParams& params, size_t largest,
                          uint64_t key, const Kernels& kernels, Pool& pool) {
    BoundedClusters(rows, params, largest, key, kernels, pool).run(found);
}

}  // namespace bonsai

// Shared fixtures: the kernels of this machine, random panels and rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "check.hpp"
#include "data/rows.hpp"
#include "kernels/kernels.hpp"

namespace bonsai {

inline std::vector<const Kernels*> all_kernels() {
    std::vector<const Kernels*> found;
    for (const char* name : {"portable", "avx2", "avx512", "avx512vnni"}) try {
            found.push_back(&kernels_named(name));
            CHECK(std::string(found.back()->name) == name);
        } catch (const std::invalid_argument&) {  // not on this machine
        }
    return found;
}

inline double normal(Rng& rng) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += rng.uniform();
    return sum - 6;
}

inline std::vector<float> random_panel(size_t n, Rng& rng) {
    std::vector<float> panel(n);
    for (auto& v : panel) v = static_cast<float>(normal(rng));
    return panel;
}

// The same rows twice: sparse, and dense behind `row_ids` and `scale`.
struct TestRows {
    TestRows(size_t n, size_t d, double density, Rng& rng) {
        sparse = {.n_rows = n, .n_features = d};
        sparse.ptr.push_back(0);
        values.assign(n * d, 0.0f);
        for (size_t i = 0; i < n; ++i) {
            row_ids.push_back(static_cast<uint32_t>(n - 1 - i));
            scale.push_back(i % 2 ? 0.5f : 2.0f);
            for (size_t f = 0; f < d; ++f) {
                if (i == 1 || rng.uniform() >= density) continue;  // row 1 has no features
                const auto v = static_cast<float>(normal(rng));
                sparse.index.push_back(static_cast<int32_t>(f));
                sparse.value.push_back(v);
                values[row_ids[i] * d + f] = v / scale[i];
            }
            sparse.ptr.push_back(static_cast<int64_t>(sparse.index.size()));
        }
        dense = {.n_rows = n, .n_features = d};
        dense.dense = values.data();
        dense.row_ids = row_ids.data();
        dense.scale = scale.data();
    }
    TestRows(const TestRows&) = delete;

    std::vector<RowsView> views() const { return {sparse.view(), dense}; }
    double at(size_t i, size_t f) const {
        return double{values[row_ids[i] * sparse.n_features + f]} * double{scale[i]};
    }

    Rows sparse;
    std::vector<float> values, scale;
    std::vector<uint32_t> row_ids;
    RowsView dense;
};

inline bool close(double a, double b, double tol = 2e-5) {
    return std::abs(a - b) <= tol * std::max({1.0, std::abs(a), std::abs(b)});
}

inline bool all_close(const std::vector<float>& a, const std::vector<float>& b, double tol) {
    bool good = a.size() == b.size();
    for (size_t i = 0; good && i < a.size(); ++i) good = close(a[i], b[i], tol);
    return good;
}

}  // namespace bonsai

#include "linear/problem.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"

namespace bonsai {

Problem build_problem(const Dataset& data, std::span<const uint32_t> rows, const Slice& slice,
                      std::span<const uint32_t> class_of_label, size_t n_classes, uint64_t key) {
    Problem problem;
    problem.rows = slice.rows();
    if (!slice.singletons().value.empty()) problem.singletons = &slice.singletons();
    problem.n_classes = n_classes;
    problem.key = key;
    problem.norm2.resize(rows.size());
    problem.class_ptr.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
        const double norm = row_norm(problem.rows, i);
        double norm2 = norm * norm;
        for (const float x : slice.singletons()[i]) norm2 += double{x} * x;
        problem.norm2[i] = static_cast<float>(norm2);
        if (data.weighted()) problem.weight.push_back(data.weight(rows[i]));
        const size_t begin = problem.classes.size();
        for (const int32_t label : data.labels_of(rows[i]))
            if (class_of_label[label] != kNoClass) problem.classes.push_back(class_of_label[label]);
        const auto first = problem.classes.begin() + static_cast<int64_t>(begin);
        std::sort(first, problem.classes.end());
        problem.classes.erase(std::unique(first, problem.classes.end()), problem.classes.end());
        problem.class_ptr.push_back(static_cast<int64_t>(problem.classes.size()));
    }
    return problem;
}

size_t rows_per_poll(const RowsView& rows) {
    constexpr size_t entries = size_t{1} << 20;
    if (rows.n_rows == 0) return 1;
    const size_t all =
        rows.is_dense() ? rows.n_rows * rows.n_features : static_cast<size_t>(rows.ptr[rows.n_rows]);
    return std::max<size_t>(1, entries / (all / rows.n_rows + 1));
}

double part_done(int iteration) {
    return 1 - std::pow(0.75, iteration);
}

std::vector<uint64_t> positive_lanes(const Problem& problem, size_t first, size_t n) {
    std::vector<uint64_t> bits(problem.rows.n_rows, 0);
    for (size_t i = 0; i < bits.size(); ++i) {
        const auto begin = problem.classes.begin() + problem.class_ptr[i];
        const auto end = problem.classes.begin() + problem.class_ptr[i + 1];
        for (auto c = std::lower_bound(begin, end, first); c != end && *c < first + n; ++c)
            bits[i] |= uint64_t{1} << (*c - first);
    }
    return bits;
}

double root_problem_bytes(const ProblemSizes& sizes, double n_trees) {
    const double classes = 16 * sizes.n_rows + 4 * kGrowth * sizes.n_pairs;
    return slice_bytes(sizes, 1) + 4 * sizes.n_rows + n_trees * classes;
}

// Dual: weights and dual variables. Newton: six vectors of weights, four of margins.
double panel_bytes(const ProblemSizes& sizes, double n_classes, double share, const LinearParams& params) {
    const auto width = static_cast<double>(panel_width(static_cast<size_t>(std::ceil(n_classes))));
    double features = sizes.dense ? sizes.n_features : sizes.n_used_features;
    if (eliminates_singletons(params)) features -= sizes.n_singletons;
    features = std::min(features, std::max(1.0, share * sizes.n_entries / 2));
    const double rows = share * sizes.n_rows;
    if (params.solver == Solver::newton) return 4 * width * (6 * features + 4 * rows) + 8 * rows;
    return 4 * width * (features + rows) + 20 * rows;
}

}  // namespace bonsai

// Binary linear classification for many classes that share their rows: the problem and its solution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.hpp"
#include "data/rows.hpp"
#include "data/sizes.hpp"
#include "data/slice.hpp"
#include "linear/loss.hpp"

namespace bonsai {

enum class Solver { dual, newton };

// min over w of ½|w|² + C Σ s_i loss(y_i (w·x_i + b)). No defaults here: they are in the Python signature.
struct LinearParams {
    Loss loss;
    Solver solver;
    double c;          /// C > 0
    double tol;        /// > 0: range of the projected gradient (dual), relative gradient norm (newton)
    int max_iter;      /// passes over the rows (dual), or Newton steps
    bool learn_bias;   /// b is the weight of a constant feature 1, regularised like the others
    float fixed_bias;  /// b, where it is not learnt
    float prune;       /// weights |w| ≤ prune are dropped; negative: all are kept
};

// Whether the solver eliminates singleton features.
inline bool eliminates_singletons(const LinearParams& params) {
    return params.solver == Solver::dual &&
           std::visit([](auto loss) { return loss.eliminates_singletons; }, params.loss);
}

// The rows that all classes of a node share, and for each row the classes for which it is positive. Borrows
// the rows from a slice.
struct Problem {
    RowsView rows;
    const SingletonFeatures* singletons = nullptr;  // further entries; only if eliminates_singletons()
    std::vector<float> weight;                      // s_i for each row; empty: all 1
    std::vector<float> norm2;                       // |x_i|² for each row, singletons included
    std::vector<int64_t> class_ptr;                 // n_rows + 1
    std::vector<uint32_t> classes;                  // ascending in each row
    size_t n_classes = 0;
    uint64_t key = 0;  // address of the node; determines the order of the rows

    double cost(size_t i, double c) const { return weight.empty() ? c : c * double{weight[i]}; }
};

inline constexpr uint32_t kNoClass = ~uint32_t{0};

// The problem on the `rows` of the data set that `slice` holds. class_of_label: the class of each label, or
// kNoClass.
Problem build_problem(const Dataset& data, std::span<const uint32_t> rows, const Slice& slice,
                      std::span<const uint32_t> class_of_label, size_t n_classes, uint64_t key);

// Bytes of the problems of n_trees roots, which share the slice of all rows.
double root_problem_bytes(const ProblemSizes& sizes, double n_trees);
// Bytes of a panel with this many classes on a share of the rows.
double panel_bytes(const ProblemSizes& sizes, double n_classes, double share, const LinearParams& params);

// For each row of the problem, bit l: the row is positive for class first + l.
std::vector<uint64_t> positive_lanes(const Problem& problem, size_t first, size_t n);

// Rows that a panel kernel visits between two polls of `Control`: about 2^20 entries, some ten milliseconds.
size_t rows_per_poll(const RowsView& rows);

// A rough estimate of the part of a panel's work that is done after this many iterations: most lanes converge
// early, and the number of iterations is not known in advance.
double part_done(int iteration);

struct Weight {
    uint32_t feature;  // in problem.rows or problem.singletons
    uint32_t cls;
    float value;
};

// The solution of a panel of classes.
struct Solution {
    std::vector<Weight> weights;  // in runs, each ascending by feature
    std::vector<float> bias;      // for each class of the panel
    std::vector<int32_t> n_iter;  // for each class: passes or Newton steps
    std::vector<uint8_t> converged;
};

// Totals over all classifiers that a call trains.
struct TrainReport {
    size_t n_classifiers = 0;
    size_t n_unconverged = 0;
    int max_iter = 0;  // of the slowest classifier
};

}  // namespace bonsai

// The sizes of a problem, from which the memory of training is estimated in advance. Each stage has a
// function that computes its bytes from these numbers; arrays that do not grow with the data are left out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "data/dataset.hpp"

namespace bonsai {

// Vectors that grow by doubling take half as much again on average.
inline constexpr double kGrowth = 1.5;
// Bytes per entry in a sparse row: an index and a value.
inline constexpr double kEntryBytes = 8;
// Bytes per packed weight.
inline constexpr double kPackedWeight = 2.2;

// Counts of a problem. They are doubles because counts of a part of a problem are estimates.
struct ProblemSizes {
    double n_rows, n_features, n_entries;
    double n_used_features;  // that are not 0 everywhere
    double n_singletons;     // features of a single row; 0 for dense rows
    bool dense;
    double n_labels, n_pairs;
    double n_present;                      // labels that have rows
    double input_entries, output_entries;  // of all label vectors
    double kept_input, kept_output;        // those that are kept where vectors are cut (label_vectors.hpp)
    double n_products;                     // entries of the rows of each label
    // Features of about the same frequency: their number, and their share of all entries.
    std::vector<std::pair<double, double>> frequencies = {};

    // The expected number of distinct features in so many entries drawn from those of X.
    double distinct_features(double entries) const;
    double sparse_rows() const { return kEntryBytes * n_entries + 8 * n_rows; }
    // Bytes of a Dataset: a factor for each row, and the rows of each label.
    double dataset() const { return 4 * n_rows + 8 * n_labels + 4 * n_pairs; }
};

// Measures a data set; the entries of label vectors are counted on a sample of the labels.
ProblemSizes sizes_of(const Dataset& data);
// The number of entries in the label's input vector, the sum of its rows.
double vector_entries(const Dataset& data, uint32_t label);
// The n rows most similar to the rows of a label, best first.
std::vector<uint32_t> similar_rows(const Dataset& data, uint32_t label, size_t n);

}  // namespace bonsai

// Fitting a vectorizer: documents are read once, in parts of any size, and only their term ids are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "text/documents.hpp"
#include "text/tfidf.hpp"
#include "text/vocabulary.hpp"

namespace bonsai::text {

class FieldCounts;

class Fit {
  public:
    explicit Fit(TextSpec spec);
    Fit(const Fit&) = delete;
    Fit& operator=(const Fit&) = delete;
    ~Fit();

    void add(const Documents& documents, Pool& pool);

    struct Result {
        Vocabulary vocabulary;
        SparseRows rows;
    };
    // Finishes the fit. `rows`: whether to return the rows of the documents as well.
    Result finish(bool rows, Pool& pool);

    size_t n_documents() const { return n_documents_; }

  private:
    SparseRows make_rows(const std::vector<BlockWeights>& weights, Pool& pool);

    TextSpec spec_;
    size_t n_documents_ = 0;
    std::vector<uint32_t> segment_sizes_;
    std::vector<std::unique_ptr<FieldCounts>> fields_;
};

}  // namespace bonsai::text

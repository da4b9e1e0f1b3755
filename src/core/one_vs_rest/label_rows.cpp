#include "one_vs_rest/label_rows.hpp"

#include <numeric>

namespace bonsai {

LabelRows::LabelRows(const Dataset& data, std::span<const uint32_t> labels)
    : data_(data), labels_(labels), ids_(data.n_rows()) {
    std::iota(ids_.begin(), ids_.end(), 0u);
}

LabelRows::LabelRows(const Dataset& data, std::span<const uint32_t> labels, std::span<const uint32_t> ids)
    : data_(data), labels_(labels), ids_(ids.begin(), ids.end()), in_part_{{0}, {}} {
    std::vector<int32_t> number(data.n_rows());
    for (size_t i = 0; i < ids.size(); ++i) number[ids[i]] = static_cast<int32_t>(i);
    for (const uint32_t label : labels) {
        for (const int32_t row : data.rows_of(label)) in_part_.id.push_back(number[row]);
        in_part_.ptr.push_back(static_cast<int64_t>(in_part_.id.size()));
    }
}

}  // namespace bonsai

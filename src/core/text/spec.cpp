#include "text/spec.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace bonsai::text {

namespace {

constexpr uint32_t kMostN = 32;

bool valid(const Frequency& f) {
    return std::isfinite(f.value) && f.value >= 0 && (!f.is_share || f.value <= 1);
}

void check(const BlockSpec& block, const std::string& name) {
    if (block.min_n < 1 || block.max_n < block.min_n || block.max_n > kMostN)
        throw std::invalid_argument(name + ": n-grams need 1 <= min_n <= max_n <= " + std::to_string(kMostN));
    if (!valid(block.min_df) || !valid(block.max_df))
        throw std::invalid_argument(name +
                                    ": min_df and max_df are numbers of documents or shares of all, 0 to 1");
    if (!(block.weight > 0) || block.weight > 1e6)
        throw std::invalid_argument(name + ": the weight must be greater than 0 and at most 1e6");
    if (!(block.power > 0) || block.power > 10)
        throw std::invalid_argument(name + ": the power must be greater than 0 and at most 10");
    if (block.analyzer > Analyzer::character_in_span)
        throw std::invalid_argument(name + ": unknown analyzer");
}

}  // namespace

void check(const TextSpec& spec) {
    if (spec.blocks.empty()) throw std::invalid_argument("a text vectorizer needs at least one block");
    if (spec.min_word_length < 1) throw std::invalid_argument("min_word_length must be at least 1");
    uint32_t field = 0;
    for (size_t i = 0; i < spec.blocks.size(); ++i) {
        const std::string name = "block " + std::to_string(i);
        check(spec.blocks[i], name);
        if (spec.blocks[i].field >= spec.n_fields)
            throw std::invalid_argument(name + ": there is no such field");
        if (spec.blocks[i].field < field) throw std::invalid_argument(name + ": blocks are sorted by field");
        field = spec.blocks[i].field;
    }
}

}  // namespace bonsai::text

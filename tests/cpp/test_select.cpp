#include "predict/select.hpp"

#include <algorithm>
#include <utility>

#include "base/random.hpp"
#include "check.hpp"

using namespace bonsai;

namespace {

float between(Rng& rng, double low, double high) {
    return static_cast<float>(low + (high - low) * rng.uniform());
}

// The bounds hold for each margin, and are tight enough to be useful.
void test_bounds(Loss loss) {
    const Scores scores(loss, kernels());
    Rng rng(3);
    bool safe = true, close = true;
    for (int repeat = 0; repeat < 200000; ++repeat) {
        const float path = -between(rng, 0, repeat % 2 ? 20 : 0.1);
        const float margin = between(rng, -6, 3), lower = margin - between(rng, 0, 1);
        const float score = scores.of(path, margin);
        safe &= score <= path && scores.of(path, lower) <= scores.upper_bound(path, margin);
        close &= scores.upper_bound(path, margin) - score < 1e-3f;
        const float least = scores.lowest_margin(path, score);
        safe &= margin >= least;  // a margin reaches its own score
        if (lower < least) safe &= scores.of(path, lower) < score;
        if (score < path - 0.01f) close &= margin - least < 0.1f;
    }
    CHECK(safe);
    CHECK(close);
    CHECK(scores.lowest_margin(-2, -1) > 1e30f);  // out of reach
    CHECK(scores.lowest_margin(-2, kLowest) < -1e30f);
}

struct Item {
    float score;
    float margin;
    size_t at;
    bool operator<(const Item& other) const {
        if (score != other.score) return score > other.score;
        if (margin != other.margin) return margin > other.margin;
        return at < other.at;
    }
    bool operator==(const Item&) const = default;
};

// Compared with sorting all items.
void test_best(Loss loss, size_t most) {
    const Scores scores(loss, kernels());
    Rng rng(most + 1);
    for (int repeat = 0; repeat < 200; ++repeat) {
        TopK<Item> best;
        best.reset(most);
        std::vector<Item> all;
        for (size_t block = 0; block < 1 + rng.below(6); ++block) {
            std::vector<float> margins(rng.below(kBlockChildren + 1));
            // Some items are equal, and some have the highest possible score.
            for (float& m : margins) m = std::round(between(rng, -4, 2) * 50) / 50;
            const float path = -between(rng, 0, 3);
            const auto make = [&](size_t c, float score) {
                return Item{score, margins[c], block * kBlockChildren + c};
            };
            for (size_t c = 0; c < margins.size(); ++c) all.push_back(make(c, scores.of(path, margins[c])));
            best.add_block(scores, path, margins, make);
        }
        std::sort(all.begin(), all.end());
        all.resize(std::min(all.size(), most));
        std::vector<Item> found(best.items().begin(), best.items().end());
        std::sort(found.begin(), found.end());
        CHECK(found == all);
    }
}

}  // namespace

int main() {
    for (const Loss loss : {Loss(SquaredHinge{}), Loss(Logistic{})}) {
        test_bounds(loss);
        for (const size_t most : {0u, 1u, 5u, 10u, 16u, 17u, 1000u}) test_best(loss, most);
    }
    return check::report("select");
}

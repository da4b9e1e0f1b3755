#include "base/random.hpp"

#include <algorithm>
#include <cmath>

#include "check.hpp"

using namespace bonsai;

namespace {

// Expected numbers were computed with unbounded integers from the definition, apart from this code; those of
// the generator with state 1234567 are also published.

void test_words() {
    Rng rng(1234567);
    const uint64_t words[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                              4593380528125082431u, 16408922859458223821u};
    for (const uint64_t word : words) CHECK(rng.next() == word);
    CHECK(mix(0) == 0);
    CHECK(mix(1) == 0x5692161d100b05e5);
    CHECK(mix(~uint64_t{0}) == 0xb4d055fcf2cbbd7b);
}

void test_addresses() {
    CHECK(derive(0, 0) == 0xe220a8397b1dcdaf);
    CHECK(derive(42, 0) == 0xbdd732262feb6e95);
    CHECK(derive(derive(42, 0), 7) == 0xbc16a3d4cc48678e);
    CHECK(derive(~uint64_t{0}, kForClustering) == 0xc5aa1d1d7e827744);
    CHECK(derive(5, kForSolver) == 0x30412e4cf6bca15c);
    // word number w of the stream that starts at the key
    Rng rng(99);
    for (uint64_t word = 0; word < 5; ++word) CHECK(rng.next() == derive(99, word));
}

void test_draws() {
    Rng rng(42);
    CHECK(rng.below(1) == 0);
    CHECK(rng.below(2) == 0);
    CHECK(rng.below(10) == 2);
    CHECK(rng.below(1000) == 344);
    CHECK(rng.below(uint64_t{1} << 32) == 163338330);
    CHECK(rng.below(~uint64_t{0}) == 16015981125662989061u);
    Rng same(42);
    for (const double u : {0x1.7bae644c5fd6dp-1, 0x1.477f199d93378p-3, 0x1.1d499d5c4c3e6p-2})
        CHECK(same.uniform() == u);
}

void test_ranges() {
    Rng rng(3);
    bool inside = true;
    double sum = 0;
    std::vector<int> count(7, 0);
    for (int i = 0; i < 7000; ++i) {
        const double u = rng.uniform();
        sum += u;
        const uint64_t b = rng.below(7);
        inside &= u >= 0 && u < 1 && b < 7;
        if (b < 7) ++count[b];
    }
    CHECK(inside);
    CHECK(std::abs(sum / 7000 - 0.5) < 0.02);
    CHECK(*std::min_element(count.begin(), count.end()) > 850);
    CHECK(*std::max_element(count.begin(), count.end()) < 1150);
}

void test_shuffle_and_sample() {
    Rng rng(7);
    std::vector<int> v = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    rng.shuffle(v);
    CHECK(v == std::vector<int>{9, 5, 8, 6, 1, 2, 4, 7, 0, 3});
    CHECK(rng.next() == 7621113624420504425u);  // nine draws, no more

    Rng other(9);
    CHECK(other.sample(12, 5) == std::vector<uint32_t>{8, 9, 4, 10, 6});
    CHECK(other.next() == 2114146066760625150u);

    std::vector<uint32_t> all = other.sample(50, 50);
    std::sort(all.begin(), all.end());
    for (uint32_t i = 0; i < 50; ++i) CHECK(all[i] == i);

    // nothing to draw
    Rng before(1), after(1);
    std::vector<int> none, one = {4};
    after.shuffle(none);
    after.shuffle(one);
    CHECK(after.sample(5, 0).empty());
    CHECK(one == std::vector<int>{4} && before.next() == after.next());
}

}  // namespace

int main() {
    test_words();
    test_addresses();
    test_draws();
    test_ranges();
    test_shuffle_and_sample();
    return check::report("random");
}

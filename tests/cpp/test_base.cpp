#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/groups.hpp"
#include "base/memory.hpp"
#include "base/random.hpp"
#include "base/slices.hpp"
#include "check.hpp"

using namespace bonsai;

namespace {

// Sorted by key with a plain stable sort.
void check_groups(Groups& groups, const std::vector<uint32_t>& keys) {
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < keys.size(); ++i)
        if (keys[i] != Groups::kNone) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    groups.count(keys.size(), [&](size_t i) { return keys[i]; });
    CHECK(groups.n_placed() == order.size());
    size_t at = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
        CHECK(groups.begin(g) == at);
        CHECK(g == 0 || groups.key(g - 1) < groups.key(g));
        const auto part = groups.part(g, order);
        CHECK(!part.empty());
        for (const uint32_t item : part) CHECK(keys[item] == groups.key(g));
        at += part.size();
        CHECK(groups.end(g) == at);
    }
    CHECK(at == order.size());
    std::vector<uint32_t> placed(order.size(), Groups::kNone);
    std::atomic<bool> right_keys = true;
    groups.for_each([&](size_t item, uint32_t key, size_t position) {
        if (keys[item] != key) right_keys = false;
        placed[position] = static_cast<uint32_t>(item);
    });
    CHECK(right_keys);
    CHECK(placed == order);
}

void test_groups() {
    for (const unsigned threads : {1u, 2u, 7u}) {
        Control control;
        Pool pool(threads, control);
        const size_t n_keys = 1000;
        Groups groups(n_keys, pool);
        Rng rng(3);
        for (const size_t n_items : {0u, 1u, 50u, 70'000u, 300'000u, 200u})
            for (const size_t n_used : {1u, 3u, 1000u})      // few keys, as at the roots, and many
                for (const size_t without : {0u, 3u, 1u}) {  // one in this many items has no key
                    std::vector<uint32_t> keys(n_items);
                    for (uint32_t& key : keys)
                        key = without > 0 && rng.below(without) == 0
                                  ? Groups::kNone
                                  : static_cast<uint32_t>(rng.below(n_used));
                    check_groups(groups, keys);
                }
    }
}

void test_slices() {
    for (const unsigned threads : {1u, 3u}) {
        Control control;
        Pool pool(threads, control);
        for (const size_t n : {0u, 1u, 4095u, 200'001u}) {
            const Slices slices(n, pool);
            CHECK(slices.size() >= 1 && slices.size() <= threads);
            std::vector<int> seen(n, 0);
            slices.for_each(pool, [&](size_t, size_t begin, size_t end) {
                for (size_t i = begin; i < end; ++i) ++seen[i];
            });
            CHECK(seen == std::vector<int>(n, 1));
        }
    }
}

bool is_aligned(const void* memory) {
    return reinterpret_cast<uintptr_t>(memory) % 64 == 0;
}

void* allocate_and_fill(size_t bytes) {
    void* const memory = MemoryCache::allocate(bytes);
    CHECK(is_aligned(memory));
    std::memset(memory, 1, bytes);
    return memory;
}

// Within a pool, a large array reuses a freed one, unless that is too small or much too large.
void test_large_arrays_are_used_again() {
    constexpr size_t mb = 1 << 20;
    Control control;
    CHECK(MemoryCache::of_thread() == nullptr);
    {
        Pool pool(2, control);
        CHECK(MemoryCache::of_thread() != nullptr);
        void* const first = allocate_and_fill(5 * mb);
        MemoryCache::free(first, 5 * mb);
        void* const smaller = allocate_and_fill(3 * mb);
        CHECK(smaller == first);
        void* const beside = allocate_and_fill(5 * mb);
        CHECK(beside != first);
        MemoryCache::free(smaller, 3 * mb);  // it has room for 5 still
        void* const again = allocate_and_fill(5 * mb);
        CHECK(again == first);
        MemoryCache::free(again, 5 * mb);
        MemoryCache::free(beside, 5 * mb);
        void* const small = allocate_and_fill(mb);
        CHECK(small != first && small != beside);
        MemoryCache::free(small, mb);
        for (size_t n = 1; n < 60; ++n) MemoryCache::free(allocate_and_fill(n * mb / 2), n * mb / 2);
    }
    CHECK(MemoryCache::of_thread() == nullptr);
    MemoryCache::free(allocate_and_fill(2 * mb), 2 * mb);
    CHECK_THROWS(MemoryCache::allocate(~size_t{0}), "bad_alloc");
}

// Arrays move from thread to thread, and outlive the pool.
void test_arrays_outlive_pools() {
    std::vector<UninitialisedVector<uint32_t>> arrays(40);
    {
        Control control;
        Pool pool(3, control);
        for (int round = 0; round < 3; ++round)
            pool.run(arrays.size(), [&](size_t i, unsigned) {
                arrays[i] = UninitialisedVector<uint32_t>(100'000 * (i % 7 + 1), static_cast<uint32_t>(i));
            });
    }
    for (size_t i = 0; i < arrays.size(); ++i)
        CHECK(std::count(arrays[i].begin(), arrays[i].end(), i) == static_cast<long>(arrays[i].size()));
}

void test_buffers_move() {
    Buffer<float> a, b;
    a.ensure_size(100'000);
    a[0] = 3;
    float* const data = a.data();
    b = std::move(a);
    CHECK(b.data() == data && b[0] == 3);
    const Buffer<float> c(std::move(b));
    CHECK(c.data() == data && b.data() == nullptr);
}

}  // namespace

int main() {
    test_groups();
    test_slices();
    test_large_arrays_are_used_again();
    test_arrays_outlive_pools();
    test_buffers_move();
    return check::report("base");
}

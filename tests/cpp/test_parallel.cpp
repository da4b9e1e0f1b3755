#include "base/parallel.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

#include "check.hpp"

using namespace bonsai;

namespace {

constexpr unsigned kThreadCounts[] = {1, 2, 5};

void test_each_index_once() {
    for (const unsigned threads : kThreadCounts) {
        Control control;
        Pool pool(threads, control);
        CHECK(pool.threads() == threads);
        for (const size_t n : {0u, 1u, 2u, 1000u}) {
            std::vector<int> seen(n, 0);  // plain: each index belongs to one worker
            pool.run(n, [&](size_t i, unsigned) { ++seen[i]; });
            CHECK(seen == std::vector<int>(n, 1));
        }
    }
    Control control;
    CHECK(Pool(0, control).threads() == 1);
    CHECK(available_threads() >= 1);
}

// Buffers that are kept by worker number need no lock.
void test_workers_are_exclusive() {
    for (const unsigned threads : kThreadCounts) {
        Control control;
        Pool pool(threads, control);
        std::vector<size_t> sum(threads, 0), depth(threads, 0);
        std::atomic<bool> alone = true;
        pool.run(500, [&](size_t i, unsigned worker) {
            if (worker >= threads || ++depth[worker] != 1) {
                alone = false;
                return;
            }
            sum[worker] += i;
            --depth[worker];
        });
        size_t total = 0;
        for (const size_t s : sum) total += s;
        CHECK(alone);
        CHECK(total == 500 * 499 / 2);
    }
}

// What one thread computes, however the loops nest.
std::vector<size_t> nested_sums(unsigned threads) {
    Control control;
    Pool pool(threads, control);
    std::vector<size_t> out(12, 0);
    pool.run(12, [&](size_t a, unsigned) {
        std::vector<size_t> middle(9, 0);
        pool.run(9, [&](size_t b, unsigned) {
            std::vector<size_t> inner(20, 0);
            pool.run(20, [&](size_t c, unsigned) { inner[c] = a * 1000 + b * 100 + c; });
            for (const size_t v : inner) middle[b] += v;
            control.done += 1;
        });
        for (const size_t v : middle) out[a] = out[a] * 31 + v;
    });
    CHECK(control.done == 12 * 9);
    return out;
}

void test_nested_loops() {
    const auto expected = nested_sums(1);
    for (const unsigned threads : kThreadCounts)
        for (int repeat = 0; repeat < 20; ++repeat) CHECK(nested_sums(threads) == expected);
}

// While a worker waits for its own inner loop it takes no outer index, so an outer function may hold its
// buffer over an inner loop as long as the inner function does not touch it.
void test_no_foreign_work_while_waiting() {
    for (const unsigned threads : kThreadCounts) {
        Control control;
        Pool pool(threads, control);
        std::vector<int> outer_depth(threads, 0);
        std::atomic<int> deepest = 0;
        pool.run(40, [&](size_t, unsigned worker) {
            if (++outer_depth[worker] > deepest) deepest = outer_depth[worker];
            pool.run(10, [](size_t, unsigned) { std::this_thread::yield(); });
            --outer_depth[worker];
        });
        CHECK(deepest == 1);
    }
}

// Two tasks of an inner loop that only end when both have begun: the thread that has nothing left of the
// outer loop must come to help.
void test_help_with_inner_loops() {
    using namespace std::chrono_literals;
    Control control;
    Pool pool(2, control);
    std::atomic<int> begun = 0;
    std::atomic<bool> alone = false;
    pool.run(2, [&](size_t task, unsigned) {
        if (task == 0) return;
        pool.run(2, [&](size_t, unsigned) {
            ++begun;
            const auto patience = std::chrono::steady_clock::now() + 20s;
            while (begun < 2 && !alone) {
                if (std::chrono::steady_clock::now() > patience) alone = true;
                std::this_thread::yield();
            }
        });
    });
    CHECK(!alone);
}

void test_exceptions() {
    for (const unsigned threads : kThreadCounts) {
        Control control;
        Pool pool(threads, control);
        const auto fail_at = [&](size_t bad) {
            pool.run(200, [&](size_t i, unsigned) {
                if (i == bad) throw std::runtime_error("index " + std::to_string(i));
            });
        };
        CHECK_THROWS(fail_at(0), "index 0");
        CHECK_THROWS(fail_at(199), "index 199");
        // all at once: one of them arrives
        CHECK_THROWS(
            pool.run(200, [](size_t i, unsigned) { throw std::runtime_error("n" + std::to_string(i)); }),
            "n");
        // out of an inner loop, through the outer one
        CHECK_THROWS(pool.run(8,
                              [&](size_t a, unsigned) {
                                  pool.run(8, [&](size_t b, unsigned) {
                                      if (a == 3 && b == 5) throw std::invalid_argument("inner");
                                  });
                              }),
                     "inner");
        // the rest is left undone
        std::atomic<size_t> done = 0;
        CHECK_THROWS(pool.run(100000,
                              [&](size_t i, unsigned) {
                                  if (i == 0) throw std::runtime_error("first");
                                  ++done;
                                  std::this_thread::sleep_for(std::chrono::microseconds(50));
                              }),
                     "first");
        CHECK(done < 100000 / 2);
        // and the pool works on
        std::atomic<size_t> sum = 0;
        pool.run(100, [&](size_t i, unsigned) { sum += i; });
        CHECK(sum == 4950);
    }
}

void test_caught_inside() {
    Control control;
    Pool pool(3, control);
    std::atomic<int> caught = 0;
    pool.run(20, [&](size_t, unsigned) {
        try {
            pool.run(5, [](size_t i, unsigned) {
                if (i == 2) throw std::runtime_error("handled");
            });
        } catch (const std::runtime_error&) {
            ++caught;
        }
    });
    CHECK(caught == 20);
}

void test_stop() {
    for (const unsigned threads : kThreadCounts) {
        Control control;
        Pool pool(threads, control);
        control.check();
        std::atomic<size_t> done = 0;
        CHECK_THROWS(pool.run(100000,
                              [&](size_t i, unsigned) {
                                  if (i == 10) control.stop = true;
                                  ++done;
                              }),
                     "interrupted");
        CHECK(done >= 1 && done <= 10 + threads);
        CHECK_THROWS(pool.run(0, [](size_t, unsigned) {}), "interrupted");
        CHECK_THROWS(control.check(), "interrupted");
        control.stop = false;
        pool.run(3, [&](size_t, unsigned) { ++done; });
    }
}

void test_stop_from_outside() {
    using namespace std::chrono_literals;
    Control control;
    const auto begin = std::chrono::steady_clock::now();
    std::thread watcher([&] {
        std::this_thread::sleep_for(20ms);
        control.stop = true;
    });
    Pool pool(3, control);
    CHECK_THROWS(pool.run(10,
                          [&](size_t, unsigned) {
                              pool.run(1000000, [](size_t, unsigned) { std::this_thread::sleep_for(1ms); });
                          }),
                 "interrupted");
    watcher.join();
    CHECK(std::chrono::steady_clock::now() - begin < 5s);
}

// Pools come and go, several at a time, as calls from different Python threads make them.
void test_many_pools() {
    std::atomic<size_t> sum = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller)
        callers.emplace_back([&] {
            for (int repeat = 0; repeat < 30; ++repeat) {
                Control control;
                Pool pool(3, control);
                pool.run(10, [&](size_t i, unsigned) { sum += i; });
            }
        });
    for (auto& caller : callers) caller.join();
    CHECK(sum == 3 * 30 * 45);
}

}  // namespace

int main() {
    test_each_index_once();
    test_workers_are_exclusive();
    test_nested_loops();
    test_no_foreign_work_while_waiting();
    test_help_with_inner_loops();
    test_exceptions();
    test_caught_inside();
    test_stop();
    test_stop_from_outside();
    test_many_pools();
    return check::report("parallel");
}

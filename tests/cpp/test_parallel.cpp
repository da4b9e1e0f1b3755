#include "base/parallel.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "check.hpp"

using namespace bonsai;

// The number of allocations that succeed before all others fail; negative: all succeed.
static std::atomic<long> allocations_left = -1;

void* operator new(size_t n) {
    if (allocations_left >= 0 && allocations_left-- == 0) {
        allocations_left = 0;
        throw std::bad_alloc();
    }
    if (void* memory = std::malloc(n > 0 ? n : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

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

// Buffers indexed by worker number need no lock.
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

// Nested loops compute the same result as one thread.
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

// Two tasks of an inner loop end only when both have begun: a thread without tasks of the outer loop must
// help.
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

// Inside Alone, inner loops run on their worker, in order; other loops get help as usual.
void test_alone() {
    Control control;
    Pool pool(4, control);
    std::atomic<size_t> n_helped = 0, n_wrong = 0;
    pool.run(64, [&](size_t i, unsigned outer) {
        std::optional<Pool::Alone> alone;
        if (i % 2 == 0) alone.emplace();
        std::vector<size_t> seen;
        std::mutex mutex;
        pool.run(20, [&](size_t j, unsigned inner) {
            const std::lock_guard lock(mutex);
            seen.push_back(j);
            if (inner != outer) ++(alone ? n_wrong : n_helped);
            if (!alone && inner == outer) std::this_thread::sleep_for(std::chrono::microseconds(20));
        });
        if (seen.size() != 20 || (alone && !std::is_sorted(seen.begin(), seen.end()))) ++n_wrong;
    });
    CHECK(n_wrong == 0 && n_helped > 0);
    {
        const Pool::Alone outer;
        const Pool::Alone inner;
    }
    try {
        const Pool::Alone alone;
        pool.run(3, [](size_t i, unsigned) {
            if (i == 1) throw std::runtime_error("one");
        });
        CHECK(false);
    } catch (const std::runtime_error&) {
    }
    std::atomic<unsigned> workers = 0;  // no longer alone: bits of the workers
    pool.run(400, [&](size_t, unsigned worker) {
        workers |= 1u << worker;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
    CHECK(workers != 1);
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
        // from an inner loop through the outer loop
        CHECK_THROWS(pool.run(8,
                              [&](size_t a, unsigned) {
                                  pool.run(8, [&](size_t b, unsigned) {
                                      if (a == 3 && b == 5) throw std::invalid_argument("inner");
                                  });
                              }),
                     "inner");
        // the remaining tasks are skipped
        std::atomic<size_t> done = 0;
        CHECK_THROWS(pool.run(100000,
                              [&](size_t i, unsigned) {
                                  if (i == 0) throw std::runtime_error("first");
                                  ++done;
                                  std::this_thread::sleep_for(std::chrono::microseconds(50));
                              }),
                     "first");
        CHECK(done < 100000 / 2);
        // the pool remains usable
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

// Several pools are created and destroyed at the same time, as by calls from different Python threads.
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

// Without memory for another worker, the pool has fewer.
void test_no_memory_for_workers() {
    bool some = false, all = false;
    for (long n = 0; n < 20; ++n) {
        Control control;
        allocations_left = n;
        Pool pool(5, control);
        allocations_left = -1;
        some |= pool.threads() > 1 && pool.threads() < 5;
        all |= pool.threads() == 5;
        if (n == 0) CHECK(pool.threads() == 1);
        std::atomic<size_t> sum = 0;
        pool.run(100, [&](size_t i, unsigned) { sum += i; });
        CHECK(sum == 4950);
        CHECK_THROWS(pool.run(100, [](size_t, unsigned) { throw std::runtime_error("still caught"); }),
                     "still caught");
    }
    CHECK(some && all);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Without address space for the stacks of all workers, the pool has fewer.
void test_no_stacks_for_workers() {
    const pid_t child = fork();
    if (child == 0) {
        size_t pages = 0;
        if (FILE* file = std::fopen("/proc/self/statm", "r")) {
            if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
            std::fclose(file);
        }
        const size_t bytes = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{40} << 20);
        const rlimit limit{bytes, bytes};
        if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
        Control control;
        Pool pool(64, control);
        std::atomic<size_t> sum = 0;
        pool.run(1000, [&](size_t i, unsigned) { sum += i; });
        _exit(pool.threads() < 64 && sum == 499500 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#else
void test_no_stacks_for_workers() {}
#endif

void test_progress_share() {
    Control control;
    ProgressShare share(control, 100), other(control, 7);
    share.advance_to(0.25);
    CHECK(control.done == 25);
    share.advance_to(0.2);  // the progress never decreases
    CHECK(control.done == 25);
    share.advance_to(0.999);
    other.advance_to(0.5);
    CHECK(control.done == 99 + 3);
    share.finish();
    share.advance_to(2);
    other.finish();
    CHECK(control.done == 107);
}

}  // namespace

int main() {
    test_each_index_once();
    test_workers_are_exclusive();
    test_nested_loops();
    test_no_foreign_work_while_waiting();
    test_help_with_inner_loops();
    test_alone();
    test_exceptions();
    test_caught_inside();
    test_stop();
    test_stop_from_outside();
    test_many_pools();
    test_no_memory_for_workers();
    test_no_stacks_for_workers();
    test_progress_share();
    return check::report("parallel");
}

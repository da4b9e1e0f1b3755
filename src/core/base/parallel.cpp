#include "base/parallel.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#ifdef __linux__
#include <sched.h>
#endif

namespace bonsai {
namespace {

// Results are assigned to it, so that the compiler cannot remove the calls.
void keep(const void* result) {
    static std::atomic<const void*> sink;
    sink.store(result, std::memory_order_relaxed);
}

}  // namespace

void prepare_for_exceptions() {
    keep(abi::__cxa_get_globals());
}

bool prepare_new_thread() {
    // Thread-local blocks of libraries are allocated when they are first touched, and glibc ends the process
    // where that fails. These blocks are small (32 bytes in libstdc++, 16 here). Memory that is freed here
    // stays in the cache of this thread, which reuses it for them: no other thread can take it in between.
    constexpr size_t smallest = 24, step = 16, n = 16;
    void* blocks[n];
    size_t found = 0;
    while (found < n && (blocks[found] = std::malloc(smallest + found / 2 * step)) != nullptr)
        keep(blocks[found++]);
    for (size_t i = 0; i < found; ++i) std::free(blocks[i]);
    if (found < n) return false;
    prepare_for_exceptions();
    return true;
}

Pool::Pool(unsigned threads, Control& control, Caches* caches)
    : control_(control),
      has_many_threads_(threads >= 4),
      caches_(caches ? *caches : own_caches_),
      outer_cache_(std::exchange(MemoryCache::of_thread(), &caches_.first)) {
    prepare_for_exceptions();
    current_worker() = 0;
    try {
        caches_.others.resize(threads > 0 ? threads - 1 : 0);
        threads_.reserve(caches_.others.size());
        for (unsigned w = 1; w < threads; ++w) threads_.emplace_back([this, w] { work(w); });
    } catch (const std::exception&) {
        // If no thread (std::system_error) or no memory (std::bad_alloc) is left, fewer workers do the same
        // work.
    }
}

Pool::~Pool() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    begun_.notify_all();
    for (auto& thread : threads_) thread.join();
    MemoryCache::of_thread() = outer_cache_;
}

unsigned& Pool::current_worker() {
    static thread_local unsigned worker = 0;
    return worker;
}

bool& Pool::is_alone() {
    static thread_local bool alone = false;
    return alone;
}

void Pool::run(size_t n, const std::function<void(size_t, unsigned)>& fn) {
    control_.check();
    const unsigned worker = current_worker();
    if (n <= 1 || threads_.empty() || is_alone()) {
        for (size_t i = 0; i < n; ++i) {
            control_.check();
            fn(i, worker);
        }
        return;
    }
    Loop loop{.size = n, .fn = &fn};
    std::unique_lock lock(mutex_);
    loops_.push_back(&loop);
    ++n_begun_;
    lock.unlock();
    begun_.notify_all();
    left_.notify_all();  // waiting workers can help
    run_tasks(loop, worker);
    lock.lock();
    while (loop.workers > 0) {
        if (Loop* inner = open_loop(&loop))
            help(*inner, lock, worker);
        else
            left_.wait(lock);
    }
    loops_.erase(std::find(loops_.begin(), loops_.end(), &loop));
    if (loop.error) std::rethrow_exception(loop.error);
}

Pool::Loop* Pool::open_loop(const Loop* after) const {
    for (auto loop = loops_.rbegin(); loop != loops_.rend() && *loop != after; ++loop)
        if (!(*loop)->exhausted()) return *loop;
    return nullptr;
}

bool Pool::run_task(Loop& loop, unsigned worker) {
    if (loop.exhausted()) return false;
    const size_t index = loop.next++;
    if (index >= loop.size) return false;
    try {
        control_.check();
        (*loop.fn)(index, worker);
    } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!loop.error) loop.error = std::current_exception();
        loop.failed = true;
    }
    return true;
}

void Pool::run_tasks(Loop& loop, unsigned worker) {
    while (run_task(loop, worker)) {
    }
}

void Pool::help(Loop& loop, std::unique_lock<std::mutex>& lock, unsigned worker) {
    ++loop.workers;
    const uint64_t n_begun = n_begun_;
    lock.unlock();
    while (n_begun_.load(std::memory_order_relaxed) == n_begun && run_task(loop, worker)) {
    }
    lock.lock();
    if (--loop.workers == 0 && loop.exhausted()) left_.notify_all();
}

// Loops often follow each other within microseconds; on many cores it takes longer to put a thread to sleep
// and to wake it.
void Pool::wait_a_moment() const {
    constexpr int n_pauses = 2000;
    if (!has_many_threads_) return;
    const uint64_t n_begun = n_begun_.load(std::memory_order_relaxed);
    for (int i = 0; i < n_pauses && n_begun_.load(std::memory_order_relaxed) == n_begun && !closing_; ++i) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

void Pool::work(unsigned worker) {
    if (!prepare_new_thread()) return;
    current_worker() = worker;
    MemoryCache::of_thread() = &caches_.others[worker - 1];
    std::unique_lock lock(mutex_);
    while (true) {
        if (Loop* loop = open_loop(nullptr)) {
            help(*loop, lock, worker);
            continue;
        }
        if (closing_) return;
        lock.unlock();
        wait_a_moment();
        lock.lock();
        if (!open_loop(nullptr) && !closing_) begun_.wait(lock);
    }
}

unsigned available_threads() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace bonsai

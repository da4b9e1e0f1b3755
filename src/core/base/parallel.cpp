#include "base/parallel.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#ifdef __linux__
#include <sched.h>
#endif

namespace bonsai {
namespace {

// The compiler must not remove the calls whose results it sees go here.
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
    // where that fails. They are small (32 bytes in libstdc++, 4 in ours). What is freed here stays with this
    // thread, which takes it again for them: no other thread can come in between.
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

Pool::Pool(unsigned threads, Control& control) : control_(control) {
    prepare_for_exceptions();
    current_worker() = 0;
    try {
        threads_.reserve(threads > 0 ? threads - 1 : 0);
        for (unsigned w = 1; w < threads; ++w) threads_.emplace_back([this, w] { work(w); });
    } catch (const std::exception&) {
        // No thread (std::system_error) or no memory (std::bad_alloc): fewer workers do the same work.
    }
}

Pool::~Pool() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
}

unsigned& Pool::current_worker() {
    static thread_local unsigned worker = 0;
    return worker;
}

void Pool::run(size_t n, const std::function<void(size_t, unsigned)>& fn) {
    control_.check();
    const unsigned worker = current_worker();
    if (n <= 1 || threads_.empty()) {
        for (size_t i = 0; i < n; ++i) {
            control_.check();
            fn(i, worker);
        }
        return;
    }
    Loop loop{.size = n, .fn = &fn, .error = nullptr};
    std::unique_lock lock(mutex_);
    loops_.push_back(&loop);
    changed_.notify_all();
    while (true) {
        if (!loop.exhausted())
            run_task(loop, lock, worker);
        else if (loop.running == 0)
            break;
        else if (Loop* inner = open_loop(&loop))
            run_task(*inner, lock, worker);
        else
            changed_.wait(lock);
    }
    loops_.erase(std::find(loops_.begin(), loops_.end(), &loop));
    if (loop.error) std::rethrow_exception(loop.error);
}

Pool::Loop* Pool::open_loop(const Loop* after) const {
    for (auto loop = loops_.rbegin(); loop != loops_.rend() && *loop != after; ++loop)
        if (!(*loop)->exhausted()) return *loop;
    return nullptr;
}

void Pool::run_task(Loop& loop, std::unique_lock<std::mutex>& lock, unsigned worker) {
    const size_t index = loop.next++;
    ++loop.running;
    lock.unlock();
    std::exception_ptr error;
    try {
        control_.check();
        (*loop.fn)(index, worker);
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    if (error && !loop.error) loop.error = error;
    if (--loop.running == 0 && loop.exhausted()) changed_.notify_all();
}

void Pool::work(unsigned worker) {
    if (!prepare_new_thread()) return;
    current_worker() = worker;
    std::unique_lock lock(mutex_);
    while (true) {
        if (Loop* loop = open_loop(nullptr)) {
            run_task(*loop, lock, worker);
        } else if (closing_) {
            return;
        } else {
            changed_.wait(lock);
        }
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

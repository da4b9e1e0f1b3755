#include "base/parallel.hpp"

#include <algorithm>
#ifdef __linux__
#include <sched.h>
#endif

namespace bonsai {

Pool::Pool(unsigned threads, Control& control) : control_(control) {
    current_worker() = 0;
    threads_.reserve(threads > 0 ? threads - 1 : 0);
    try {
        for (unsigned w = 1; w < threads; ++w) threads_.emplace_back([this, w] { work(w); });
    } catch (const std::system_error&) {
        // The system has no thread left to give: fewer workers do the same work.
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
            take_one(loop, lock, worker);
        else if (loop.running == 0)
            break;
        else if (Loop* inner = open_loop(&loop))
            take_one(*inner, lock, worker);
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

void Pool::take_one(Loop& loop, std::unique_lock<std::mutex>& lock, unsigned worker) {
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
    current_worker() = worker;
    std::unique_lock lock(mutex_);
    while (true) {
        if (Loop* loop = open_loop(nullptr)) {
            take_one(*loop, lock, worker);
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

// Threads that live for one call. No global pool: no thread survives the call, so a forked child is safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.hpp"

namespace bonsai {

// Thrown by `Pool::run` after `Control::stop` was set.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// State that a long call shares with the thread that watches it: a request to stop, and the progress.
struct Control {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> done{0};   // the unit is chosen by each phase; never decreases
    std::atomic<uint64_t> total{0};  // 0: unknown so far

    // Polled in every long loop: throws Interrupted after a request to stop.
    void check() const {
        if (stop.load(std::memory_order_relaxed)) throw Interrupted();
    }
};

// The progress of one task. It adds up to the cost of the task, whatever is reported on the way.
class ProgressShare {
  public:
    ProgressShare(Control& control, uint64_t cost) : control_(&control), cost_(cost) {}

    // At least this fraction of the work of the task is done, between 0 and 1.
    void advance_to(double part) {
        const auto reached = part >= 1 ? cost_ : static_cast<uint64_t>(part * static_cast<double>(cost_));
        if (reached <= reported_) return;
        control_->done += reached - reported_;
        reported_ = reached;
    }
    void finish() { advance_to(1); }

  private:
    Control* control_;
    uint64_t cost_;
    uint64_t reported_ = 0;
};

// The first exception of a thread needs thread-local memory of the C++ runtime. If that allocation fails, the
// process terminates. This function allocates the memory in advance.
void prepare_for_exceptions();

// The first step of each new thread. Returns whether the thread has all the memory that it needs. If not, it
// must end without touching thread-local variables and without throwing; other threads do its work.
bool prepare_new_thread();

class Pool {
  public:
    // Caches of freed arrays, one per worker.
    struct Caches {
        MemoryCache first;  // of worker 0
        std::vector<MemoryCache> others;
    };

    // The calling thread is worker 0 of `threads` workers. There are fewer if the system has no memory or
    // threads left: see threads(). `caches`, if given, keep freed arrays for the next pool.
    Pool(unsigned threads, Control& control, Caches* caches = nullptr);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    unsigned threads() const { return static_cast<unsigned>(threads_.size()) + 1; }
    Control& control() const { return control_; }

    // Calls fn(index, worker) for each index in [0, n), in any order, and returns when all are done. The
    // first exception ends the loop and is rethrown here. May be called from inside fn. Workers take tasks of
    // the innermost loop first. A worker that waits for the end of its own loop helps with loops that were
    // begun after it, but never with an outer loop. So while fn runs on a worker, no other task of the same
    // loop runs there, and tasks of an outermost loop, and tasks that start no loop, may use one buffer per
    // worker.
    void run(size_t n, const std::function<void(size_t index, unsigned worker)>& fn);

    // While it exists, loops that this thread begins run on this thread alone. Meant for the tasks of a loop
    // with many tasks: a worker that helped with an inner loop would delay its next task and fill its cache
    // with other data.
    class Alone {
      public:
        Alone() : before_(std::exchange(is_alone(), true)) {}
        ~Alone() { is_alone() = before_; }
        Alone(const Alone&) = delete;
        Alone& operator=(const Alone&) = delete;

      private:
        const bool before_;
    };

  private:
    // Tasks are claimed without the mutex, which guards `workers`, `error` and the list of loops.
    struct Loop {
        const size_t size;
        const std::function<void(size_t, unsigned)>* const fn;
        std::atomic<size_t> next{0};
        std::atomic<bool> failed{false};
        size_t workers = 0;  // that may run its tasks, besides the one that began it
        std::exception_ptr error = nullptr;
        bool exhausted() const { return failed || next >= size; }
    };

    void work(unsigned worker);
    // The innermost loop with tasks left among those begun after `after`.
    Loop* open_loop(const Loop* after) const;
    // Runs tasks until none is left. A helper returns as soon as another loop begins.
    void run_tasks(Loop& loop, unsigned worker);
    void help(Loop& loop, std::unique_lock<std::mutex>& lock, unsigned worker);
    bool run_task(Loop& loop, unsigned worker);
    void wait_a_moment() const;
    static unsigned& current_worker();
    static bool& is_alone();

    Control& control_;
    const bool has_many_threads_;
    std::mutex mutex_;
    std::condition_variable begun_, left_;  // a loop has begun; the last helper has left a loop
    std::atomic<uint64_t> n_begun_{0};
    std::vector<Loop*> loops_;
    std::atomic<bool> closing_{false};
    Caches own_caches_;
    Caches& caches_;
    MemoryCache* const outer_cache_;  // of the calling thread, restored at the end
    std::vector<std::thread> threads_;
};

// The number of threads that this process may use (its CPU affinity), at least 1.
unsigned available_threads();

}  // namespace bonsai

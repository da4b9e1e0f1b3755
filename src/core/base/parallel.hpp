// Threads for the length of one call. No global pool: nothing survives the call, so a forked child is safe.
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

// What a long call shares with the thread that watches it: a request to stop, and the progress.
struct Control {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> done{0};   // in units that each phase chooses; never decreases
    std::atomic<uint64_t> total{0};  // 0: not known yet

    // Polled in every long loop: throws Interrupted after a request to stop.
    void check() const {
        if (stop.load(std::memory_order_relaxed)) throw Interrupted();
    }
};

// One task's share of the progress: adds up to its cost, whatever it reports on the way.
class ProgressShare {
  public:
    ProgressShare(Control& control, uint64_t cost) : control_(&control), cost_(cost) {}

    // The task has done at least this part of its work, between 0 and 1.
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

// The first exception of a thread needs thread-local memory of the C++ runtime. If allocating it fails at
// that moment, the process terminates. This allocates it in advance.
void prepare_for_exceptions();

// What each new thread does first. Returns whether it has all the memory that it needs. If not, it must end,
// without touching thread-local variables or throwing, and leave the work to others.
bool prepare_new_thread();

class Pool {
  public:
    // Freed arrays of the workers.
    struct Caches {
        MemoryCache first;  // of worker 0
        std::vector<MemoryCache> others;
    };

    // The calling thread is worker 0 of `threads` workers. There are fewer where the system has no memory or
    // threads left: threads() tells. `caches`, if given, keep freed arrays for the next pool.
    Pool(unsigned threads, Control& control, Caches* caches = nullptr);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    unsigned threads() const { return static_cast<unsigned>(threads_.size()) + 1; }
    Control& control() const { return control_; }

    // Calls fn(index, worker) for each index in [0, n), in any order, and returns when all are done. The
    // first exception ends the loop and is rethrown here. May be called from inside fn. Workers take tasks of
    // the innermost loop first. A worker that waits for the rest of its own loop helps with loops that were
    // begun after it, but never with an outer one: while fn runs on a worker, no other task of the same loop
    // does, and buffers may be kept for each worker, by the tasks of an outermost loop as well as by tasks
    // that start no loop.
    void run(size_t n, const std::function<void(size_t index, unsigned worker)>& fn);

    // While it lives, loops that this thread begins are run by this thread alone. For tasks of a loop that
    // has many: whoever helped with their inner loops would leave the next task, and bring other data into
    // its cache.
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
        size_t workers = 0;  // that may run tasks of it, besides the one that began it
        std::exception_ptr error = nullptr;
        bool exhausted() const { return failed || next >= size; }
    };

    void work(unsigned worker);
    // The innermost loop that has tasks left, of those begun after `after`.
    Loop* open_loop(const Loop* after) const;
    // Runs tasks until none is left. A helper leaves as soon as another loop begins.
    void run_tasks(Loop& loop, unsigned worker);
    void help(Loop& loop, std::unique_lock<std::mutex>& lock, unsigned worker);
    bool run_task(Loop& loop, unsigned worker);
    void wait_a_moment() const;
    static unsigned& current_worker();
    static bool& is_alone();

    Control& control_;
    const bool has_many_threads_;
    std::mutex mutex_;
    std::condition_variable begun_, left_;  // a loop has begun; the last helper has left one
    std::atomic<uint64_t> n_begun_{0};
    std::vector<Loop*> loops_;
    std::atomic<bool> closing_{false};
    Caches own_caches_;
    Caches& caches_;
    MemoryCache* const outer_cache_;  // that the calling thread had before
    std::vector<std::thread> threads_;
};

// The number of threads that this process may use (its CPU affinity), at least 1.
unsigned available_threads();

}  // namespace bonsai

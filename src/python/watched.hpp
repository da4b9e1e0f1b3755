// Responsive long calls: work without the GIL, progress, signals.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/parallel.hpp"

namespace bonsai {

// Runs fn(pool) without the GIL on threads of its own, while this thread delivers signals (Ctrl-C stops the
// work promptly) and, ten times a second, takes the GIL and calls progress(done, total) and poll(). poll is
// called once more at the end, even after an error.
template <class Fn, class Poll>
void run_watched(unsigned threads, const nanobind::object& progress, Fn&& fn, Poll&& poll,
                 Pool::Caches* caches = nullptr) {
    using namespace std::chrono_literals;
    Control control;
    std::mutex mutex;
    std::condition_variable finished;
    bool done = false, refused = false;
    std::exception_ptr error;
    const auto end = [&] {
        const std::lock_guard lock(mutex);
        done = true;
        finished.notify_all();
    };
    const auto work = [&] {
        try {
            Pool pool(threads, control, caches);
            fn(pool);
        } catch (...) {
            error = std::current_exception();
        }
        end();
    };
    prepare_for_exceptions();
    {
        const nanobind::gil_scoped_release unlock;
        std::thread driver;
        try {
            driver = std::thread([&] {
                if (prepare_new_thread()) return work();
                refused = true;
                end();
            });
        } catch (const std::exception&) {
            refused = true;
            done = true;
        }
        std::unique_lock lock(mutex);
        std::exception_ptr python_error;
        while (!finished.wait_for(lock, 100ms, [&] { return done; })) {
            if (control.stop) continue;
            const nanobind::gil_scoped_acquire hold;
            try {
                if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
                if (!progress.is_none()) progress(control.done.load(), control.total.load());
                poll();
            } catch (...) {
                python_error = std::current_exception();
                control.stop = true;
            }
        }
        lock.unlock();
        if (driver.joinable()) driver.join();
        if (refused) work();  // no thread is available: work without watching
        if (python_error) error = python_error;
    }
    try {
        poll();
    } catch (...) {
        if (!error) throw;
    }
    if (error) std::rethrow_exception(error);
    if (!progress.is_none()) progress(control.total.load(), control.total.load());
}

template <class Fn>
void run_watched(unsigned threads, const nanobind::object& progress, Fn&& fn) {
    run_watched(threads, progress, fn, [] {});
}

}  // namespace bonsai

// Loaded before all other libraries (LD_PRELOAD): one call of a kind fails, or the process is killed at it.
//
//   faults_arm(kind, nth, kill)  the nth call of this kind from now on; nth < 0: none, calls are counted
//   faults_disarm()              no further one; returns the number of calls since then
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

enum Kind { kAllocation, kWrite, kSync, kRename, kThread, kNone };
std::atomic<int> armed{kNone};
std::atomic<long> calls{0}, victim{-1};
std::atomic<bool> kills{false};

bool fails(Kind kind) {
    if (armed.load(std::memory_order_relaxed) != kind || calls++ != victim) return false;
    if (kills) raise(SIGKILL);
    return true;
}

template <class F>
F real(const char* name) {
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

int with_error(int error) {
    errno = error;
    return -1;
}

}  // namespace

extern "C" {

void faults_arm(int kind, long nth, int kill) {
    calls = 0;
    victim = nth;
    kills = kill != 0;
    armed = kind;
}

long faults_disarm() {
    armed = kNone;
    return calls;
}

void* aligned_alloc(size_t alignment, size_t n) {
    static const auto call = real<void* (*)(size_t, size_t)>("aligned_alloc");
    return fails(kAllocation) ? nullptr : call(alignment, n);
}

void* mmap(void* at, size_t n, int protection, int flags, int file, off_t offset) {
    static const auto call = real<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
    if (fails(kAllocation)) return errno = ENOMEM, MAP_FAILED;
    return call(at, n, protection, flags, file, offset);
}

ssize_t write(int file, const void* data, size_t n) {
    static const auto call = real<ssize_t (*)(int, const void*, size_t)>("write");
    if (file > 2 && fails(kWrite)) return with_error(ENOSPC);
    return call(file, data, n);
}

ssize_t pwrite64(int file, const void* data, size_t n, off_t place) {
    static const auto call = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite64");
    if (fails(kWrite)) return call(file, data, n / 2, place), with_error(ENOSPC);
    return call(file, data, n, place);
}

ssize_t pwrite(int file, const void* data, size_t n, off_t place) {
    return pwrite64(file, data, n, place);
}

int fsync(int file) {
    static const auto call = real<int (*)(int)>("fsync");
    return fails(kSync) ? with_error(EIO) : call(file);
}

int rename(const char* from, const char* to) {
    static const auto call = real<int (*)(const char*, const char*)>("rename");
    return fails(kRename) ? with_error(EIO) : call(from, to);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* options, void* (*run)(void*), void* data) {
    static const auto call = real<decltype(&pthread_create)>("pthread_create");
    return fails(kThread) ? EAGAIN : call(thread, options, run, data);
}

}  // extern "C"

// What C++ allocates, the core above all. Not `malloc`: without memory numpy and its like crash by
// themselves. Nor below 64 bytes: nanobind ends the process where it finds no room for a shared pointer.
void* operator new(size_t n) {
    constexpr size_t kSmallest = 64;
    void* const memory = n >= kSmallest && fails(kAllocation) ? nullptr : std::malloc(n);
    if (!memory) throw std::bad_alloc();
    return memory;
}

void* operator new(size_t n, std::align_val_t alignment) {
    const size_t step = static_cast<size_t>(alignment);
    void* const memory = std::aligned_alloc(step, (n + step - 1) / step * step);
    if (!memory) throw std::bad_alloc();
    return memory;
}

void* operator new[](size_t n) {
    return operator new(n);
}

void operator delete(void* memory) noexcept {
    std::free(memory);
}

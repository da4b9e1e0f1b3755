// Memory for kernels: aligned vectors on huge pages, large arrays that are used again, and arrays whose
// untouched pages cost nothing.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace bonsai {

// Maximum bytes of freed arrays that a thread keeps for reuse.
inline constexpr size_t kMostKept = size_t{16} << 20;

// Large arrays that a thread has freed and may soon need again. Pages from the system are cleared, and the
// first access to each is a page fault; threads that allocate and free at the same time also wait for each
// other.
class MemoryCache {
  public:
    MemoryCache() = default;
    ~MemoryCache() { clear(); }
    MemoryCache(MemoryCache&& other) noexcept : kept_(std::move(other.kept_)) {}

    // The cache of this thread, null if it has none. Other threads must not use it.
    static MemoryCache*& of_thread();
    // Aligned to cache lines; throws std::bad_alloc.
    static void* allocate(size_t bytes);
    // `bytes` as passed to allocate.
    static void free(void* memory, size_t bytes) noexcept;

  private:
    void* take(size_t bytes);
    bool keep(void* memory) noexcept;
    void clear() noexcept;

    static constexpr size_t kMostArrays = 8;

    std::vector<void*> kept_;  // the oldest first
};

// Aligned to cache lines, so that no vector register is loaded from two of them. Large arrays ask for huge
// pages: their rows are accessed at random, and each access would miss the TLB.
template <class T>
struct PanelAllocator {
    using value_type = T;
    PanelAllocator() = default;
    template <class U>
    PanelAllocator(const PanelAllocator<U>&) {}

    T* allocate(size_t n) {
        if (n > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_alloc();
        return static_cast<T*>(MemoryCache::allocate(n * sizeof(T)));
    }
    void deallocate(T* memory, size_t n) { MemoryCache::free(memory, n * sizeof(T)); }
    bool operator==(const PanelAllocator&) const = default;
};

template <class T>
using AlignedVector = std::vector<T, PanelAllocator<T>>;

// Memory in its own pages, which return to the system when it is freed. Heaps keep freed pages; there is one
// heap per thread, and a thread cannot use free memory in the heap of another. Not initialised.
class MappedMemory {
  public:
    explicit MappedMemory(size_t bytes);  // throws std::bad_alloc
    ~MappedMemory();
    MappedMemory(const MappedMemory&) = delete;
    MappedMemory& operator=(const MappedMemory&) = delete;
    void* data() const { return data_; }

  private:
    const size_t bytes_;
    void* const data_;
};

// Returns unused memory in the heaps of all threads to the system. Takes time in proportion to that memory.
void trim_heaps() noexcept;

// New elements are not initialised: pages are first touched by the threads that fill them.
template <class T, template <class> class Base = std::allocator>
struct UninitialisedAllocator : Base<T> {
    template <class U>
    struct rebind {
        using other = UninitialisedAllocator<U, Base>;
    };
    UninitialisedAllocator() = default;
    template <class U>
    UninitialisedAllocator(const UninitialisedAllocator<U, Base>&) {}

    template <class U>
    void construct(U* p) {
        ::new (static_cast<void*>(p)) U;
    }
    template <class U, class... Args>
    void construct(U* p, Args&&... args) {
        ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
    }
};

template <class T>
using UninitialisedVector = std::vector<T, UninitialisedAllocator<T>>;

// The same on huge pages: for arrays that all threads fill at once, since page faults of one thread block the
// others.
template <class T>
using SharedVector = std::vector<T, UninitialisedAllocator<T, PanelAllocator>>;

// Weight vectors side by side, feature-major (see kernels/kernels.hpp).
using Panel = AlignedVector<float>;

// A zero-initialised array. Unlike a vector it takes zeroed pages from the system: untouched pages cost
// neither time nor memory.
template <class T>
class ZeroedArray {
  public:
    explicit ZeroedArray(size_t n) : data_(static_cast<T*>(std::calloc(n + 1, sizeof(T))), &std::free) {
        if (!data_) throw std::bad_alloc();
    }
    T& operator[](size_t i) { return data_[i]; }
    const T* data() const { return data_.get(); }

  private:
    std::unique_ptr<T[], decltype(&std::free)> data_;
};

// Uninitialised and aligned: pages are first touched by the threads that use them.
template <class T>
class Buffer {
  public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Buffer() { reset(); }

    // Makes room for at least n values. The contents are lost if the array grows.
    void ensure_size(size_t n) {
        if (n <= size_) return;
        reset();
        data_ = PanelAllocator<T>().allocate(n);
        size_ = n;
    }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }
    T* data() { return data_; }
    const T* data() const { return data_; }

  private:
    void reset() {
        if (data_) PanelAllocator<T>().deallocate(std::exchange(data_, nullptr), std::exchange(size_, 0));
    }

    T* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace bonsai

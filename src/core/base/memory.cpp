#include "base/memory.hpp"

#include <algorithm>
#include <cstdint>
#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace bonsai {
namespace {

constexpr size_t kLine = 64, kHugePage = size_t{2} << 20;
// The heap handles smaller arrays well; larger ones would hold too much memory.
constexpr size_t kSmallest = size_t{256} << 10, kLargest = size_t{16} << 20;

// Stored before a large array, in its own cache line.
struct Header {
    size_t bytes;  // capacity of the array
};

Header& header_of(void* memory) {
    return *reinterpret_cast<Header*>(static_cast<uint8_t*>(memory) - kLine);
}

size_t round_up(size_t bytes, size_t step) {
    return (bytes + step - 1) / step * step;
}

void* allocate_large(size_t bytes) {
    const bool huge = bytes >= 2 * kHugePage;
    const size_t alignment = huge ? kHugePage : kLine, all = round_up(bytes + kLine, alignment);
    void* const base = std::aligned_alloc(alignment, all);
    if (!base) return nullptr;
#ifdef __linux__
    if (huge) madvise(base, all, MADV_HUGEPAGE);  // a hint: it may be refused
#endif
    void* const memory = static_cast<uint8_t*>(base) + kLine;
    new (&header_of(memory)) Header{bytes};
    return memory;
}

void free_large(void* memory) {
    std::free(&header_of(memory));
}

void* map_pages(size_t bytes) {
#ifdef __linux__
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
#else
    return ::operator new(bytes);
#endif
}

}  // namespace

MemoryCache*& MemoryCache::of_thread() {
    static thread_local MemoryCache* cache = nullptr;
    return cache;
}

void* MemoryCache::allocate(size_t bytes) {
    if (bytes > static_cast<size_t>(-1) / 2) throw std::bad_alloc();
    void* memory;
    if (bytes < kSmallest) {
        memory = std::aligned_alloc(kLine, round_up(std::max(bytes, kLine), kLine));
    } else {
        MemoryCache* const cache = of_thread();
        memory = cache ? cache->take(bytes) : nullptr;
        if (!memory) memory = allocate_large(bytes);
        if (!memory && cache) {
            cache->clear();
            memory = allocate_large(bytes);
        }
    }
    if (!memory) throw std::bad_alloc();
    return memory;
}

void MemoryCache::free(void* memory, size_t bytes) noexcept {
    if (bytes < kSmallest) return std::free(memory);
    MemoryCache* const cache = of_thread();
    if (!cache || !cache->keep(memory)) free_large(memory);
}

// Takes the smallest array that is large enough, unless most of it would be unused.
void* MemoryCache::take(size_t bytes) {
    constexpr size_t most = 4;  // times as large as needed
    size_t best = kept_.size();
    for (size_t i = 0; i < kept_.size(); ++i) {
        const size_t room = header_of(kept_[i]).bytes;
        if (room >= bytes && room / most <= bytes &&
            (best == kept_.size() || room <= header_of(kept_[best]).bytes))
            best = i;
    }
    if (best == kept_.size()) return nullptr;
    void* const memory = kept_[best];
    kept_.erase(kept_.begin() + static_cast<int64_t>(best));
    return memory;
}

bool MemoryCache::keep(void* memory) noexcept {
    if (header_of(memory).bytes > kLargest) return false;
    try {
        kept_.reserve(kMostArrays + 1);
    } catch (const std::bad_alloc&) {
        return false;
    }
    kept_.push_back(memory);
    size_t total = 0;
    for (void* const kept : kept_) total += header_of(kept).bytes;
    while (total > kMostKept || kept_.size() > kMostArrays) {
        total -= header_of(kept_.front()).bytes;
        free_large(kept_.front());
        kept_.erase(kept_.begin());
    }
    return true;
}

void MemoryCache::clear() noexcept {
    for (void* const memory : kept_) free_large(memory);
    kept_.clear();
}

void trim_heaps() noexcept {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

MappedMemory::MappedMemory(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)), data_(map_pages(bytes_)) {}

MappedMemory::~MappedMemory() {
#ifdef __linux__
    munmap(data_, bytes_);
#else
    ::operator delete(data_);
#endif
}

}  // namespace bonsai

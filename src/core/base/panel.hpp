// Memory for panels: vectors whose first element begins a cache line, so that no vector register is loaded
// from two lines, and of which large ones ask for huge pages: their rows are read at random.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace bonsai {

template <class T>
struct PanelAllocator {
    using value_type = T;
    PanelAllocator() = default;
    template <class U>
    PanelAllocator(const PanelAllocator<U>&) {}

    T* allocate(size_t n) {
        constexpr size_t line = 64, huge_page = size_t{2} << 20;
        const size_t bytes = n * sizeof(T), alignment = bytes >= 2 * huge_page ? huge_page : line;
        if (n > static_cast<size_t>(-1) / sizeof(T) - huge_page) throw std::bad_alloc();
        void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
        if (!memory) throw std::bad_alloc();
#ifdef __linux__
        if (alignment == huge_page)
            madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; no harm if it is refused
#endif
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t) { std::free(memory); }
    bool operator==(const PanelAllocator&) const = default;
};

using Panel = std::vector<float, PanelAllocator<float>>;

}  // namespace bonsai

// Serialised results: numbers and arrays one after the other, in the byte order of this machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace bonsai {

using Bytes = std::vector<uint8_t>;

class ByteWriter {
  public:
    template <class T>
    void value(T v) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* p = reinterpret_cast<const uint8_t*>(&v);
        out_.insert(out_.end(), p, p + sizeof(T));
    }
    // The number of items, then the items.
    template <class T>
    void array(std::span<const T> all) {
        value(static_cast<uint64_t>(all.size()));
        items(all);
    }
    // The items without their number.
    template <class T>
    void items(std::span<const T> items) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* p = reinterpret_cast<const uint8_t*>(items.data());
        out_.insert(out_.end(), p, p + items.size_bytes());
    }
    void reserve(size_t n_bytes) { out_.reserve(n_bytes); }
    Bytes take() { return std::move(out_); }

  private:
    Bytes out_;
};

// Throws std::invalid_argument if there are too few bytes or too many.
class ByteReader {
  public:
    explicit ByteReader(std::span<const uint8_t> bytes) : left_(bytes) {}

    template <class T>
    T value() {
        T v;
        copy(&v, sizeof(T));
        return v;
    }
    // n items without their number.
    template <class Vector>
    void items(Vector& into, uint64_t n) {
        using T = typename Vector::value_type;
        static_assert(std::is_trivially_copyable_v<T>);
        if (n > left_.size() / sizeof(T)) fail();
        into.resize(n);
        copy(into.data(), n * sizeof(T));
    }
    template <class Vector>
    void array(Vector& into) {
        items(into, value<uint64_t>());
    }
    template <class T>
    std::vector<T> array() {
        std::vector<T> found;
        array(found);
        return found;
    }
    void end() const {
        if (!left_.empty()) fail();
    }

  private:
    [[noreturn]] static void fail() {
        throw std::invalid_argument("the result of a unit of work is longer or shorter than it states");
    }
    void copy(void* to, size_t n_bytes) {
        if (n_bytes > left_.size()) fail();
        if (n_bytes > 0) std::memcpy(to, left_.data(), n_bytes);
        left_ = left_.subspan(n_bytes);
    }

    std::span<const uint8_t> left_;
};

}  // namespace bonsai

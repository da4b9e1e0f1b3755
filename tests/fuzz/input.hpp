// Interprets the fuzzer's bytes as numbers and as edits of arrays.
//
// Targets start from a small valid model whose arrays the bytes edit: nearly every input passes the first
// checks, and mutations of an input stay close to it.
#pragma once

#include <sys/time.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fuzz {

// Ends the process if a property does not hold, as libFuzzer expects.
#define REQUIRE(...)                                                                              \
    do {                                                                                          \
        if (!(__VA_ARGS__)) {                                                                     \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            std::abort();                                                                         \
        }                                                                                         \
    } while (false)

constexpr time_t kSeconds = 20;  // of the CPU, for one input

class Input {
  public:
    Input(const uint8_t* data, size_t size) : left_(data, size) {
        // libFuzzer limits elapsed time, of which a process may have little
        static const auto handler = std::signal(SIGPROF, [](int) { std::abort(); });
        const itimerval limit{{}, {kSeconds, 0}};
        REQUIRE(handler != SIG_ERR && setitimer(ITIMER_PROF, &limit, nullptr) == 0);
    }

    bool empty() const { return left_.empty(); }
    // Returns zeros after the end of the input.
    template <class T>
    T value() {
        T v{};
        const size_t n = std::min(sizeof(T), left_.size());
        if (n > 0) std::memcpy(&v, left_.data(), n);
        left_ = left_.subspan(n);
        return v;
    }
    size_t below(size_t n) { return n <= 256 ? value<uint8_t>() % n : value<uint16_t>() % n; }
    bool flag() { return value<uint8_t>() & 1; }
    std::string_view rest() const { return {reinterpret_cast<const char*>(left_.data()), left_.size()}; }

    // Changes some entries of an array, or its length.
    template <class Vector>
    void edit(Vector& array) {
        using T = typename Vector::value_type;
        const size_t kind = below(9), n = array.size();
        if (kind == 0) return array.resize(below(n + 1));
        if (kind == 1) return array.resize(n + 1 + below(40), n > 0 ? array[below(n)] : T{});
        if (n == 0) return;
        const size_t at = below(n);
        const auto place = array.begin() + static_cast<std::ptrdiff_t>(at);
        if (kind == 2) {
            array.erase(place);
        } else if (kind == 3) {
            array.insert(place, value<T>());
        } else if (kind == 4) {
            array[at] = array[below(n)];
        } else if (kind == 5) {
            std::fill(place, place + static_cast<std::ptrdiff_t>(below(n - at) + 1), special<T>());
        } else if (kind == 6) {
            array[at] = special<T>();
        } else if (kind == 7) {
            array[at] = shifted(array[at], value<int8_t>());
        } else {
            array[at] = value<T>();
        }
    }

  private:
    template <class T>
    T special() {
        using Limits = std::numeric_limits<T>;
        const T all[] = {T{0},
                         T{1},
                         T{127},
                         Limits::max(),
                         Limits::lowest(),
                         static_cast<T>(Limits::max() / 2),
                         Limits::quiet_NaN(),
                         Limits::infinity()};
        return all[below(std::size(all))];
    }
    template <class T>
    static T shifted(T v, int8_t by) {
        if constexpr (std::is_floating_point_v<T>)
            return v + static_cast<T>(by);
        else
            return static_cast<T>(static_cast<std::make_unsigned_t<T>>(v) +
                                  static_cast<std::make_unsigned_t<T>>(by));
    }

    std::span<const uint8_t> left_;
};

}  // namespace fuzz

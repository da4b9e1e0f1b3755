// A test program in plain C++: CHECKs that print what failed and where, and an exit status at the end.
//
//     int main() {
//         CHECK(1 + 1 == 2);
//         CHECK_THROWS(parse("x"), "line 1");   // some std::exception whose message holds the text
//         return check::report("arithmetic");
//     }
#pragma once

#include <cstdio>
#include <exception>
#include <string>

namespace check {

inline int checks = 0;
inline int failures = 0;

inline bool record(bool passed, const char* file, int line, const std::string& message) {
    ++checks;
    if (!passed) {
        ++failures;
        std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
    }
    return passed;
}

/// Prints one summary line and returns the exit status for main.
inline int report(const char* name) {
    std::printf("%s: %d checks, %d failed\n", name, checks, failures);
    return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(...) check::record(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, "failed: " #__VA_ARGS__)

#define CHECK_THROWS(expression, substring)                                                                 \
    do {                                                                                                    \
        std::string check_message_ = "nothing was thrown";                                                  \
        bool check_thrown_ = false;                                                                         \
        try {                                                                                               \
            (void)(expression);                                                                             \
        } catch (const std::exception& error) {                                                             \
            check_thrown_ = true;                                                                           \
            check_message_ = error.what();                                                                  \
        }                                                                                                   \
        check::record(check_thrown_ && check_message_.find(substring) != std::string::npos, __FILE__,       \
                      __LINE__,                                                                             \
                      std::string(#expression " should throw \"") + (substring) + "\": " + check_message_); \
    } while (false)

// Checks for the test programs: a failed one reports where and ends the program with status 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
            std::fflush(stderr);                                                         \
            std::_Exit(1);                                                               \
        }                                                                                \
    } while (false)

// That evaluating `expression` throws an `exception`.
#define CHECK_THROWS(exception, expression)                                                       \
    do {                                                                                          \
        bool thrown = false;                                                                      \
        try {                                                                                     \
            (void)(expression);                                                                   \
        } catch (const exception&) {                                                              \
            thrown = true;                                                                        \
        }                                                                                         \
        if (!thrown) {                                                                            \
            std::fprintf(stderr, "%s:%d: did not throw %s: %s\n", __FILE__, __LINE__, #exception, \
                         #expression);                                                            \
            std::_Exit(1);                                                                        \
        }                                                                                         \
    } while (false)

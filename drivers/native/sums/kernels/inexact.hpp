// The processor's own word on whether an addition was exact: a flag that stays set.
//
// The compiler does not know that an addition sets the flag, and might move one past a look at it.
// `settle` is the fence: the compiler assumes that it reads and writes all memory. So additions
// whose sums are stored before it stay before it, and those of elements that are loaded after it
// stay behind it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace afflux::sums {

namespace {

// `sums` is memory that the compiler would otherwise know to be nobody else's.
inline void settle(const double* sums) {
    asm volatile("" : : "r"(sums) : "memory");
}

// Makes the flag say "exact". `sums` is where additions before it have been stored.
inline void clear_inexact(const double* sums) {
    settle(sums);
#if defined(__x86_64__)
    _mm_setcsr(0x1F80);
#else
    asm volatile("msr fpsr, xzr" : : : "memory");
#endif
    settle(sums);
}

enum class Trouble { Inexact, OutOfRange };

// Whether an operation was inexact since the flag was cleared; or whether a result was too large,
// or too small and inexact. `sums` is where they are stored.
template <Trouble kWhat = Trouble::Inexact>
inline bool inexact(const double* sums) {
    constexpr bool kRange = kWhat == Trouble::OutOfRange;
    settle(sums);
#if defined(__x86_64__)
    constexpr std::uint32_t kFlags = kRange ? 3 << 3 : 1 << 5;
    const std::uint32_t flags = _mm_getcsr();
#else
    constexpr std::uint64_t kFlags = kRange ? 3 << 2 : 1 << 4;
    std::uint64_t flags;
    asm volatile("mrs %0, fpsr" : "=r"(flags) : : "memory");
#endif
    settle(sums);
    return (flags & kFlags) != 0;
}

}  // namespace

}  // namespace afflux::sums

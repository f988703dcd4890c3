#include "sums/environment.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#error "sums know the floating-point modes and flags of x86-64 and of AArch64"
#endif

namespace afflux::sums {

#if defined(__x86_64__)

namespace {

// All exceptions masked, all flags clear.
constexpr std::uint32_t kDefault = 0x1F80;

}  // namespace

Environment::Environment() : modes_(_mm_getcsr()) {
    _mm_setcsr(kDefault);
}

Environment::~Environment() {
    _mm_setcsr(static_cast<std::uint32_t>(modes_));
}

#else

Environment::Environment() {
    asm volatile("mrs %0, fpcr" : "=r"(modes_));
    asm volatile("mrs %0, fpsr" : "=r"(flags_));
    asm volatile("msr fpcr, xzr" : : : "memory");
    asm volatile("msr fpsr, xzr" : : : "memory");
}

Environment::~Environment() {
    asm volatile("msr fpcr, %0" : : "r"(modes_) : "memory");
    asm volatile("msr fpsr, %0" : : "r"(flags_) : "memory");
}

#endif

}  // namespace afflux::sums

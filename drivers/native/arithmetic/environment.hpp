// The floating-point environment in which bits are defined.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace afflux::arithmetic {

// During its lifetime this thread rounds to nearest, ties to even, keeps denormals and traps
// nothing. A caller may have asked for flushed denormals, as torch.set_flush_denormal does; the
// results must not depend on that.
class FloatEnvironment {
  public:
    FloatEnvironment() : saved_(get()) {
        if (saved_ != kDefault) set(kDefault);
    }
    ~FloatEnvironment() {
        if (saved_ != kDefault) set(saved_);
    }
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  private:
#if defined(__x86_64__)
    // The sticky exception flags are not modes.
    static constexpr std::uint32_t kDefault = 0x1F80, kFlags = 0x3F;
    static std::uint32_t get() { return _mm_getcsr() & ~kFlags; }
    static void set(std::uint32_t mode) { _mm_setcsr(mode); }
    std::uint32_t saved_;
#elif defined(__aarch64__)
    static constexpr std::uint64_t kDefault = 0;
    static std::uint64_t get() {
        std::uint64_t mode;
        asm volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static void set(std::uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
    std::uint64_t saved_;
#else
#error "Afflux knows the floating-point modes of x86-64 and of AArch64"
#endif
};

}  // namespace afflux::arithmetic

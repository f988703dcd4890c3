// The floating-point environment in which sums are taken, and its flag that says if one is inexact.
#pragma once

#include <cstdint>

namespace afflux::sums {

// During its lifetime this thread rounds to nearest, ties to even, keeps denormals, traps nothing,
// and the flag of inexact results is the sums' own. Afterwards the modes and flags of before are
// back. An operation of this folder that takes one may only be used while it lives.
class Environment {
  public:
    Environment();
    ~Environment();
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    std::uint64_t modes_ = 0, flags_ = 0;
};

}  // namespace afflux::sums

// Bugs that a test build plants on purpose, to show that the stress test sees them.
#pragma once

#ifdef AFFLUX_PLANTS
#include <cstdlib>
#endif

namespace afflux::shared {

enum class Plant {
    None = 0,
    EarlyGate = 1,      // a phase counts as over when one rank is still missing
    OneParity = 2,      // small tensors of successive operations share a buffer
    ShortRing = 3,      // a batch is overwritten while others still copy it out
    RelaxedGate = 4,    // arriving does not order what was written before (the thread sanitizer's)
    NoComparison = 5,   // what the ranks were called with is not compared
    StalePresence = 6,  // which blocks are present is taken from another batch
};

#ifdef AFFLUX_PLANTS
inline const Plant kPlant = [] {
    const char* const number = std::getenv("AFFLUX_PLANT");
    return static_cast<Plant>(number ? std::atoi(number) : 0);
}();
#else
inline constexpr Plant kPlant = Plant::None;
#endif

}  // namespace afflux::shared

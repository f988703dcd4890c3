// Registers by address, with values that are written and counters that are read in halves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "contract/registers.hpp"
#include "engine/counters.hpp"

namespace afflux::engine {

using registers::Address;

// Addresses without a register read as 0 and ignore writes, as on a bus.
class RegisterFile {
  public:
    // The value that was last written or set.
    std::uint32_t operator[](Address address) const { return values_[index(address)]; }

    // Two registers as one number, lower half first.
    std::uint64_t pair(Address low, Address high) const {
        return std::uint64_t{(*this)[high]} << 32 | (*this)[low];
    }

    // Sets a register whether or not it may be written.
    void set(Address address, std::uint32_t value) { values_[index(address)] = value; }

    // The register at a byte address, or null.
    static const registers::Register* find(std::uint32_t address);

    // Either word of a counter as it is now: reading one changes nothing, so readers do not disturb
    // each other.
    static std::uint32_t read_counter(std::uint32_t address, const Counters& counters);

    static constexpr bool is_counter(std::uint32_t address) {
        return registers::kCounterBase <= address &&
               address < registers::kCounterBase + 8 * registers::kCounters;
    }

  private:
    static constexpr std::size_t index(Address address) {
        return static_cast<std::size_t>(address) / 4;
    }

    // All registers have addresses below the counters.
    std::array<std::uint32_t, registers::kCounterBase / 4> values_{};
};

}  // namespace afflux::engine

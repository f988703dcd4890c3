// The engine's event counters (protocol, section 11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "contract/registers.hpp"

namespace afflux::engine {

using registers::Counter;

class Counters {
  public:
    std::uint64_t& operator[](Counter counter) {
        return values_[static_cast<std::size_t>(counter)];
    }
    Counters& operator+=(const Counters& other) {
        for (std::size_t i = 0; i < values_.size(); ++i) values_[i] += other.values_[i];
        return *this;
    }
    std::uint64_t at(std::size_t number) const { return values_[number]; }

  private:
    std::array<std::uint64_t, registers::kCounters> values_{};
};

}  // namespace afflux::engine

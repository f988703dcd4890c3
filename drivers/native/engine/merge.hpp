// Merges one block into another, element by element, as the lanes of the gateware do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/wire.hpp"

namespace afflux::engine {

// own := own ∘ arriving, a block each; `arriving` need not be aligned.
// Returns the number of additions whose true result is not an int32.
std::size_t merge(wire::Opcode opcode, std::int32_t* own, const std::uint8_t* arriving);

// How blocks are summed with an instruction set that this processor has.
struct Adder {
    const char* name;
    std::size_t (*add)(std::int32_t* own, const std::uint8_t* arriving);
};

// All of them, best last, which is the one that `merge` uses. For tests.
std::vector<Adder> adders();

// words := the unsigned minimum of both, for all lanes.
void take_least(std::uint32_t* words, const std::uint8_t* arriving);

}  // namespace afflux::engine

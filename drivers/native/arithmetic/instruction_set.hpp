// The instruction set of the kernels in use, which is the best that the processor has.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace afflux::arithmetic {

// Names of the instruction sets that were built and that this processor has, best last.
std::vector<std::string> instruction_sets();

// Name of the one in use. When the program starts it is the best.
std::string instruction_set();

// Its place in `instruction_sets()`, for other folders that choose between the same sets.
std::size_t instruction_set_level();

// For tests: uses another of `instruction_sets()`; throws std::invalid_argument for any other name.
// Not to be called while other threads compute.
void use_instruction_set(const std::string& name);

}  // namespace afflux::arithmetic

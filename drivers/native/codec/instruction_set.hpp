// Which instruction set the kernels run with: the best that the processor has.
#pragma once

#include <string>
#include <vector>

namespace afflux::codec {

// Names of those that were built and that this processor has, best last.
std::vector<std::string> instruction_sets();

// The one in use; after the program's start the best.
std::string instruction_set();

// For tests: uses another of `instruction_sets()`; throws std::invalid_argument for any other name.
// Not to be called while other threads use the codec.
void use_instruction_set(const std::string& name);

}  // namespace afflux::codec

// Which instruction set the kernels run with: the best that the processor has.
#pragma once

#include <string>
#include <vector>

namespace afflux::codec {

// Names of the levels that were built and that this processor has, best last.
std::vector<std::string> levels();

// The level in use; after the program's start the best.
std::string level();

// For tests: uses another of `levels()`; throws std::invalid_argument for any other name. Not to be
// called while other threads use the codec.
void set_level(const std::string& name);

}  // namespace afflux::codec

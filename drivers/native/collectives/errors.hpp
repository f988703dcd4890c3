// How a group fails.
#pragma once

#include <stdexcept>

namespace afflux::collectives {

// No rank can use the group any more: a rank's process has ended, or a rank has given up.
class Failed : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The ranks called different operations, or the same ones with different arguments. Every rank
// throws it, and no rank's tensor has changed.
class Disagreement : public Failed {
  public:
    using Failed::Failed;
};

}  // namespace afflux::collectives

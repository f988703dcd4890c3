// How a shared-memory group fails.
#pragma once

#include <stdexcept>

namespace afflux::shared {

// The group is of no more use to any rank: a rank's process has ended, or a rank has given up.
class Failed : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The ranks called different operations, or the same ones with different arguments. Every rank
// raises it, and no rank's tensor has been written to.
class Disagreement : public Failed {
  public:
    using Failed::Failed;
};

}  // namespace afflux::shared

// The memory of a shared-memory group whose ranks are threads.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "shared/group.hpp"
#include "tests/collectives_ranks.hpp"

namespace afflux::tests {

// One mapping for all threads, so that sanitizers know what is shared.
inline std::shared_ptr<shared::Segment> make_segment(int ranks, shared::Sizes sizes = {}) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    shared::Segment::initialise(fd, ranks, sizes);
    return std::make_shared<shared::Segment>(fd, ranks, shared::Segment::Liveness::None);
}

}  // namespace afflux::tests

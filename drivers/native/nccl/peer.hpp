// Another node of a communicator.
#pragma once

#include <string>

#include "nccl/link.hpp"

namespace afflux::nccl {

// Its number, and the connection to it.
struct Peer {
    int rank;
    Link link;
    std::string name;     // for messages
    bool closed = false;  // it needs nothing more
};

}  // namespace afflux::nccl

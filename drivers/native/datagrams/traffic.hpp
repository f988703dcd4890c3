// What passed a socket in one direction.
#pragma once

#include <cstdint>

namespace afflux::datagrams {

struct Traffic {
    std::uint64_t calls = 0;     // system calls, successful or not
    std::uint64_t messages = 0;  // what passed the kernel as one: a datagram, or several joined
    std::uint64_t datagrams = 0;
    std::uint64_t bytes = 0;  // of their payloads
};

}  // namespace afflux::datagrams

// The traffic of a socket in one direction, as one thread counts it. Any thread may read it.
#pragma once

#include "datagrams/tally.hpp"

namespace afflux::datagrams {

struct Traffic {
    Tally calls;     // system calls, successful or not
    Tally messages;  // what passed the kernel as one: a datagram, or several joined
    Tally datagrams;
    Tally bytes;  // of their payloads
};

}  // namespace afflux::datagrams

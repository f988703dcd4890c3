// The cost of each stage of the host's data path alone, by the code that runs it in a job.
//
// Packets are full: as many blocks as there are lanes. Nothing else runs between a stage's two
// looks at the clock, which shows the thread's processor time. On the loopback interface the
// sender's call carries a packet all the way into the receiver's socket, as no card and no driver
// does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace afflux::costs {

struct Cost {
    double seconds = 0;       // of processor time
    std::uint64_t bytes = 0;  // of blocks that have passed
    std::uint64_t calls = 0;  // system calls
};

struct Exchange {
    Cost join;  // of packets into the messages that go out
    Cost send;
    Cost receive;
};

// Rate of the processor's time-stamp counter; 0 where there is none that is known here.
double counter_hz();

// A worker's own copy: each packet that has come, out of the buffer that it came to. At least so
// many bytes of blocks, as in all that follow.
Cost copy_packets(std::size_t lanes, std::size_t bytes);

// An aggregator's sums: words and blocks of so many workers' packets into its slots.
Cost merge_packets(unsigned workers, std::size_t lanes, std::size_t slots, std::size_t bytes);

// Packets to a socket of this thread, `at_once` each time, and taken from there. `gathered`: header
// and blocks lie apart, as an aggregator's do. Without `offloads` each passes the kernel alone.
// Throws std::system_error if the kernel refuses.
Exchange exchange_packets(std::size_t lanes, std::size_t at_once, std::size_t bytes, bool gathered,
                          bool offloads);

// Calls to receive when nothing has come: what a system call costs whatever it carries.
Cost empty_calls(std::size_t calls);

}  // namespace afflux::costs

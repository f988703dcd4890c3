// Whether an aggregator from which a worker hears nothing is still there (protocol, section 10.3).
//
// One that waits for a slow node answers JOINs, so a worker that hears nothing sends some. Silence
// alone says little: packets get lost, and a process may be stopped for a while. Two answers say
// more. REFUSED, with the job's key: the aggregator has restarted, or has ended the job. "Port
// unreachable", which anybody could forge: it counts only if the host refuses a connection to the
// control channel's port, too.
#pragma once

#include <string>

#include "control/job.hpp"
#include "control/port_probe.hpp"
#include "worker/line.hpp"

namespace afflux::nccl {

inline constexpr double kLook = 0.1;  // seconds between looks

class Liveness {
  public:
    Liveness(worker::Line& line, const worker::Session& session, const control::Ticket& ticket)
        : line_(line), session_(session), ticket_(ticket), probe_(ticket_.control) {}

    // An operation begins to wait.
    void begin(double now);

    // Asks once more if the aggregator is silent. Returns why it counts as gone, empty if it does
    // not, for which it may be silent for so many seconds.
    std::string look(double now, double silence_s);

  private:
    double silent_s(double now) const;

    worker::Line& line_;
    const worker::Session& session_;
    const control::Ticket& ticket_;
    control::PortProbe probe_;
    double since_ = 0;
    int asked_ = 0;
};

// The meaning of the cause in a REFUSED.
std::string refused_because(std::uint32_t cause);

}  // namespace afflux::nccl

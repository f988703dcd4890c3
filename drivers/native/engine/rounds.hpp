// Contributions, probes and parents' results in their rounds, once a packet has passed every check
// (the tables of the protocol's sections 5.3 and 5.6).
#pragma once

#include "engine/counters.hpp"
#include "engine/job.hpp"
#include "engine/sender.hpp"
#include "engine/slots.hpp"

namespace afflux::engine {

class Rounds {
  public:
    Rounds(SlotPool& slots, Sender& sender, Counters& counters)
        : slots_(slots), sender_(sender), counters_(counters) {}

    // DATA, or CONFLICT of a child.
    void contribution(const Job& job, const Packet& packet);

    // PROBE, which came from `peer`.
    void probe(const Job& job, const packet::Header& header, const packet::Endpoint& peer);

    // RESULT or CONFLICT of the parent.
    void parent_result(const Job& job, const Packet& packet);

  private:
    void add(const Job& job, const Packet& packet);
    void repeated(const Job& job, const packet::Header& header);
    void complete(const Job& job, const packet::Header& header);
    void replay(const Job& job, const packet::Header& header);

    SlotPool& slots_;
    Sender& sender_;
    Counters& counters_;
};

}  // namespace afflux::engine

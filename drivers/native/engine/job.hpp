// An enabled job, with its workers, its group and its parent (protocol, section 5.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "packet/frame.hpp"

namespace afflux::engine {

// The aggregator above, and the job's number, worker and key there.
struct Parent {
    packet::Endpoint endpoint;
    wire::Job job;
    wire::Worker worker;
    wire::Key key;
};

struct Job {
    wire::Job number;
    wire::Key key;
    unsigned workers;
    unsigned lanes;
    unsigned credit;
    std::size_t slot_base;  // first slot in the pool
    std::size_t slots;
    // Endpoint of each worker that has joined, from its latest JOIN.
    std::array<std::optional<packet::Endpoint>, wire::kWorkersMax> peers;
    std::optional<packet::Endpoint> group;
    std::optional<Parent> parent;
    bool parent_joined = false;
    bool asks_parent = false;  // a JOIN is to be sent to the parent
    // Cores, from first_share on, that have an equal part of the slots each.
    unsigned first_share = 0;
    unsigned shares = 1;

    // The core that has a slot.
    unsigned owner(wire::Slot slot) const {
        return first_share + static_cast<unsigned>(slot * shares / slots);
    }

    std::uint64_t everyone() const {
        return workers == wire::kWorkersMax ? ~std::uint64_t{0} : (std::uint64_t{1} << workers) - 1;
    }
};

}  // namespace afflux::engine

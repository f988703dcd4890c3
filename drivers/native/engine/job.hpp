// An enabled job, with its workers, its group and its parent (protocol, section 5.1).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "packet/frame.hpp"

namespace afflux::engine {

// The aggregator above, and the job's number, worker and key there.
struct Parent {
    packet::Endpoint endpoint;
    wire::Job job;
    wire::Worker worker;
    wire::Key key;
    int partial_bits;  // of each partial sum of float32 that goes up: 40, 48 or 64
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
    wire::Key group_key;  // of the results to the group
    std::optional<Parent> parent;
    bool may_move;  // workers may move while the job runs
    bool parent_joined = false;
    bool asks_parent = false;  // a JOIN is to be sent to the parent
    // Whether a contribution has been accepted, by any of the cores, which have a copy of this
    // each.
    std::shared_ptr<std::atomic<bool>> started = std::make_shared<std::atomic<bool>>(false);
    // Cores, from first_share on, that have an equal part of the slots each.
    unsigned first_share = 0;
    unsigned shares = 1;

    // The core that has a slot.
    unsigned owner(wire::Slot slot) const {
        return first_share + static_cast<unsigned>(slot * shares / slots);
    }

    // A contribution has been accepted.
    void start() const {
        // Mostly it is set: then its cache line stays where it is.
        if (!started->load(std::memory_order_relaxed)) {
            started->store(true, std::memory_order_relaxed);
        }
    }

    // Whether a worker may not join from another address any more.
    bool settled(wire::Worker worker) const {
        return peers[worker] && !may_move && started->load(std::memory_order_relaxed);
    }

    std::uint64_t everyone() const {
        return workers == wire::kWorkersMax ? ~std::uint64_t{0} : (std::uint64_t{1} << workers) - 1;
    }
};

}  // namespace afflux::engine

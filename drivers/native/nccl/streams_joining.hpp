// How the nodes of a communicator come to streams: node 0 decides what must be the same, and then
// each node connects with all that are before it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/channel.hpp"
#include "control/object.hpp"
#include "nccl/environment.hpp"
#include "nccl/interfaces.hpp"
#include "nccl/job_worker.hpp"
#include "nccl/link.hpp"

namespace afflux::nccl {

struct StreamsPlan {
    std::size_t jobs = 0;  // each has streams of its own
    std::size_t one_hop = 0;
    std::optional<control::Place> aggregator{};
    std::string key{};   // of the aggregator
    std::string name{};  // of the communicator, at the aggregator

    // As node 0 decides.
    static StreamsPlan made(const Interface& interface, const Settings& settings);

    control::Object object() const;
    // As node 0 has said. Throws std::runtime_error if it has not.
    static StreamsPlan of(const control::Object& said);
};

// The workers of all jobs. Others may give up meanwhile: `heed` is called all the time, and throws
// then. `nodes`: of all, in order. `peer_s`: of an aggregator's host, see `StreamsWorker`. Throws
// std::runtime_error.
std::vector<std::unique_ptr<JobWorker>> join_streams(const StreamsPlan& plan,
                                                     const std::vector<Handle>& nodes, int rank,
                                                     const Listener& listener, double peer_s,
                                                     double deadline,
                                                     const std::function<void()>& heed);

}  // namespace afflux::nccl

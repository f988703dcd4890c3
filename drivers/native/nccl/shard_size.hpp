// The size of the jobs of an engine that each node has, which node 0 tells the others.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "contract/wire.hpp"
#include "control/object.hpp"
#include "nccl/own_engine.hpp"

namespace afflux::nccl {

struct ShardSize {
    unsigned lanes;
    unsigned jobs;
    std::size_t slots;

    control::Object object() const {
        return control::Object()
            .set("shard_lanes", std::int64_t{lanes})
            .set("shard_jobs", std::int64_t{jobs})
            .set("shard_slots", static_cast<std::int64_t>(slots));
    }

    static ShardSize of(const control::Object& said) {
        const std::int64_t lanes = said.integer("shard_lanes").value_or(0);
        const std::int64_t jobs = said.integer("shard_jobs").value_or(0);
        const std::int64_t slots = said.integer("shard_slots").value_or(0);
        const auto most = static_cast<std::int64_t>(wire::kLanesMax);
        if (lanes < 1 || lanes > most || jobs < 1 || jobs > 8 || slots < 1 || slots > 512) {
            throw std::runtime_error("node 0 does not sum by shards://");
        }
        return {static_cast<unsigned>(lanes), static_cast<unsigned>(jobs),
                static_cast<std::size_t>(slots)};
    }

    std::unique_ptr<OwnEngine> engine(const Interface& interface, int ranks) const {
        return std::make_unique<OwnEngine>(interface, static_cast<unsigned>(ranks), lanes, jobs,
                                           slots);
    }
};

}  // namespace afflux::nccl

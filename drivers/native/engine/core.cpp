// The checks of the protocol's sections 5.2 and 5.6, in their order.
#include "engine/core.hpp"

#include <utility>

#include "engine/number_opcode.hpp"
#include "packet/packet_buffer.hpp"

namespace afflux::engine {
namespace {

// Partial sums go up only: what comes from a parent is rounded.
bool known_opcode(const packet::Header& header, bool from_parent) {
    const NumberOpcode opcode(header.opcode_dtype);
    if (!opcode.of_numbers()) return true;
    return opcode.known() && !(from_parent && opcode.partial() != nullptr);
}

}  // namespace

Core::Core(const Limits& limits, SlotPool& slots, Joined joined)
    : limits_(limits),
      joined_(std::move(joined)),
      jobs_(limits.jobs),
      sender_(slots),
      rounds_(slots, sender_, counters_) {}

bool Core::passes_length(const packet::Header& header, std::size_t payload_bytes) {
    const std::size_t block_bytes = packet::block_bytes(header.opcode_dtype);
    if (packet::right_length(payload_bytes, header.blocks(), block_bytes) &&
        header.blocks() <= limits_.lanes) {
        return true;
    }
    ++counters_[Counter::BadLength];
    return false;
}

void Core::admit(const Arrival& arrival) {
    if (arrival.packet.header.version() != wire::kVersion) {
        refuse(arrival, Counter::BadVersion, wire::Refusal::Version);
    } else if (arrival.port == local_.port) {
        from_worker(arrival);
    } else {
        from_parent(arrival);
    }
}

unsigned Core::owner(const packet::Header& header, std::uint16_t port, unsigned otherwise) const {
    if (port != local_.port) {
        const Job* below = job_at(static_cast<std::uint16_t>(port - local_.port - 1));
        return below != nullptr ? below->owner(0) : otherwise;
    }
    // Where a worker is, all cores must know: one of them hears of it first.
    if (header.type() == wire::Type::Join) return 0;
    const Job* job = job_at(header.job);
    return job != nullptr && header.slot < job->slots ? job->owner(header.slot) : otherwise;
}

void Core::ask_parent(std::size_t number) {
    jobs_[number]->asks_parent = true;
    commanded_ = true;
}

void Core::carry_out() {
    if (!commanded_) return;
    commanded_ = false;
    for (std::optional<Job>& job : jobs_) {
        if (!job || !job->asks_parent) continue;
        job->asks_parent = false;
        sender_.join_parent(*job);
    }
}

void Core::from_worker(const Arrival& arrival) {
    const packet::Header& header = arrival.packet.header;
    const wire::Type type = header.type();
    const bool joins = type == wire::Type::Join;
    const bool probes = type == wire::Type::Probe;
    const bool contributes = type == wire::Type::Data || type == wire::Type::Conflict;
    if (!(joins || probes || contributes) || !known_opcode(header, false)) {
        ++counters_[Counter::BadType];
        return;
    }
    Job* job = job_at(header.job);
    if (job == nullptr) return refuse(arrival, Counter::BadJob, wire::Refusal::Job);
    if (header.key != job->key) return refuse(arrival, Counter::BadKey, wire::Refusal::Key);
    if (header.worker >= job->workers) {
        return refuse(arrival, Counter::BadWorker, wire::Refusal::Worker);
    }
    if (joins) return join(*job, arrival);
    const std::optional<packet::Endpoint>& peer = job->peers[header.worker];
    if (!peer || !peer->same_socket(arrival.peer)) {
        ++counters_[Counter::BadAddress];
    } else if (header.slot >= job->slots) {
        ++counters_[Counter::BadSlot];
    } else if (header.present >> job->lanes != 0 || (probes && header.present != 0)) {
        ++counters_[Counter::BadPresent];
    } else if (probes) {
        rounds_.probe(*job, header, arrival.peer);
    } else {
        rounds_.contribution(*job, arrival.packet);
    }
}

void Core::from_parent(const Arrival& arrival) {
    const packet::Header& header = arrival.packet.header;
    const wire::Type type = header.type();
    const bool joined = type == wire::Type::Joined;
    const bool result = type == wire::Type::Result || type == wire::Type::Conflict;
    Job* job = job_at(static_cast<std::uint16_t>(arrival.port - local_.port - 1));
    const Parent* parent = job != nullptr && job->parent ? &*job->parent : nullptr;
    if (!(joined || result) || !known_opcode(header, true)) {
        ++counters_[Counter::BadType];
    } else if (parent == nullptr || header.job != parent->job) {
        ++counters_[Counter::BadJob];
    } else if (header.key != parent->key) {
        ++counters_[Counter::BadKey];
    } else if (header.worker != parent->worker) {
        ++counters_[Counter::BadWorker];
    } else if (!parent->endpoint.same_socket(arrival.peer)) {
        ++counters_[Counter::BadAddress];
    } else if (joined && header.present != 0) {
        ++counters_[Counter::BadPresent];
    } else if (joined) {
        ++counters_[Counter::Joins];
        job->parent_joined = true;
    } else if (header.slot >= job->slots) {
        ++counters_[Counter::BadSlot];
    } else if (header.present >> job->lanes != 0) {
        ++counters_[Counter::BadPresent];
    } else {
        rounds_.parent_result(*job, arrival.packet);
    }
}

void Core::join(Job& job, const Arrival& arrival) {
    const packet::Header& header = arrival.packet.header;
    if (header.present != 0) {
        ++counters_[Counter::BadPresent];
        return;
    }
    if (job.settled(header.worker) && !job.peers[header.worker]->same_socket(arrival.peer)) {
        return refuse(arrival, Counter::BadAddress, wire::Refusal::Address);
    }
    ++counters_[Counter::Joins];
    job.peers[header.worker] = arrival.peer;
    joined_(job, header.worker);
    const packet::Endpoint group = job.group.value_or(packet::Endpoint{});
    const wire::Key key = job.group ? job.group_key : 0;
    sender_.answer(
        header, arrival.peer, wire::Type::Joined,
        {job.workers, job.lanes, static_cast<std::uint32_t>(job.slots), job.credit, group.address,
         group.port, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}

void Core::refuse(const Arrival& arrival, Counter counter, wire::Refusal cause) {
    ++counters_[counter];
    const packet::Header& header = arrival.packet.header;
    // A wrong field in a JOIN without a checksum may be damage, and a refusal is final.
    if (header.type() != wire::Type::Join || !arrival.verified) return;
    if (!refusals_.take()) {
        ++counters_[Counter::RefusalsDropped];
        return;
    }
    sender_.answer(header, arrival.peer, wire::Type::Refused,
                   {static_cast<std::uint32_t>(cause), wire::kVersion});
}

}  // namespace afflux::engine

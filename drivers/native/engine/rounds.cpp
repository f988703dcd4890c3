#include "engine/rounds.hpp"

#include "engine/number_opcode.hpp"

namespace afflux::engine {
namespace {

// How far a packet's round is from R, by serial arithmetic.
constexpr wire::Round kLast = 0xFFFF'FFFF;
constexpr wire::Round kHalf = 0x8000'0000;

Counter early_or_late(wire::Round ahead) {
    return ahead < kHalf ? Counter::Premature : Counter::Stale;
}

// Whether the round lies before the job run's first one. It has no result to ask for, and the
// version may hold another job's data.
bool before_first(const SlotState& slot, wire::Round round) {
    const wire::Round ahead = round - slot.round;
    return (ahead == 0 || ahead == kLast) && !slot.versions[round & 1].held;
}

}  // namespace

void Rounds::contribution(const Job& job, const Packet& packet) {
    const packet::Header& header = packet.header;
    const std::size_t in_pool = job.slot_base + header.slot;
    SlotState& slot = slots_[in_pool];
    const wire::Round ahead = header.round - slot.round;
    if (before_first(slot, header.round)) {
        ++counters_[Counter::Stale];
    } else if (ahead == 1) {
        if (slot.complete()) {
            slots_.open(in_pool, packet);
            add(job, packet);
        } else {
            ++counters_[Counter::Premature];
        }
    } else if (ahead == 0) {
        if ((slot.seen >> header.worker & 1) != 0) {
            repeated(job, header);
            return;
        }
        Version& version = slot.versions[header.round & 1];
        if (version.operation != header.operation ||
            version.opcode_dtype != NumberOpcode(header.opcode_dtype).of_whole()) {
            version.conflict = true;
        }
        slots_.merge_words(in_pool, packet);
        add(job, packet);
    } else if (ahead == kLast) {
        ++counters_[Counter::Duplicates];
        replay(job, header);
    } else {
        ++counters_[early_or_late(ahead)];
    }
}

void Rounds::add(const Job& job, const Packet& packet) {
    const packet::Header& header = packet.header;
    const std::size_t in_pool = job.slot_base + header.slot;
    SlotState& slot = slots_[in_pool];
    job.start();
    slot.seen |= std::uint64_t{1} << header.worker;
    if (header.type() == wire::Type::Conflict) slot.versions[header.round & 1].conflict = true;
    ++counters_[Counter::Accepted];
    counters_[Counter::BlocksAccepted] += header.blocks();
    counters_[Counter::Overflows] += slots_.add(in_pool, packet);
    if (!slot.full()) return;
    slots_.reduce(in_pool, job.workers, job.parent ? &*job.parent : nullptr);
    if (job.parent) {
        slot.waiting = true;
        sender_.partial_sum(job, header.slot, header.round);
    } else {
        complete(job, header);
    }
}

void Rounds::repeated(const Job& job, const packet::Header& header) {
    const SlotState& slot = slots_[job.slot_base + header.slot];
    ++counters_[Counter::Duplicates];
    if (slot.waiting) {
        // Otherwise a lost partial sum would never be repeated.
        ++counters_[Counter::Replays];
        sender_.partial_sum(job, header.slot, header.round);
    } else if (slot.full()) {
        replay(job, header);
    }
}

void Rounds::probe(const Job& job, const packet::Header& header, const packet::Endpoint& peer) {
    const SlotState& slot = slots_[job.slot_base + header.slot];
    const wire::Round ahead = header.round - slot.round;
    if (before_first(slot, header.round)) {
        ++counters_[Counter::Stale];
    } else if (ahead == kLast || (ahead == 0 && slot.complete())) {
        ++counters_[Counter::Probes];
        replay(job, header);
    } else if (ahead == 0 || (ahead == 1 && slot.complete())) {
        ++counters_[Counter::Probes];
        const std::uint64_t seen = ahead == 0 ? slot.seen : 0;
        sender_.answer(
            header, peer, wire::Type::Missing,
            {static_cast<std::uint32_t>(seen), static_cast<std::uint32_t>(seen >> 32), slot.round});
    } else {
        ++counters_[early_or_late(ahead)];
    }
}

void Rounds::parent_result(const Job& job, const Packet& packet) {
    const packet::Header& header = packet.header;
    const std::size_t in_pool = job.slot_base + header.slot;
    const SlotState& slot = slots_[in_pool];
    const wire::Round ahead = header.round - slot.round;
    if (before_first(slot, header.round)) {
        ++counters_[Counter::Stale];
    } else if (ahead == 0 && slot.waiting) {
        ++counters_[Counter::ParentResults];
        slots_.take(in_pool, packet);
        complete(job, header);
    } else if (ahead == kLast || (ahead == 0 && slot.full())) {
        ++counters_[Counter::Duplicates];
    } else {
        ++counters_[early_or_late(ahead)];
    }
}

void Rounds::complete(const Job& job, const packet::Header& header) {
    const SlotState& slot = slots_[job.slot_base + header.slot];
    ++counters_[Counter::Rounds];
    if (slot.versions[header.round & 1].conflict) ++counters_[Counter::Conflicts];
    sender_.completed(job, header.slot, header.round);
}

void Rounds::replay(const Job& job, const packet::Header& header) {
    ++counters_[Counter::Replays];
    sender_.replay(job, header.slot, header.round, header.worker);
}

}  // namespace afflux::engine

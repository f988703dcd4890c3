#include "worker/session.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace afflux::worker {
namespace {

using packet::Header;

void require(const char* what, std::size_t value, std::size_t most) {
    if (1 <= value && value <= most) return;
    throw std::invalid_argument("a job must have 1 to " + std::to_string(most) + " " + what +
                                ", not " + std::to_string(value));
}

const JobRun& checked(const JobRun& job) {
    job.check();
    return job;
}

}  // namespace

JobTerms JobRun::terms() const {
    return {workers, lanes, static_cast<std::uint32_t>(slots), credit, group_host, group_port};
}

void JobRun::check() const {
    require("workers", workers, wire::kWorkersMax);
    require("lanes", lanes, wire::kLanesMax);
    require("slots", slots, 65536);
    require("ranks", ranks, wire::kWorkersMax);
    require("ranges", ranges, 64);
    if (worker >= workers || rank >= ranks)
        throw std::invalid_argument("worker " + std::to_string(worker) + " and rank " +
                                    std::to_string(rank) + " are not in a job of " +
                                    std::to_string(workers) + " workers and " +
                                    std::to_string(ranks) + " ranks");
    const std::uint64_t everyone = ~std::uint64_t{0} >> (64 - ranks);
    if ((others & ~everyone) != 0 || (others >> rank & 1) != 0)
        throw std::invalid_argument("the other ranks of rank " + std::to_string(rank) +
                                    "'s host are not among " + std::to_string(ranks));
}

Session::Session(const JobRun& given, double cap)
    : job(checked(given)), trip(cap), window(given.slots) {
    join_.fill(0xFF);
    packet::store_header(join_.data(), packet::join_header(job.number, job.worker, job.key));
    slots.reserve(job.slots);
    for (std::size_t slot = 0; slot < job.slots; ++slot) {
        // Partial sums are of several ranks only.
        const std::size_t block_bytes =
            job.others == 0 ? wire::kBlockBytes : wire::kLongestBlockBytes;
        slots.emplace_back(static_cast<wire::Slot>(slot), job.first_round, job.lanes, block_bytes);
    }
}

Octets Session::probe(Slot& slot, wire::OpcodeDtype opcode_dtype) const {
    slot.probe.fill(0xFF);
    const Header header{
        .version_type = packet::version_type(wire::Type::Probe),
        .opcode_dtype = opcode_dtype,
        .job = job.number,
        .worker = job.worker,
        .slot = slot.number,
        .present = 0,
        .round = slot.round,
        .key = job.key,
        .operation = static_cast<wire::Operation>(number),
    };
    packet::store_header(slot.probe.data(), header);
    return {slot.probe.data(), slot.probe.size()};
}

}  // namespace afflux::worker

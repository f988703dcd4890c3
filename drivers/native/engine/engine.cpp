#include "engine/engine.hpp"

#include <limits>
#include <stdexcept>
#include <string>

namespace afflux::engine {
namespace {

void require(const char* what, unsigned value, std::size_t most) {
    if (1 <= value && value <= most) return;
    throw std::invalid_argument("an engine must have 1 to " + std::to_string(most) + " " + what +
                                ", not " + std::to_string(value));
}

const Limits& checked(const Limits& limits) {
    require("workers", limits.workers, wire::kWorkersMax);
    require("lanes", limits.lanes, wire::kLanesMax);
    require("jobs", limits.jobs, std::numeric_limits<wire::Job>::max() + std::size_t{1});
    require("slots", limits.slots, std::numeric_limits<wire::Slot>::max() + std::size_t{1});
    return limits;
}

std::array<std::uint8_t, 6> mac_of(std::uint64_t value) {
    std::array<std::uint8_t, 6> mac;
    for (std::size_t i = mac.size(); i-- > 0; value >>= 8)
        mac[i] = static_cast<std::uint8_t>(value);
    return mac;
}

// RFC 1112, section 6.4.
std::array<std::uint8_t, 6> group_mac(std::uint32_t address) {
    return mac_of(0x01'00'5E'00'00'00 | (address & 0x7F'FFFF));
}

}  // namespace

SoftEngine::SoftEngine(const Limits& limits)
    : limits_(checked(limits)),
      slots_(limits.slots, limits.lanes),
      jobs_(limits.jobs),
      sender_(slots_),
      rounds_(slots_, sender_, counters_) {
    registers_.set(Address::Identity, registers::kIdentity);
    registers_.set(Address::Protocol, wire::kVersion);
    registers_.set(Address::BuildWorkers, limits.workers);
    registers_.set(Address::BuildLanes, limits.lanes);
    registers_.set(Address::BuildJobs, limits.jobs);
    registers_.set(Address::BuildSlots, limits.slots);
    registers_.set(Address::BuildVersion, registers::kRelease);
}

void SoftEngine::receive(packet::Octets frame) {
    ++counters_[Counter::FramesIn];
    counters_[Counter::BytesIn] += frame.bytes;
    const std::optional<Arrival> arrival = parse(frame);
    if (!arrival) return;
    if (arrival->port == local_.port) {
        from_worker(*arrival);
    } else {
        from_parent(*arrival);
    }
}

SendQueue& SoftEngine::send() {
    SendQueue& queue = sender_.queue();
    counters_[Counter::FramesOut] += queue.frames().size();
    for (const SendQueue::Frame& frame : queue.frames())
        counters_[Counter::BytesOut] += frame.bytes();
    return queue;
}

std::uint32_t SoftEngine::read(std::uint32_t address) {
    if (RegisterFile::is_counter(address)) return registers_.read_counter(address, counters_);
    const registers::Register* known = RegisterFile::find(address);
    if (known == nullptr) return 0;
    // The file holds 0 for registers that show state, as nothing writes them.
    return known->writable ? registers_[known->address]
                           : registers_[known->address] | look(known->address);
}

void SoftEngine::write(std::uint32_t address, std::uint32_t value) {
    const registers::Register* known = RegisterFile::find(address);
    if (known == nullptr || !known->writable) return;
    if (known->width < 32) value &= (std::uint32_t{1} << known->width) - 1;
    if (known->address == Address::JobCommand) {
        command(value);
        return;
    }
    registers_.set(known->address, value);
    local_ = {
        .mac = mac_of(registers_.pair(Address::LocalMacLow, Address::LocalMacHigh)),
        .address = registers_[Address::LocalAddress],
        .port = static_cast<std::uint16_t>(registers_[Address::LocalPort]),
    };
    sender_.move_to(local_);
}

Job* SoftEngine::job_at(std::size_t number) {
    return number < jobs_.size() && jobs_[number] ? &*jobs_[number] : nullptr;
}

void SoftEngine::command(std::uint32_t command) {
    const std::uint32_t number = registers_[Address::JobIndex];
    if (command == static_cast<std::uint32_t>(registers::Command::JoinParent)) {
        const Job* job = job_at(number);
        if (job != nullptr && job->parent) sender_.join_parent(*job);
        return;
    }
    const bool creates = command == static_cast<std::uint32_t>(registers::Command::Create);
    if (!creates && command != static_cast<std::uint32_t>(registers::Command::Destroy)) return;
    if (number >= jobs_.size()) {
        throw std::invalid_argument("the engine has jobs 0 to " + std::to_string(jobs_.size() - 1) +
                                    ", not " + std::to_string(number));
    }
    jobs_[number].reset();
    if (creates) create(number);
}

void SoftEngine::create(std::uint32_t number) {
    const auto checked = [&](const char* name, Address address, std::int64_t most) {
        const std::uint32_t value = registers_[address];
        if (1 <= value && value <= most) return value;
        throw std::invalid_argument(std::string(name) + " of job " + std::to_string(number) +
                                    " must be 1 to " + std::to_string(most) + ", not " +
                                    std::to_string(value));
    };
    const std::uint32_t base = registers_[Address::JobSlotBase];
    const auto free = static_cast<std::int64_t>(slots_.size()) - base;
    Job job{
        .number = static_cast<wire::Job>(number),
        .key = registers_.pair(Address::JobKeyLow, Address::JobKeyHigh),
        .workers = checked("job_workers", Address::JobWorkers, limits_.workers),
        .lanes = checked("job_lanes", Address::JobLanes, limits_.lanes),
        .credit = registers_[Address::JobCredit],
        .slot_base = base,
        .slots = checked("job_slot_count", Address::JobSlotCount, free),
        .peers = {},
        .group = {},
        .parent = {},
    };
    if (const std::uint32_t address = registers_[Address::JobGroupAddress]; address != 0) {
        job.group = {
            .mac = group_mac(address),
            .address = address,
            .port = static_cast<std::uint16_t>(registers_[Address::JobGroupPort]),
        };
    }
    if (const std::uint32_t address = registers_[Address::JobParentAddress]; address != 0) {
        job.parent = {
            .endpoint =
                {
                    .mac = mac_of(
                        registers_.pair(Address::JobParentMacLow, Address::JobParentMacHigh)),
                    .address = address,
                    .port = static_cast<std::uint16_t>(registers_[Address::JobParentPort]),
                },
            .job = static_cast<wire::Job>(registers_[Address::JobParentJob]),
            .worker = static_cast<wire::Worker>(registers_[Address::JobParentWorker]),
            .key = registers_.pair(Address::JobParentKeyLow, Address::JobParentKeyHigh),
        };
    }
    for (std::size_t slot = 0; slot < job.slots; ++slot) {
        slots_.reset(base + slot, registers_[Address::JobRound], job.everyone());
    }
    jobs_[number] = job;
}

}  // namespace afflux::engine

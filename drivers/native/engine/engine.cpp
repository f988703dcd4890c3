#include "engine/engine.hpp"

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "packet/partial_dtype.hpp"

namespace afflux::engine {

using registers::Reason;

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
    const auto* const partial = packet::partial_dtype_of(wire::Dtype::Float32, limits.partial_bits);
    if (partial == nullptr) {
        throw std::invalid_argument("partial sums of float32 have 40, 48 or 64 bits, not " +
                                    std::to_string(limits.partial_bits));
    }
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

// All cores, while their state is looked at or changed.
class Engine::AllLocked {
  public:
    explicit AllLocked(const std::vector<std::unique_ptr<Share>>& shares) {
        for (const auto& share : shares) locks_.emplace_back(share->mutex);
    }

  private:
    std::vector<std::unique_lock<std::mutex>> locks_;
};

Engine::Engine(const Limits& limits, unsigned shares)
    : limits_(checked(limits)), slots_(limits.slots, limits.lanes) {
    require("shares", shares, kSharesMax);
    const auto told = [this](const Job& job, wire::Worker worker) { joined(job, worker); };
    for (unsigned i = 0; i < shares; ++i) {
        shares_.push_back(std::make_unique<Share>(limits, slots_, told));
    }
    registers_.set(Address::Identity, registers::kIdentity);
    registers_.set(Address::Protocol, wire::kVersion);
    registers_.set(Address::BuildWorkers, limits.workers);
    registers_.set(Address::BuildLanes, limits.lanes);
    registers_.set(Address::BuildJobs, limits.jobs);
    registers_.set(Address::BuildSlots, limits.slots);
    registers_.set(Address::BuildVersion, registers::kRelease);
}

std::uint32_t Engine::read(std::uint32_t address) {
    const std::lock_guard alone(mutex_);
    const AllLocked still(shares_);
    if (RegisterFile::is_counter(address)) {
        Counters sum;
        for (const auto& share : shares_) sum += share->core.counters();
        return registers_.read_counter(address, sum);
    }
    const registers::Register* known = RegisterFile::find(address);
    if (known == nullptr || !known->readable) return 0;
    // The file holds 0 for registers that show state, as nothing writes them.
    return known->writable ? registers_[known->address]
                           : registers_[known->address] | look(known->address);
}

void Engine::write(std::uint32_t address, std::uint32_t value) {
    const registers::Register* known = RegisterFile::find(address);
    if (known == nullptr || !known->writable) return;
    if (known->width < 32) value &= (std::uint32_t{1} << known->width) - 1;
    std::function<void()> changed;
    {
        const std::lock_guard alone(mutex_);
        const AllLocked still(shares_);
        if (known->address != Address::JobCommand) {
            store(*known, value);
        } else if (command(value)) {
            changed = changed_;
        }
    }
    if (changed) changed();
}

void Engine::watch_jobs(std::function<void()> changed) {
    const std::lock_guard alone(mutex_);
    changed_ = std::move(changed);
}

void Engine::store(const registers::Register& known, std::uint32_t value) {
    registers_.set(known.address, value);
    const packet::Endpoint local{
        .mac = mac_of(registers_.pair(Address::LocalMacLow, Address::LocalMacHigh)),
        .address = registers_[Address::LocalAddress],
        .port = static_cast<std::uint16_t>(registers_[Address::LocalPort]),
    };
    for (const auto& share : shares_) share->core.move_to(local);
}

bool Engine::command(std::uint32_t command) {
    const std::uint32_t number = registers_[Address::JobIndex];
    const auto end_with = [&](Reason reason) {
        registers_.set(Address::JobReason, static_cast<std::uint32_t>(reason));
    };
    if (command == 0) {
        end_with(Reason::Command);
        throw std::invalid_argument("there is no command 0");
    }
    if (number >= limits_.jobs) {
        end_with(Reason::Index);
        throw std::invalid_argument("the engine has jobs 0 to " + std::to_string(limits_.jobs - 1) +
                                    ", not " + std::to_string(number));
    }
    if (command == static_cast<std::uint32_t>(registers::Command::JoinParent)) {
        end_with(ask_parent(number));
        return false;
    }
    for (const auto& share : shares_) share->core.destroy(number);
    const bool creates = command == static_cast<std::uint32_t>(registers::Command::Create);
    const Reason reason = creates ? unfit() : Reason::None;
    end_with(reason);
    if (creates && reason == Reason::None) create(described(number));
    return true;
}

Reason Engine::ask_parent(std::uint32_t number) {
    const Job* job = shares_[0]->core.job_at(number);
    if (job == nullptr) return Reason::Disabled;
    if (!job->parent) return Reason::NoParent;
    shares_[job->owner(0)]->core.ask_parent(number);
    return Reason::None;
}

// Why the parameters are not those of a job beside the others.
Reason Engine::unfit() const {
    const auto within = [&](Address address, std::size_t most) {
        return 1 <= registers_[address] && registers_[address] <= most;
    };
    if (!within(Address::JobWorkers, limits_.workers)) return Reason::Workers;
    if (!within(Address::JobLanes, limits_.lanes)) return Reason::Lanes;
    const std::size_t base = registers_[Address::JobSlotBase];
    const std::size_t end = base + registers_[Address::JobSlotCount];
    if (end == base || end > slots_.size()) return Reason::Slots;
    const std::uint32_t group = registers_[Address::JobGroupAddress];
    if (group != 0 && group >> 28 != 0xE) return Reason::Group;
    for (std::size_t number = 0; number < limits_.jobs; ++number) {
        const Job* other = shares_[0]->core.job_at(number);
        if (other == nullptr) continue;
        if (base < other->slot_base + other->slots && other->slot_base < end) {
            return Reason::Overlap;
        }
    }
    return Reason::None;
}

void Engine::create(const Job& job) {
    for (std::size_t slot = 0; slot < job.slots; ++slot) {
        slots_.reset(job.slot_base + slot, registers_[Address::JobRound], job.everyone());
    }
    for (const auto& share : shares_) share->core.create(job);
}

// The core that has heard of it is locked by the caller, and is the first.
void Engine::joined(const Job& job, wire::Worker worker) {
    for (const auto& share : shares_) {
        if (share == shares_.front()) continue;
        const std::lock_guard alone(share->mutex);
        if (Job* same = share->core.job_at(job.number)) same->peers[worker] = job.peers[worker];
    }
}

Job Engine::described(std::uint32_t number) const {
    Job job{
        .number = static_cast<wire::Job>(number),
        .key = registers_.pair(Address::JobKeyLow, Address::JobKeyHigh),
        .workers = registers_[Address::JobWorkers],
        .lanes = registers_[Address::JobLanes],
        .credit = registers_[Address::JobCredit],
        .slot_base = registers_[Address::JobSlotBase],
        .slots = registers_[Address::JobSlotCount],
        .peers = {},
        .group = {},
        .group_key = registers_.pair(Address::JobGroupKeyLow, Address::JobGroupKeyHigh),
        .parent = {},
        .may_move = (registers_[Address::JobOptions] & 1) != 0,
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
            .partial_bits = limits_.partial_bits,
        };
    }
    job.first_share = job.parent ? share_below_parent(number) : 0;
    job.shares = job.parent ? 1 : shares();
    return job;
}

}  // namespace afflux::engine

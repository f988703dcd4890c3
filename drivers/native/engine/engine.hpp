// An engine in software: registers and commands over the cores that share its slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/core.hpp"
#include "engine/register_file.hpp"
#include "engine/slots.hpp"

namespace afflux::engine {

// Registers may be used by any thread at any time: a command is carried out between the packets of
// all cores.
class Engine {
  public:
    // A core and the lock that whoever uses it must hold. Locks are taken in the order of the
    // shares.
    struct Share {
        Share(const Limits& limits, SlotPool& slots, const Core::Joined& joined)
            : core(limits, slots, joined) {}

        std::mutex mutex;
        Core core;
    };

    // Throws std::invalid_argument if a limit or the number of shares is out of range.
    Engine(const Limits& limits, unsigned shares);

    unsigned shares() const { return static_cast<unsigned>(shares_.size()); }
    Share& share(unsigned number) { return *shares_[number]; }
    // The share that has all slots of a job below a parent: all that the parent sends comes to one
    // socket.
    unsigned share_below_parent(unsigned job) const { return job % shares(); }
    const Limits& limits() const { return limits_; }

    // The register at a byte address.
    std::uint32_t read(std::uint32_t address);

    // Throws std::invalid_argument for a command that there is not, or for a job that the engine is
    // not built for. Why any other has failed, job_reason tells.
    void write(std::uint32_t address, std::uint32_t value);

    // Has this called after each change of the jobs, by the thread that has made it; null: nothing.
    void watch_jobs(std::function<void()> changed);

    static constexpr unsigned kSharesMax = 64;

  private:
    class AllLocked;

    void store(const registers::Register& known, std::uint32_t value);
    // Returns whether jobs have changed.
    bool command(std::uint32_t command);
    registers::Reason ask_parent(std::uint32_t number);
    registers::Reason unfit() const;
    Job described(std::uint32_t number) const;
    void create(const Job& job);
    void joined(const Job& job, wire::Worker worker);

    // Registers that show the engine's state, in debug_registers.cpp.
    std::uint32_t look(Address address) const;
    std::uint32_t look_at_job(Address address) const;
    std::uint32_t look_at_slot(Address address) const;
    std::uint32_t look_at_peer(Address address) const;

    Limits limits_;
    SlotPool slots_;
    std::vector<std::unique_ptr<Share>> shares_;
    // Guards what follows; taken before the shares' locks.
    std::mutex mutex_;
    RegisterFile registers_;
    std::function<void()> changed_;
};

}  // namespace afflux::engine

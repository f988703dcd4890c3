// The software engine, which is the aggregator of the protocol's section 5 on the CPU.
//
// It is the embedded aggregator of a run without hardware, and the hardware's twin: for the same
// input it sends the same frames in the same order, and it has the same counters behind the same
// registers. It sends at once, so nothing queues and no replay is ever dropped. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/counters.hpp"
#include "engine/job.hpp"
#include "engine/register_file.hpp"
#include "engine/rounds.hpp"
#include "engine/send_queue.hpp"
#include "engine/sender.hpp"
#include "engine/slots.hpp"
#include "packet/frame.hpp"

namespace afflux::engine {

// What an engine is built for.
struct Limits {
    unsigned workers = wire::kWorkersMax;  // of a job
    unsigned lanes = wire::kLanesMax;      // of a slot
    unsigned jobs = 8;                     // at once, as many as wire::Job can number
    unsigned slots = 512;                  // of the pool, as many as wire::Slot can number
};

class SoftEngine {
  public:
    // Throws std::invalid_argument if a limit is out of range.
    explicit SoftEngine(const Limits& limits);

    SoftEngine(const SoftEngine&) = delete;
    SoftEngine& operator=(const SoftEngine&) = delete;

    // Takes one frame, and appends the frames that it causes to the queue.
    void receive(packet::Octets frame);

    // Counts the frames in the queue as sent. The caller sends them and clears the queue.
    SendQueue& send();

    // The register at a byte address.
    std::uint32_t read(std::uint32_t address);

    // Throws std::invalid_argument for a command to create a job that the engine is not built for.
    void write(std::uint32_t address, std::uint32_t value);

  private:
    // Commands, in engine.cpp.
    void command(std::uint32_t command);
    void create(std::uint32_t number);
    Job* job_at(std::size_t number);

    // The content of a well-formed frame that came to one of the engine's ports.
    struct Arrival {
        Packet packet;
        packet::Endpoint peer;
        std::uint16_t port;  // of the engine
    };

    // The checks of section 5.2, in admission.cpp. A frame is counted for the first that fails.
    std::optional<Arrival> parse(packet::Octets frame);
    void from_worker(const Arrival& arrival);
    void from_parent(const Arrival& arrival);
    void join(Job& job, const Arrival& arrival);
    void refuse(const Arrival& arrival, Counter counter, wire::Refusal cause);

    // Registers that show the engine's state, in debug_registers.cpp.
    std::uint32_t look(Address address) const;
    std::uint32_t look_at_slot(Address address) const;
    std::uint32_t look_at_peer(Address address) const;

    Limits limits_;
    SlotPool slots_;
    std::vector<std::optional<Job>> jobs_;
    Counters counters_;
    RegisterFile registers_;
    packet::Endpoint local_;
    Sender sender_;
    Rounds rounds_;
};

}  // namespace afflux::engine

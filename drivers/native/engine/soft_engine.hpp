// The software engine behind frames: the hardware's twin.
//
// For the same frames it sends the same frames in the same order, and it has the same counters
// behind the same registers. It sends at once, so nothing queues and no replay is ever dropped.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.hpp"
#include "engine/send_queue.hpp"
#include "packet/frame.hpp"

namespace afflux::engine {

// Registers may be used at any time, frames by one thread at a time.
class SoftEngine {
  public:
    // Throws std::invalid_argument if a limit or the number of shares is out of range.
    explicit SoftEngine(const Limits& limits, unsigned shares = 1);

    // Takes one frame, and appends the frames that it causes to the queue.
    void receive(packet::Octets frame);

    // Counts the frames in the queue as sent. The caller sends them and clears the queue.
    SendQueue& send();

    std::uint32_t read(std::uint32_t address) { return engine_.read(address); }
    void write(std::uint32_t address, std::uint32_t value) { engine_.write(address, value); }

    Engine& engine() { return engine_; }

  private:
    // The checks of the protocol's section 5.2 up to the checksum. A frame is counted for the first
    // that it fails.
    std::optional<Arrival> parse(packet::Octets frame);
    Engine::Share& owner_of(const Arrival& arrival);
    void carry_out();

    Engine engine_;
    SendQueue queue_;
};

}  // namespace afflux::engine

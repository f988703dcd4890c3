// The software engine as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/soft_engine.hpp"

namespace afflux::bindings {

// Works without the interpreter's lock, so it needs one of its own.
class LockedEngine {
  public:
    LockedEngine(const engine::Limits& limits, unsigned shares) : engine_(limits, shares) {}

    std::vector<nanobind::bytes> play(const std::vector<nanobind::bytes>& frames);

    std::uint32_t read(std::uint32_t address) {
        const nanobind::gil_scoped_release no_python;
        const std::lock_guard alone(mutex_);
        return engine_.read(address);
    }

    void write(std::uint32_t address, std::uint32_t value) {
        const nanobind::gil_scoped_release no_python;
        const std::lock_guard alone(mutex_);
        engine_.write(address, value);
    }

    // For who serves it on sockets, and takes the cores' locks.
    engine::Engine& engine() { return engine_.engine(); }

  private:
    engine::SendQueue play_unlocked(const std::vector<packet::Octets>& frames) {
        const nanobind::gil_scoped_release no_python;
        const std::lock_guard alone(mutex_);
        for (const packet::Octets& frame : frames) engine_.receive(frame);
        return std::exchange(engine_.send(), {});
    }

    engine::SoftEngine engine_;
    std::mutex mutex_;
};

}  // namespace afflux::bindings

// State that all tables of the library share: settings, devices, and the results of calls.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nccl/environment.hpp"
#include "nccl/interfaces.hpp"
#include "nccl/log.hpp"
#include "nccl/net_abi.hpp"
#include "nccl/progress.hpp"

namespace afflux::nccl {

inline constexpr char kName[] = "Afflux";

struct Device {
    Interface interface;
    std::uint64_t guid;
    std::weak_ptr<ProgressThread> progress;  // as long as communicators use it
};

class Plugin {
  public:
    static Plugin& get();

    // Reads the environment, the first time. Throws std::invalid_argument or std::system_error.
    void open(abi::Logger logger);

    const Settings& settings() const { return settings_; }
    int devices() const { return static_cast<int>(devices_.size()); }
    // Throws std::out_of_range if there is no such one.
    Device& device(int number) { return devices_.at(static_cast<std::size_t>(number)); }

    // The kind of the engine that sums, as its control channel names it.
    void note_engine(const std::string& engine);

    // Sizes of the all-reduces of so many nodes that go through the engine, and no others do; null:
    // NCCL chooses, as it does before an engine is known.
    std::optional<ByteRanges> chosen_sizes(std::size_t nodes);
    // The same for all engines, to be compared with other nodes'.
    std::string described_sizes(std::size_t nodes) const;

    // The thread of a device, which ends when nobody holds it.
    std::shared_ptr<ProgressThread> progress(int device);

  private:
    // Of the slowest device, in Gbit/s.
    double link_gbit() const;

    std::mutex mutex_;
    bool open_ = false;
    Settings settings_;
    std::string engine_;
    std::deque<Device> devices_;
};

// The result of a call; the text of an exception goes to the log.
template <typename Body>
abi::Result guarded(abi::Result failure, Body body) noexcept {
    try {
        return body();
    } catch (const std::exception& error) {
        warn(error.what());
    }
    return failure;
}

// Writes the properties of a device into each version's struct. Throws std::out_of_range if there
// is no such device.
void fill(int device, abi::PropertiesV8& out);
void fill(int device, abi::PropertiesV9& out);
void fill(int device, abi::PropertiesV11& out);
void fill(int device, abi::PropertiesV12& out);

}  // namespace afflux::nccl

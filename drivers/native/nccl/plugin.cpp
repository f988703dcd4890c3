#include "nccl/plugin.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace afflux::nccl {
namespace {

constexpr int kManyComms = 65536;
constexpr std::int16_t kUndefined = -1;

// The members that all versions have.
template <typename Properties>
void describe(int number, Properties& out) {
    Interface& interface = Plugin::get().device(number).interface;
    out.name = interface.name.data();
    out.pci_path = interface.pci_path.empty() ? nullptr : interface.pci_path.data();
    out.guid = Plugin::get().device(number).guid;
    out.pointer_support = abi::Host;
    out.registration_is_global = 0;
    out.speed = interface.speed;
    out.port = 0;
    out.latency = 0;
    out.max_comms = kManyComms;
    out.max_receives = 1;
    out.device_type = 0;
    out.device_version = 0;
}

// And those that all have from version 9 on.
template <typename Properties>
void describe_more(int number, Properties& out) {
    describe(number, out);
    out.force_flush = 0;
    out.virtual_device.count = 1;
    out.virtual_device.devices[0] = number;
    out.max_p2p_bytes = abi::kMaxNetBytes;
    out.max_collective_bytes = abi::kMaxCollBytes;
}

}  // namespace

Plugin& Plugin::get() {
    static Plugin only;
    return only;
}

void Plugin::open(abi::Logger logger) {
    set_logger(logger);
    const std::scoped_lock alone(mutex_);
    if (open_) return;
    settings_ = read_environment();
    devices_.clear();
    std::string names;
    for (Interface& each : find_interfaces(settings_)) {
        names += (names.empty() ? "" : ", ") + each.name + " " + each.address.text();
        // The same at every init of this host, and not that of another host's interface.
        const std::uint64_t guid = std::hash<std::string>()(each.name + each.address.text());
        devices_.push_back({.interface = std::move(each), .guid = guid, .progress = {}});
    }
    open_ = true;
    inform("using " + names);
}

void Plugin::note_engine(const std::string& engine) {
    const std::scoped_lock alone(mutex_);
    engine_ = engine;
}

double Plugin::link_gbit() const {
    int slowest = std::numeric_limits<int>::max();
    for (const Device& each : devices_) slowest = std::min(slowest, each.interface.speed);
    return slowest * 1e-3;
}

std::optional<ByteRanges> Plugin::chosen_sizes(std::size_t nodes) {
    if (settings_.chosen_bytes) return settings_.chosen_bytes;
    const std::scoped_lock alone(mutex_);
    return settings_.sizes.sizes(engine_, link_gbit(), nodes);
}

std::string Plugin::described_sizes(std::size_t nodes) const {
    if (settings_.chosen_bytes) return text_of(*settings_.chosen_bytes);
    return settings_.sizes.described(link_gbit(), nodes);
}

std::shared_ptr<ProgressThread> Plugin::progress(int number) {
    const std::scoped_lock alone(mutex_);
    Device& chosen = device(number);
    std::shared_ptr<ProgressThread> held = chosen.progress.lock();
    if (!held) {
        held = std::make_shared<ProgressThread>();
        chosen.progress = held;
    }
    return held;
}

void fill(int device, abi::PropertiesV8& out) {
    describe(device, out);
}

void fill(int device, abi::PropertiesV9& out) {
    describe_more(device, out);
}

void fill(int device, abi::PropertiesV11& out) {
    describe_more(device, out.base);
    out.max_multi_request_size = 1;
}

void fill(int device, abi::PropertiesV12& out) {
    describe_more(device, out);
    out.max_multi_request_size = 1;
    out.rail = kUndefined;
    out.plane = kUndefined;
}

}  // namespace afflux::nccl

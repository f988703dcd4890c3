#include "nccl/log.hpp"

#include <atomic>

namespace afflux::nccl {
namespace {

std::atomic<abi::Logger> current = nullptr;

void log(abi::LogLevel level, unsigned long flags, const std::string& text) {
    const abi::Logger logger = current.load(std::memory_order_acquire);
    if (logger != nullptr) logger(level, flags, "afflux", 0, "NET/Afflux: %s", text.c_str());
}

}  // namespace

void set_logger(abi::Logger logger) {
    if (logger != nullptr) current.store(logger, std::memory_order_release);
}

void warn(const std::string& text) {
    log(abi::Warn, ~0UL, text);
}

void inform(const std::string& text) {
    log(abi::Info, abi::InitLog | abi::NetLog, text);
}

}  // namespace afflux::nccl

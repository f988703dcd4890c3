#include "nccl/profiled_transfer.hpp"

#include <atomic>

namespace afflux::nccl {
namespace {

// Set by each init, all of which have the same; transfers run in other threads.
std::atomic<abi::Profiler> callback_of_nccl = nullptr;

}  // namespace

void ProfiledTransfer::set_callback(abi::Profiler callback) {
    callback_of_nccl.store(callback);
}

void ProfiledTransfer::begin(int socket, bool sends, std::size_t bytes) {
    const abi::Profiler callback = callback_of_nccl.load(std::memory_order_relaxed);
    if (callback == nullptr || parent_ == nullptr) return;
    abi::SocketEvent event{.type = abi::kSocketEvent,
                           .socket = {.number = socket, .receives = sends ? 0 : 1, .bytes = bytes}};
    callback(&event_, abi::EventStart, parent_, abi::kSocketEvents, &event);
}

void ProfiledTransfer::end() {
    if (event_ == nullptr) return;
    const abi::Profiler callback = callback_of_nccl.load(std::memory_order_relaxed);
    if (callback != nullptr) callback(&event_, abi::EventStop, nullptr, 0, nullptr);
    event_ = nullptr;
}

}  // namespace afflux::nccl

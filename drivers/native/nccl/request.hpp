// The requests of one communicator, from iallreduce to test.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "nccl/job_worker.hpp"

namespace afflux::nccl {

class Comm;

// Memory that NCCL has registered: the mapped buffers of its proxy.
struct Memory {
    std::byte* data;
    std::size_t bytes;

    bool holds(const void* at, std::size_t length) const {
        const auto* const first = static_cast<const std::byte*>(at);
        return data <= first && first + length <= data + bytes;
    }
};

struct Request {
    enum class State : int { Free, Posted, Done, Failed };

    std::atomic<State> state = State::Free;
    Comm* comm = nullptr;
    std::byte* send = nullptr;
    Reduction reduction{};
    std::size_t bytes = 0;
    bool clear = false;  // whether the send slot may be written to
};

// A ring from one thread, which posts, to another one, which takes. Requests may be tested in any
// order.
class RequestRing {
  public:
    // More than 8 steps of 64 channels in groups of 8.
    static constexpr std::size_t kRequests = 128;

    // A free request to be filled; null if all are in use.
    Request* free() {
        for (std::size_t i = 0; i < kRequests; ++i) {
            Request& each = requests_[(next_ + i) % kRequests];
            if (each.state.load(std::memory_order_acquire) != Request::State::Free) continue;
            next_ = (next_ + i + 1) % kRequests;
            return &each;
        }
        return nullptr;
    }

    void post(Request& request) {
        request.state.store(Request::State::Posted, std::memory_order_relaxed);
        const std::uint64_t head = head_.load(std::memory_order_relaxed);
        ring_[head % kRequests] = &request;
        // Ordered with the look at whether the other thread sleeps.
        head_.store(head + 1, std::memory_order_seq_cst);
    }

    // The next one that was posted; null if there is none.
    Request* take() {
        if (empty()) return nullptr;
        return ring_[tail_++ % kRequests];
    }

    bool empty() const { return tail_ == head_.load(std::memory_order_seq_cst); }

  private:
    std::array<Request, kRequests> requests_;
    std::array<Request*, kRequests> ring_{};
    std::size_t next_ = 0;
    std::atomic<std::uint64_t> head_ = 0;
    std::uint64_t tail_ = 0;
};

}  // namespace afflux::nccl

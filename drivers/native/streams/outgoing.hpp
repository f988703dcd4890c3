// Messages to one peer, whose payload is sent from where it lies.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "carriers/carrier.hpp"
#include "streams/message.hpp"

namespace afflux::streams {

// The messages of one batch go to the kernel with as few calls as it takes them. While a batch is
// on its way nothing can be added.
class Outgoing {
  public:
    static constexpr std::size_t kMessages = 8;

    explicit Outgoing(carriers::Stream& stream) : stream_(stream) {}

    bool empty() const { return first_ == last_; }
    // Whether the first message of the batch has left, but for its runs.
    bool begun() const { return first_ != 0; }
    // Whether a batch that has not begun takes another message, with so many runs of payload.
    bool takes(std::size_t runs) const;
    // Adds a message, unless the batch has begun. `front` is copied, `runs` stay where they are
    // until the batch is sent. Sets the head's payload.
    void add(Head head, std::span<const std::byte> front, std::span<const iovec> runs);
    // Sends what the kernel takes. Returns whether it took anything. Once it has taken less than
    // all, it is not asked again before `look_again`.
    bool flush();
    void look_again() { full_ = false; }
    // Why nothing can be sent any more; empty if it can.
    const std::string& error() const { return error_; }

  private:
    static constexpr std::size_t kVectors = 1024;
    // Longer batches would keep results of later pieces waiting.
    static constexpr std::size_t kBatchBytes = 3 * kPieceBytes;

    struct Front {
        Head head;
        std::array<std::byte, kFailureBytes> more;
    };

    carriers::Stream& stream_;
    std::array<Front, kMessages> fronts_;
    std::size_t messages_ = 0, bytes_ = 0;
    std::array<iovec, kVectors> vectors_;
    std::size_t first_ = 0, last_ = 0;
    bool full_ = false;
    std::string error_;
};

}  // namespace afflux::streams

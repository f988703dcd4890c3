// Messages from one peer: heads, and payloads that are read to where they belong.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "carriers/carrier.hpp"
#include "streams/message.hpp"

namespace afflux::streams {

// Reads a head, then its payload in one or more parts, each to places that are known when it is
// the part's turn. The next head comes with the same call of the kernel as a payload's last part.
class Incoming {
  public:
    explicit Incoming(carriers::Stream& stream) : stream_(stream) {}

    // Whether the head of the present message is there.
    bool has_head() const { return head_bytes_ == sizeof(Head); }
    const Head& head() const { return head_; }
    // Whether the part that was last placed is there, or none has been placed.
    bool part_is_here() const { return first_ == last_; }
    // Bytes that are missing of it.
    std::size_t missing() const;
    // Bytes of the payload for which no place is known.
    std::size_t unplaced() const { return head_.payload - placed_; }

    // Says where the next part of the payload goes.
    void place(std::span<const iovec> runs);
    void place(void* to, std::size_t bytes);
    // The next part goes nowhere.
    void skip(std::size_t bytes);
    // The message is over, and the next one becomes the present one.
    void next();

    // Reads what has come of the head or the part, or of what follows. Returns whether anything
    // has, the end included. Once the kernel has given all that it had, it is not asked again
    // before `look_again`.
    bool read();
    void look_again() { drained_ = false; }
    // Whether the peer sends nothing more, and why.
    bool ended() const { return !end_.empty(); }
    const std::string& end() const { return end_; }

  private:
    static constexpr std::size_t kVectors = 1024;

    carriers::Stream& stream_;
    Head head_{}, next_head_{};
    std::size_t head_bytes_ = 0, next_head_bytes_ = 0;
    std::size_t placed_ = 0;
    std::array<iovec, kVectors + 1> vectors_;
    std::size_t first_ = 0, last_ = 0;
    bool drained_ = false;
    std::string end_;
    std::array<std::byte, 16384> nowhere_;
};

}  // namespace afflux::streams

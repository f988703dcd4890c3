// Frames that wait to be sent. Those of one round share their words and blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packet/frame.hpp"

namespace afflux::engine {

class SendQueue {
  public:
    // Where the words and blocks of some frames begin, and how many octets they are.
    struct Body {
        std::size_t at;
        std::size_t bytes;
    };

    struct Frame {
        packet::Head head;
        Body body;

        std::size_t bytes() const { return head.size() + body.bytes; }
    };

    // A body consists of all that was appended since open().
    void open() { opened_ = bodies_.size(); }
    void append(const void* data, std::size_t bytes) {
        const auto* octets = static_cast<const std::uint8_t*>(data);
        bodies_.insert(bodies_.end(), octets, octets + bytes);
    }
    Body close() const { return {opened_, bodies_.size() - opened_}; }

    void push(const packet::Head& head, Body body) { frames_.push_back({head, body}); }

    const std::vector<Frame>& frames() const { return frames_; }
    // Valid until the next append.
    const std::uint8_t* body(const Frame& frame) const { return bodies_.data() + frame.body.at; }

    void clear() {
        frames_.clear();
        bodies_.clear();
    }

  private:
    std::vector<Frame> frames_;
    std::vector<std::uint8_t> bodies_;
    std::size_t opened_ = 0;
};

}  // namespace afflux::engine

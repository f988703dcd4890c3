// Frames that wait to be sent. Those of one round share a copy of their words and blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/packet_sink.hpp"
#include "packet/frame.hpp"
#include "packet/octets.hpp"

namespace afflux::engine {

class SendQueue final : public PacketSink {
  public:
    struct Frame {
        packet::Head head;
        std::size_t body_at;
        std::size_t body_bytes;
        packet::Seal seal;

        std::size_t bytes() const { return head.size() + body_bytes + seal.size(); }
    };

    void open(const Body& body, bool /*passing*/) override {
        opened_ = bodies_.size();
        for (std::size_t i = 0; i < body.count; ++i) {
            const packet::Octets& part = body.parts[i];
            bodies_.insert(bodies_.end(), part.data, part.data + part.bytes);
        }
        body_sum_ = packet::add_words(0, bodies_.data() + opened_, bodies_.size() - opened_);
    }

    void send(const packet::Endpoint& from, const packet::Endpoint& to,
              const packet::Header& header) override {
        packet::Head head = packet::make_head(from, to, header);
        const packet::Seal seal = packet::make_seal(head, body_sum_);
        frames_.push_back({head, opened_, bodies_.size() - opened_, seal});
    }

    const std::vector<Frame>& frames() const { return frames_; }
    // Valid until the next frame.
    const std::uint8_t* body(const Frame& frame) const { return bodies_.data() + frame.body_at; }

    void clear() {
        frames_.clear();
        bodies_.clear();
    }

  private:
    std::vector<Frame> frames_;
    std::vector<std::uint8_t> bodies_;
    std::size_t opened_ = 0;
    std::uint64_t body_sum_ = 0;
};

}  // namespace afflux::engine

// Streams that UCX carries: by RDMA where there are devices for it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "carriers/carrier.hpp"
#include "carriers/ucx_library.hpp"
#include "carriers/ucx_stream.hpp"

namespace afflux::carriers {

// One lane: a worker of UCX, with an endpoint for each member. The lane's TCP connections stay
// open: their end tells that a member has ended, and they carry the words of a UcxStream.
class UcxLane final : public LaneCarrier {
  public:
    // The sockets by member, -1 for the own one; they stay the caller's. Throws std::runtime_error.
    UcxLane(std::shared_ptr<const UcxContext> context, const std::vector<int>& sockets);
    // Drops what is still on its way; `close` does not.
    ~UcxLane() override;
    UcxLane(const UcxLane&) = delete;
    UcxLane& operator=(const UcxLane&) = delete;

    // With this the members connect with this lane.
    std::vector<std::byte> address() const;
    // Takes a member's address. The connection is made with the first bytes. Throws
    // std::runtime_error, if there is no transport to it, too.
    void connect(std::size_t member, std::span<const std::byte> address);

    std::size_t members() const override { return streams_.size(); }
    Stream* stream(std::size_t member) override { return streams_[member].get(); }
    bool progress() override;
    bool flushed() override;
    void release() override;
    int socket(std::size_t member) const override {
        return streams_[member] ? streams_[member]->socket() : -1;
    }
    short events(std::size_t member, bool input, bool output) const override;
    bool arm() override;
    int descriptor() const override { return descriptor_; }
    void readable(std::size_t member) override { streams_[member]->read_words(); }
    void end() override;
    void close() override;

  private:
    bool end_waits() const;
    template <typename Done>
    bool progress_until(UcxStream::Clock::duration longest, const Done& done);

    const std::shared_ptr<const UcxContext> context_;
    const UcxLibrary& ucx_;
    void* worker_ = nullptr;
    int descriptor_ = -1;
    std::vector<std::unique_ptr<UcxStream>> streams_;  // by member; the own one is null
    void* flush_ = nullptr;
    std::uint64_t flushed_ = 0;  // bytes sent when the last flush began
    UcxStream::Clock::time_point flush_began_;
    bool ended_ = false;
};

}  // namespace afflux::carriers

// Streams that are TCP connections: the kernel has the bytes.
#pragma once

#include <vector>

#include "carriers/carrier.hpp"

namespace afflux::carriers {

class SocketStream final : public Stream {
  public:
    // The socket stays the caller's.
    explicit SocketStream(int fd) : fd_(fd) {}

    ssize_t send(const iovec* vectors, std::size_t count) override;
    ssize_t receive(const iovec* vectors, std::size_t count) override;
    int fd() const { return fd_; }

  private:
    const int fd_;
};

class SocketLane final : public LaneCarrier {
  public:
    // By member, -1 for the own one. They stay the caller's.
    explicit SocketLane(const std::vector<int>& sockets);

    std::size_t members() const override { return streams_.size(); }
    Stream* stream(std::size_t member) override { return &streams_[member]; }
    int socket(std::size_t member) const override { return streams_[member].fd(); }
    short events(std::size_t member, bool input, bool output) const override;
    void expect(std::size_t member, std::size_t bytes) override;
    void end() override;

  private:
    std::vector<SocketStream> streams_;
    std::vector<int> expected_;  // as the sockets know it
};

}  // namespace afflux::carriers

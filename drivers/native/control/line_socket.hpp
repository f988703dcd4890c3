// A TCP connection that carries lines of text, with a time limit for each wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace afflux::control {

// Seconds of the monotonic clock, which deadlines are in.
double monotonic_now();

// Host and port as they stand in a URL.
std::string authority(const std::string& host, std::uint16_t port);

// All that wait throw Unreachable if the deadline passes or the connection ends.
class LineSocket {
  public:
    // Takes over a connected socket.
    explicit LineSocket(int number);
    ~LineSocket() { close(); }
    LineSocket(LineSocket&& other) noexcept
        : number_(std::exchange(other.number_, -1)),
          broken_(other.broken_),
          rest_(std::move(other.rest_)) {}
    LineSocket& operator=(LineSocket&& other) noexcept;

    // Connects to the first address of a host that accepts it; throws NobodyListens if the host has
    // refused.
    static LineSocket connect(const std::string& host, std::uint16_t port, double deadline);

    // Sends a line, without its end.
    void send(std::string_view line, double deadline);

    // The next line, of at most so many octets.
    std::string receive(double deadline, std::size_t most);

    // Octets as they are, without lines, and exactly so many.
    void send_octets(std::string_view octets, double deadline);
    std::string receive_octets(std::size_t count, double deadline);

    // A line that has come, without waiting.
    std::optional<std::string> take(std::size_t most);

    // Own and the peer's address and port.
    std::pair<std::string, std::uint16_t> own() const;
    std::pair<std::string, std::uint16_t> peer() const;

    // Whether the connection has ended, other than by `close`.
    bool broken() const { return broken_; }

    // The file number; -1 once it is closed.
    int number() const { return number_; }

    void close();

    // Gives the socket away, as one that takes its time: the kernel may wait for ever until a peer
    // reads. Throws Misbehaved if there is something that has not been received as a line.
    int release();

  private:
    std::optional<std::string> whole_line(std::size_t most);
    // Reads what is there; false if nothing is.
    bool read(std::size_t most = 4096);
    void wait(short events, double deadline) const;

    int number_;
    bool broken_ = false;
    std::string rest_;
};

}  // namespace afflux::control

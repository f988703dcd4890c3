// A connection between two nodes of a communicator, over which they form it, and then say what goes
// wrong and when it closes.
//
// Both ends prove that they know the communicator's secret, which NCCL's bootstrap has carried, in
// the way of the control channel (protocol, section 10.1): the connecting node is the client.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/line_codes.hpp"
#include "control/line_socket.hpp"
#include "control/object.hpp"
#include "nccl/interfaces.hpp"
#include "nccl/net_abi.hpp"

namespace afflux::nccl {

// The handle that NCCL carries from a node to the others, which use that of node 0.
struct Handle {
    std::array<char, 8> magic;
    std::array<std::uint8_t, 16> secret;
    SocketAddress listener;

    bool is_one() const;
    std::string secret_text() const { return {secret.begin(), secret.end()}; }
};
static_assert(sizeof(Handle) <= abi::kHandleBytes);

// Waits for nodes on a port of an interface.
class Listener {
  public:
    // Throws std::system_error if there can be none.
    explicit Listener(const Interface& interface);
    ~Listener() { close(); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    const Handle& handle() const { return handle_; }
    int number() const { return number_; }
    void close();

  private:
    Handle handle_{};
    int number_ = -1;
};

// All throw what LineSocket does, or control::NotAuthenticated.
class Link {
  public:
    // Connects to another node; tries again while it does not answer, as strangers may be before.
    // Calls `between` between tries.
    static Link connect(
        const Handle& handle, double deadline, const std::function<void()>& between = [] {});

    void send(const control::Object& message, double deadline);
    control::Object receive(double deadline);

    // A message that has come, without waiting.
    std::optional<control::Object> take();

    int number() const { return socket_.number(); }
    std::string peer() const { return socket_.peer().first; }
    // Of a connection within a host both addresses are the same.
    bool is_within_host() const { return socket_.own().first == socket_.peer().first; }
    void close() { socket_.close(); }
    // The socket, for something else than messages.
    int release() { return socket_.release(); }

  private:
    friend class Door;

    Link(control::LineSocket socket, control::LineCode own, control::LineCode theirs)
        : socket_(std::move(socket)), own_(std::move(own)), theirs_(std::move(theirs)) {}

    control::Object checked(const std::string& line);

    control::LineSocket socket_;
    control::LineCode own_;
    control::LineCode theirs_;
};

// Lets those in that know the secret. Others hold nobody up.
class Door {
  public:
    // The listener must live as long.
    explicit Door(const Listener& listener) : listener_(listener) {}

    // A node that has introduced itself, with its first message; nothing if none has in time.
    std::optional<std::pair<Link, control::Object>> admit(double deadline);

  private:
    // A connection of which the first line is awaited, or then the first with a code.
    struct Stranger {
        control::LineSocket socket;
        std::string address;
        double until;
        std::optional<control::LineCodes> codes{};
    };

    // Returns whether others may come: not while this process has as many files as it may.
    bool take_all();
    // The message of one that has introduced itself; it is gone if it says something else.
    std::optional<control::Object> heard(Stranger& stranger) const;

    const Listener& listener_;
    std::vector<Stranger> strangers_;
};

}  // namespace afflux::nccl

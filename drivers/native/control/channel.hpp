// A connection to an aggregator's control channel, from the client's side (protocol, section 10.1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/line_codes.hpp"
#include "control/line_socket.hpp"
#include "control/object.hpp"

namespace afflux::control {

// Where an aggregator's control channel is.
struct Place {
    std::string host;
    std::uint16_t port = 0;

    bool operator==(const Place&) const = default;
    std::string text() const { return authority(host, port); }
};

class Channel {
  public:
    // Connects; with a secret both ends prove that they know it. Throws Unreachable,
    // NotAuthenticated, Refused or Misbehaved.
    Channel(const Place& place, const std::optional<std::string>& secret, double seconds);

    // Sends a request, whose member `request` names it, and returns the answer; throws Refused if
    // that is a refusal, and what the constructor throws.
    Object ask(const Object& request, double seconds);

    // Takes what has come without a request. Throws Refused if the aggregator says that it ends the
    // jobs of this connection, and what the constructor throws if the connection has ended.
    void heed();

    bool broken() const { return socket_.broken(); }
    int number() const { return socket_.number(); }

    // The address that has answered.
    std::string address() const { return socket_.peer().first; }

  private:
    Object answer(const std::string& what, const std::string& line);
    void prove(const std::string& secret, double seconds);

    std::string peer_;
    LineSocket socket_;
    std::optional<LineCodes> codes_;
};

}  // namespace afflux::control

#include "nccl/roll_call.hpp"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "control/errors.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;

constexpr double kTell = 1;  // seconds for the kernel to take a line; it does so at once

void tell(std::vector<Peer>& peers, const Object& outcome) {
    for (Peer& each : peers) {
        try {
            each.link.send(outcome, monotonic_now() + kTell);
        } catch (const control::Error&) {
            // Its end of the connection tells.
        }
    }
}

}  // namespace

void RollCall::look_at(Peer& peer) {
    try {
        const std::optional<Object> said = peer.link.take();
        if (!said) return;
        if (const auto failed = said->text("failed")) {
            throw std::runtime_error(peer.name + ": " + *failed);
        }
        if (!said->has("joined")) throw std::runtime_error(peer.name + " speaks out of turn");
        joined_.insert(peer.rank);
    } catch (const control::Unreachable& error) {
        throw std::runtime_error(peer.name + " has gone: " + error.what());
    }
}

void RollCall::heed() {
    for (Peer& each : peers_) look_at(each);
}

void RollCall::confirm(double deadline) {
    std::vector<pollfd> missing;
    for (;;) {
        heed();
        missing.clear();
        std::string first;
        for (const Peer& each : peers_) {
            if (has_joined(each)) continue;
            if (missing.empty()) first = each.name;
            missing.push_back({each.link.number(), POLLIN, 0});
        }
        if (missing.empty()) return;
        const double seconds = deadline - monotonic_now();
        if (seconds <= 0) throw std::runtime_error(first + " does not join in time");
        ::poll(missing.data(), missing.size(), static_cast<int>(std::ceil(1e3 * seconds)));
    }
}

void RollCall::go() {
    tell(peers_, Object().set("go", true));
}

void RollCall::fail(const std::string& why) {
    tell(peers_, Object().set("failed", why));
}

}  // namespace afflux::nccl

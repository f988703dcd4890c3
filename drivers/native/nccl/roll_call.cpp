#include "nccl/roll_call.hpp"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "control/errors.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;

constexpr int kLookMs = 50;
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

void RollCall::confirm(double deadline, const std::function<void()>& between) {
    // One that has joined may give up, or go, as well.
    std::vector<pollfd> all;
    for (const Peer& each : peers_) all.push_back({each.link.number(), POLLIN, 0});
    for (;;) {
        between();
        heed();
        const auto missing = std::find_if(peers_.begin(), peers_.end(),
                                          [this](const Peer& each) { return !has_joined(each); });
        if (missing == peers_.end()) return;
        if (monotonic_now() >= deadline) {
            throw std::runtime_error(missing->name + " does not join in time");
        }
        ::poll(all.data(), all.size(), kLookMs);
    }
}

void RollCall::go() {
    tell(peers_, Object().set("go", true));
}

void RollCall::fail(const std::string& why) {
    tell(peers_, Object().set("failed", why));
}

}  // namespace afflux::nccl

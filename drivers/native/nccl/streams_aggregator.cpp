#include "nccl/streams_aggregator.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "control/errors.hpp"
#include "control/hexadecimal.hpp"
#include "control/libcrypto.hpp"
#include "control/line_codes.hpp"
#include "control/line_socket.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;

constexpr std::string_view kMagic = "afflux streams 1";
constexpr std::string_view kKey = "afflux streams 1: key";
constexpr std::string_view kAggregator = "afflux streams 1: aggregator";
constexpr std::size_t kKeyBytes = 16, kNonceDigits = 32;
constexpr std::size_t kCodeBytes = 65;  // its digits, and a space
constexpr double kAgain = 0.02, kAgainMost = 0.5;

enum Verdict : std::uint8_t { kAccepted, kOccupied };
constexpr std::array kReasons{"", "this place is taken by another connection",
                              "it is in another group", "it has no such place",
                              "it has no room for more connections"};

std::string text_of(const control::Digest& digest) {
    return {digest.begin(), digest.end()};
}

std::string packed(const StreamsClaim& claim) {
    std::string text = claim.mesh;
    // Ranks; connections of each; from whom, to whom; this connection; the rank's name; for how
    // many it stands.
    for (const std::uint32_t each :
         {claim.ranks, 1U, claim.rank, claim.ranks, 0U, claim.rank, 1U}) {
        for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(each >> shift);
    }
    return text;
}

// The verdict.
std::uint8_t introduce(control::LineSocket& socket, const std::string& key,
                       const StreamsClaim& claim, double deadline) {
    const std::string ours = control::new_nonce();
    socket.send_octets(std::string(kMagic) + ours, deadline);
    const std::string challenge = socket.receive_octets(kNonceDigits + kCodeBytes, deadline);
    const std::string theirs = challenge.substr(0, kNonceDigits);
    if (!control::is_nonce(theirs)) throw control::NotAuthenticated("it is another program");
    const std::string secret = text_of(control::hmac_sha256(control::octets_of(key), kKey));
    auto [to_aggregator, to_node] = control::connection_codes(secret, ours, theirs);
    if (!to_node.check(std::string_view(challenge).substr(kNonceDigits))) {
        throw control::NotAuthenticated("it has another secret");
    }
    socket.send_octets(to_aggregator.sign(packed(claim)), deadline);
    const auto verdict = to_node.check(socket.receive_octets(kCodeBytes + 1, deadline));
    if (!verdict) throw control::NotAuthenticated("its verdict was changed on its way");
    return static_cast<std::uint8_t>(verdict->front());
}

}  // namespace

std::string streams_key(const std::optional<std::string>& secret) {
    const std::string whole = text_of(control::hmac_sha256(secret.value_or(""), kAggregator));
    return control::hexadecimal(whole.substr(0, kKeyBytes));
}

control::LineSocket connect_streams(const control::Place& place, const std::string& key,
                                    const StreamsClaim& claim, double deadline,
                                    const std::function<void()>& between) {
    const std::string name = "the aggregator at " + place.text();
    for (double again = kAgain;; again = std::min(2 * again, kAgainMost)) {
        std::string why;
        try {
            auto socket = control::LineSocket::connect(place.host, place.port, deadline);
            const std::uint8_t verdict = introduce(socket, key, claim, deadline);
            if (verdict == kAccepted) return socket;
            why = verdict < kReasons.size() ? kReasons[verdict] : "it gives no reason";
            if (verdict != kOccupied) {
                throw control::Refused(name + " refuses the connection of node " +
                                       std::to_string(claim.rank) + ": " + why);
            }
        } catch (const control::NotAuthenticated& error) {
            throw control::NotAuthenticated(
                name + " does not prove that it knows the secret: " + error.what());
        } catch (const control::Unreachable& error) {
            why = error.what();
        }
        if (monotonic_now() + again > deadline) {
            throw control::Unreachable("timed out: node " + std::to_string(claim.rank) +
                                       " waited for " + name + ": " + why);
        }
        between();
        std::this_thread::sleep_for(std::chrono::duration<double>(again));
    }
}

}  // namespace afflux::nccl

#include "nccl/link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <system_error>
#include <thread>
#include <utility>

#include "control/errors.hpp"
#include "control/libcrypto.hpp"
#include "control/own_files.hpp"
#include "nccl/strangers.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;

constexpr std::array<char, 8> kMagic{'a', 'f', 'f', 'l', 'u', 'x', ' ', '1'};
constexpr std::size_t kLineBytes = 4096;
constexpr int kBacklog = 128;
constexpr auto kAgain = std::chrono::milliseconds(20);
constexpr double kTry = 2.0;         // seconds for a node to answer
constexpr double kHandshake = 3.0;   // seconds for a stranger's first lines
constexpr double kFilesAgain = 0.1;  // seconds until there may be files again

}  // namespace

bool Handle::is_one() const {
    return magic == kMagic;
}

Listener::Listener(const Interface& interface) {
    SocketAddress place = interface.address;
    number_ = ::socket(place.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const auto require = [this](bool good, const char* what) {
        if (good) return;
        const int error = errno;
        close();
        throw std::system_error(error, std::generic_category(), what);
    };
    require(number_ >= 0, "socket");
    control::own(number_);
    // Port and IPv4's address are at the same places in both families.
    place.place.sin6_port = 0;
    require(::bind(number_, place.get(), place.bytes) == 0, "bind");
    require(::listen(number_, kBacklog) == 0, "listen");
    handle_.magic = kMagic;
    control::fill_random(handle_.secret.data(), handle_.secret.size());
    handle_.listener.bytes = sizeof handle_.listener.place;
    getsockname(number_, handle_.listener.put(), &handle_.listener.bytes);
}

void Listener::close() {
    if (number_ >= 0) control::close_own(std::exchange(number_, -1));
}

Link Link::connect(const Handle& handle, double deadline, const std::function<void()>& between) {
    if (!handle.is_one()) throw control::Misbehaved("the handle of a node is not Afflux's");
    const std::uint16_t port = ntohs(handle.listener.place.sin6_port);
    for (;;) {
        try {
            // Between tries others may say that they give up.
            const double until = std::min(deadline, monotonic_now() + kTry);
            auto socket = control::LineSocket::connect(handle.listener.text(), port, until);
            const std::string nonce = control::new_nonce();
            socket.send(Object().set("nonce", nonce).line(), until);
            const auto answer = Object::parse(socket.receive(until, kLineBytes));
            const std::string theirs = answer ? answer->text("nonce").value_or("") : "";
            if (!control::is_nonce(theirs)) {
                throw control::NotAuthenticated("another program listens in the place of a node");
            }
            auto [own, other] = control::connection_codes(handle.secret_text(), nonce, theirs);
            return Link(std::move(socket), std::move(own), std::move(other));
        } catch (const control::Unreachable&) {
            if (monotonic_now() + 0.02 > deadline) throw;
        }
        between();
        std::this_thread::sleep_for(kAgain);
    }
}

void Link::send(const Object& message, double deadline) {
    socket_.send(own_.sign(message.line()), deadline);
}

Object Link::checked(const std::string& line) {
    const std::optional<std::string> text = theirs_.check(line);
    if (!text) {
        throw control::NotAuthenticated(
            "a node does not prove that it knows the communicator's secret");
    }
    const std::optional<Object> found = Object::parse(*text);
    if (!found) throw control::Misbehaved("a node's line is not a JSON object");
    return *found;
}

Object Link::receive(double deadline) {
    return checked(socket_.receive(deadline, kLineBytes));
}

std::optional<Object> Link::take() {
    const std::optional<std::string> line = socket_.take(kLineBytes);
    return line ? std::optional(checked(*line)) : std::nullopt;
}

bool Door::take_all() {
    for (;;) {
        const int number =
            ::accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (number < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (number < 0) return errno == EAGAIN;
        control::LineSocket socket(number);
        if (strangers_.size() == kStrangers) strangers_.erase(most_crowded(strangers_));
        std::string address = socket.peer().first;
        strangers_.push_back({std::move(socket), std::move(address), monotonic_now() + kHandshake});
    }
}

std::optional<Object> Door::heard(Stranger& stranger) const {
    while (const std::optional<std::string> line = stranger.socket.take(kLineBytes)) {
        if (stranger.codes) {
            const std::optional<std::string> text = stranger.codes->to_server.check(*line);
            const std::optional<Object> said = text ? Object::parse(*text) : std::nullopt;
            if (said) return said;
            throw control::NotAuthenticated("it does not know the secret");
        }
        const auto hello = Object::parse(*line);
        const std::string theirs = hello ? hello->text("nonce").value_or("") : "";
        if (!control::is_nonce(theirs)) throw control::NotAuthenticated("it is no node");
        const std::string nonce = control::new_nonce();
        stranger.socket.send(Object().set("nonce", nonce).line(), stranger.until);
        stranger.codes = control::connection_codes(listener_.handle().secret_text(), theirs, nonce);
    }
    return std::nullopt;
}

std::optional<std::pair<Link, Object>> Door::admit(double deadline) {
    do {
        // Otherwise the listener stays ready, and waiting for it would be a busy loop.
        const bool ready = take_all();
        double until = ready ? deadline : std::min(deadline, monotonic_now() + kFilesAgain);
        for (auto each = strangers_.begin(); each != strangers_.end();) {
            try {
                if (std::optional<Object> said = heard(*each)) {
                    Link link(std::move(each->socket), std::move(each->codes->to_client),
                              std::move(each->codes->to_server));
                    strangers_.erase(each);
                    return std::pair(std::move(link), std::move(*said));
                }
                if (monotonic_now() >= each->until) throw control::Unreachable("it says nothing");
                until = std::min(until, each->until);
                ++each;
            } catch (const control::Error&) {
                each = strangers_.erase(each);
            }
        }
        std::vector<pollfd> polled{{ready ? listener_.number() : -1, POLLIN, 0}};
        for (const Stranger& each : strangers_) polled.push_back({each.socket.number(), POLLIN, 0});
        const double seconds = std::clamp(until - monotonic_now(), 0.0, 1e3);
        ::poll(polled.data(), polled.size(), static_cast<int>(std::ceil(1e3 * seconds)));
    } while (monotonic_now() < deadline);
    return std::nullopt;
}

}  // namespace afflux::nccl

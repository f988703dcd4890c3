#include "nccl/net.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "control/libcrypto.hpp"
#include "control/line_socket.hpp"
#include "control/own_files.hpp"
#include "nccl/byte_streams.hpp"
#include "nccl/open_files.hpp"
#include "nccl/plugin.hpp"
#include "nccl/strangers.hpp"

namespace afflux::nccl::net {
namespace {

constexpr std::array<char, 8> kMagic{'a', 'f', 'f', 'l', 'u', 'x', 'n', '2'};
constexpr double kStranger = 5;  // seconds for who connects to say who it is
constexpr int kBacklog = 1024;

void set_up(int socket) {
    const int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

int opened(int family) {
    const int made = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) throw no_socket(errno);
    control::own(made);
    return made;
}

// A socket on which a Hello is under way.
struct Greeting {
    int socket;
    Hello hello{};
    std::size_t moved = 0;
    double since = 0;
    std::string address{};  // of a stranger

    std::byte* rest() { return reinterpret_cast<std::byte*>(&hello) + moved; }
    std::size_t left() const { return sizeof hello - moved; }
};

// A connection that is being made.
class Attempt {
  public:
    explicit Attempt(const NetHandle& handle) {
        std::uint64_t connection;
        control::fill_random(&connection, sizeof connection);
        const std::uint32_t streams =
            std::min(handle.streams, streams_now(Plugin::get().settings().streams));
        for (std::uint32_t stream = 0; stream < streams; ++stream) {
            try {
                const int socket = opened(handle.listener.family());
                const Hello hello{handle.secret, connection, stream, streams};
                all_.push_back({.socket = socket, .hello = hello});
                set_up(socket);
                const int result = ::connect(socket, handle.listener.get(), handle.listener.bytes);
                if (result == 0 || errno == EINPROGRESS) continue;
                throw std::system_error(errno, std::generic_category(), "connect to another node");
            } catch (...) {
                close();
                throw;
            }
        }
    }
    ~Attempt() { close(); }
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    // The sockets, once all are connected and greeted.
    std::unique_ptr<ByteStreams> go_on() {
        bool complete = true;
        for (Greeting& each : all_) complete &= greeted(each);
        if (!complete) return nullptr;
        std::vector<int> sockets;
        for (Greeting& each : all_) sockets.push_back(std::exchange(each.socket, -1));
        return std::make_unique<ByteStreams>(std::move(sockets), true);
    }

  private:
    static bool greeted(Greeting& each) {
        pollfd waiting{each.socket, POLLOUT, 0};
        if (each.left() == 0) return true;
        if (::poll(&waiting, 1, 0) <= 0) return false;
        const ssize_t count = ::send(each.socket, each.rest(), each.left(), MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN && errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "connect to another node");
        }
        each.moved += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
        return each.left() == 0;
    }

    void close() {
        for (Greeting& each : all_) {
            if (each.socket >= 0) control::close_own(std::exchange(each.socket, -1));
        }
    }

    std::vector<Greeting> all_;
};

class NetListener {
  public:
    explicit NetListener(const Interface& interface) {
        SocketAddress place = interface.address;
        place.place.sin6_port = 0;
        socket_ = opened(place.family());
        if (::bind(socket_, place.get(), place.bytes) != 0 || ::listen(socket_, kBacklog) != 0) {
            const int error = errno;
            control::close_own(socket_);
            throw std::system_error(error, std::generic_category(), "listen");
        }
        handle_.magic = kMagic;
        handle_.streams = streams_now(Plugin::get().settings().streams);
        control::fill_random(handle_.secret.data(), handle_.secret.size());
        handle_.listener.bytes = sizeof handle_.listener.place;
        getsockname(socket_, handle_.listener.put(), &handle_.listener.bytes);
    }
    ~NetListener() {
        control::close_own(socket_);
        for (const Greeting& each : strangers_) control::close_own(each.socket);
        for (const auto& [connection, sockets] : forming_) {
            for (const int each : sockets) {
                if (each >= 0) control::close_own(each);
            }
        }
    }
    NetListener(const NetListener&) = delete;
    NetListener& operator=(const NetListener&) = delete;

    const NetHandle& handle() const { return handle_; }

    // A connection of which all sockets have come.
    std::unique_ptr<ByteStreams> accept() {
        SocketAddress from;
        from.bytes = sizeof from.place;
        for (int socket;
             (socket = ::accept4(socket_, from.put(), &from.bytes, SOCK_CLOEXEC)) >= 0;) {
            control::own(socket);
            set_up(socket);
            if (strangers_.size() == kStrangers) know();
            if (strangers_.size() == kStrangers) {
                const auto leaving = most_crowded(strangers_);
                control::close_own(leaving->socket);
                strangers_.erase(leaving);
            }
            strangers_.push_back(
                {.socket = socket, .since = control::monotonic_now(), .address = from.text()});
            from.bytes = sizeof from.place;
        }
        // The connection stays where it is, so NCCL would ask for ever.
        if (errno == EMFILE || errno == ENFILE) throw no_socket(errno);
        know();
        for (auto each = forming_.begin(); each != forming_.end(); ++each) {
            const std::vector<int>& sockets = each->second;
            if (std::find(sockets.begin(), sockets.end(), -1) != sockets.end()) continue;
            auto made = std::make_unique<ByteStreams>(sockets, false);
            forming_.erase(each);
            return made;
        }
        return nullptr;
    }

  private:
    // Hears all, after which those that have said who they are have their places.
    void know() {
        std::erase_if(strangers_, [this](Greeting& each) { return !is_stranger(each); });
    }

    // Whether it has yet to say who it is; if not, it has its place, or is closed.
    bool is_stranger(Greeting& each) {
        const ssize_t count = ::recv(each.socket, each.rest(), each.left(), MSG_DONTWAIT);
        const bool nothing_yet = count < 0 && (errno == EAGAIN || errno == EINTR);
        each.moved += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
        if (each.left() == 0 && take_place(each)) return false;
        const bool in_time = control::monotonic_now() - each.since < kStranger;
        if (each.left() != 0 && (nothing_yet || count > 0) && in_time) return true;
        control::close_own(each.socket);
        return false;
    }

    bool take_place(const Greeting& each) {
        const Hello& said = each.hello;
        if (said.secret != handle_.secret || said.streams - 1 >= handle_.streams) return false;
        auto& sockets = forming_.try_emplace(said.connection, said.streams, -1).first->second;
        if (said.stream >= sockets.size()) return false;
        int& place = sockets[said.stream];
        if (place >= 0) return false;
        place = each.socket;
        return true;
    }

    int socket_ = -1;
    NetHandle handle_{};
    std::vector<Greeting> strangers_;
    std::map<std::uint64_t, std::vector<int>> forming_;
};

}  // namespace

abi::Result devices(int* count) noexcept {
    *count = Plugin::get().devices();
    return abi::Success;
}

abi::Result listen(int device, void* handle, void** listen_comm) noexcept {
    return guarded(abi::SystemError, [&] {
        auto made = std::make_unique<NetListener>(Plugin::get().device(device).interface);
        std::memset(handle, 0, abi::kHandleBytes);
        std::memcpy(handle, &made->handle(), sizeof(NetHandle));
        *listen_comm = made.release();
        return abi::Success;
    });
}

abi::Result connect(void* handle, void** comm) noexcept {
    *comm = nullptr;
    return guarded(abi::RemoteError, [&] {
        NetHandle known;
        std::memcpy(&known, handle, sizeof known);
        if (known.magic != kMagic) throw std::invalid_argument("the handle is not Afflux's");
        std::unique_ptr<Attempt> attempt(static_cast<Attempt*>(known.attempt));
        known.attempt = nullptr;
        // Until it is known to go on.
        std::memcpy(handle, &known, sizeof known);
        if (!attempt) attempt = std::make_unique<Attempt>(known);
        std::unique_ptr<ByteStreams> made = attempt->go_on();
        if (made) {
            *comm = made.release();
            return abi::Success;
        }
        known.attempt = attempt.release();
        std::memcpy(handle, &known, sizeof known);
        return abi::Success;
    });
}

abi::Result accept(void* listen_comm, void** comm) noexcept {
    *comm = nullptr;
    return guarded(abi::RemoteError, [&] {
        *comm = static_cast<NetListener*>(listen_comm)->accept().release();
        return abi::Success;
    });
}

abi::Result send(void* comm, void* data, std::size_t bytes, void* parent, void** request) noexcept {
    *request = nullptr;
    return guarded(abi::RemoteError, [&] {
        *request = static_cast<ByteStreams*>(comm)->post(data, bytes, parent);
        return abi::Success;
    });
}

abi::Result receive(void* comm, int parts, void* data, std::size_t bytes, void* parent,
                    void** request) noexcept {
    *request = nullptr;
    return guarded(abi::RemoteError, [&] {
        if (parts != 1) throw std::invalid_argument("receives are not grouped");
        *request = static_cast<ByteStreams*>(comm)->post(data, bytes, parent);
        return abi::Success;
    });
}

abi::Result test(void* request, int* done, int* sizes) noexcept {
    *done = 0;
    return guarded(abi::RemoteError, [&] {
        auto& tested = *static_cast<NetRequest*>(request);
        std::size_t bytes = 0;
        if (!tested.owner->test(tested, bytes)) return abi::Success;
        *done = 1;
        if (sizes != nullptr) *sizes = static_cast<int>(bytes);
        return abi::Success;
    });
}

abi::Result close(void* comm) noexcept {
    delete static_cast<ByteStreams*>(comm);
    return abi::Success;
}

abi::Result close_listen(void* listen_comm) noexcept {
    delete static_cast<NetListener*>(listen_comm);
    return abi::Success;
}

}  // namespace afflux::nccl::net

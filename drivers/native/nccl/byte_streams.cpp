#include "nccl/byte_streams.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "control/own_files.hpp"

namespace afflux::nccl {
namespace {

constexpr std::size_t kPart = 64 << 10;

// Bytes of each part of a message but the last: whole pages.
std::size_t part_bytes(std::size_t bytes, std::size_t streams) {
    constexpr std::size_t kPage = 4096;
    const std::size_t parts = std::clamp<std::size_t>(bytes / kPart, 1, streams);
    return std::max(kPage, (bytes / parts + kPage - 1) / kPage * kPage);
}

// The bytes that a call of the kernel has moved; 0 if it would have had to wait. Throws if the end
// has come.
std::size_t moved_bytes(ssize_t count, bool failed) {
    if (!failed) return static_cast<std::size_t>(count);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    throw std::runtime_error(std::string("a connection between nodes has ended: ") +
                             (count == 0 ? "closed by the peer" : std::strerror(errno)));
}

}  // namespace

ByteStreams::ByteStreams(std::vector<int> sockets, bool sends) : sends_(sends) {
    for (const int each : sockets) streams_.push_back({each});
}

ByteStreams::~ByteStreams() {
    for (const Stream& each : streams_) control::close_own(each.socket);
}

NetRequest* ByteStreams::post(void* data, std::size_t bytes, void* parent) {
    const auto found = std::find_if(requests_.begin(), requests_.end(),
                                    [](const NetRequest& each) { return !each.used; });
    if (found == requests_.end()) return nullptr;
    *found = {.data = static_cast<std::byte*>(data),
              .bytes = bytes,
              .used = true,
              .owner = this,
              .profiled = ProfiledTransfer(parent)};
    if (sends_) {
        share_out(*found);
    } else {
        lengths_.push_back(&*found);
    }
    move();
    return &*found;
}

bool ByteStreams::test(NetRequest& request, std::size_t& bytes) {
    if (!request.length_known || request.left != 0) move();
    if (!request.length_known || request.left != 0) return false;
    bytes = request.bytes;
    request.used = false;
    request.profiled.end();
    return true;
}

void ByteStreams::share_out(NetRequest& request) {
    request.length_known = true;
    request.profiled.begin(streams_[0].socket, sends_, request.bytes);
    const std::size_t part = part_bytes(request.bytes, streams_.size());
    std::size_t first = 0;
    for (std::size_t i = 0; first < request.bytes || (sends_ && i == 0); ++i) {
        const bool last = i + 1 == streams_.size();
        const std::size_t rest = request.bytes - first;
        const std::size_t bytes = last ? rest : std::min(part, rest);
        streams_[i].parts.push_back({&request, request.data + first, bytes});
        ++request.left;
        first += bytes;
    }
    if (!sends_) return;
    Part& front = streams_[0].parts.back();
    front.length = request.bytes;
    front.length_left = sizeof front.length;
}

void ByteStreams::move() {
    for (bool moved = true; moved;) {
        moved = false;
        // On the first socket lengths and parts alternate.
        if (streams_[0].parts.empty() && !lengths_.empty()) moved = receive_length();
        for (Stream& each : streams_) moved |= move(each);
    }
}

bool ByteStreams::move(Stream& stream) {
    bool moved = false;
    while (!stream.parts.empty()) {
        Part& part = stream.parts.front();
        std::size_t bytes =
            sends_ ? send(stream.socket, part) : receive(stream.socket, part.data, part.left);
        if (bytes == 0) break;
        moved = true;
        const std::size_t of_length = std::min(bytes, part.length_left);
        part.length_left -= of_length;
        bytes -= of_length;
        part.data += bytes;
        part.left -= bytes;
        if (part.left + part.length_left != 0) break;
        --part.request->left;
        stream.parts.pop_front();
        // The next message's length comes before its part.
        if (!sends_ && &stream == streams_.data()) break;
    }
    return moved;
}

std::size_t ByteStreams::send(int socket, const Part& part) {
    // The kernel only reads both.
    auto* const length = reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(&part.length));
    iovec pieces[2]{{length + sizeof part.length - part.length_left, part.length_left},
                    {part.data, part.left}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return moved_bytes(count, count < 0);
}

std::size_t ByteStreams::receive(int socket, std::byte* data, std::size_t bytes) {
    const ssize_t count = ::recv(socket, data, bytes, MSG_DONTWAIT);
    return moved_bytes(count, count <= 0);
}

bool ByteStreams::receive_length() {
    NetRequest& request = *lengths_.front();
    const std::size_t bytes =
        receive(streams_[0].socket, length_.data() + length_moved_, length_.size() - length_moved_);
    length_moved_ += bytes;
    if (length_moved_ < length_.size()) return bytes != 0;
    length_moved_ = 0;
    std::uint64_t length;
    std::memcpy(&length, length_.data(), sizeof length);
    if (length > request.bytes) {
        throw std::runtime_error("a message of " + std::to_string(length) +
                                 " bytes came for room of " + std::to_string(request.bytes));
    }
    request.bytes = length;
    lengths_.pop_front();
    share_out(request);
    return true;
}

}  // namespace afflux::nccl

#include "datagrams/send_batch.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace afflux::datagrams {
namespace {

// Of one message: what IPv4 can express, what all kernels take, and what sendmsg takes.
constexpr std::size_t kMostBytes = 65535 - 20 - 8;
constexpr std::size_t kDatagrams = 64;
// sendmsg takes 1024, and a datagram has less than the rest.
constexpr std::size_t kParts = 1024 - 64;
// Messages that are looked at to find one that a datagram can be joined to. Results go to the
// workers in turn, so it is usually the latest or the next.
constexpr std::size_t kLook = 128;

}  // namespace

bool SendBatch::Message::takes(const Address& address, std::size_t bytes, unsigned number) const {
    return segment == bytes && bytes > 0 && range == number && datagrams < kDatagrams &&
           (datagrams + 1) * bytes <= kMostBytes && parts.size() <= kParts && to == address;
}

SendBatch::SendBatch(const UdpSocket& socket, bool segment)
    : socket_(socket), segments_(segment && socket.can_segment()) {}

void SendBatch::add(const Address& to, std::span<const Part> parts, unsigned range) {
    std::size_t bytes = 0;
    for (const Part& part : parts) bytes += part.size();
    Message& message = message_for(to, bytes, range);
    for (const Part& part : parts) {
        if (part.empty()) continue;
        // Only read, although the interface takes a pointer to non-const.
        message.parts.push_back({const_cast<std::uint8_t*>(part.data()), part.size()});
    }
    ++message.datagrams;
}

SendBatch::Message& SendBatch::message_for(const Address& to, std::size_t bytes, unsigned range) {
    if (segments_) {
        const std::size_t most = std::min(used_, kLook);
        for (std::size_t looked = 0; looked < most; ++looked, ++latest_) {
            if (latest_ >= used_) latest_ = 0;
            if (messages_[latest_].takes(to, bytes, range)) return messages_[latest_];
        }
    }
    Message& message = new_message();
    message.to = to;
    message.segment = bytes;
    message.range = range;
    return message;
}

SendBatch::Message& SendBatch::new_message() {
    if (used_ == messages_.size()) messages_.emplace_back();
    latest_ = used_++;
    Message& message = messages_[latest_];
    message.datagrams = 0;
    message.apart = false;
    message.parts.clear();
    return message;
}

bool SendBatch::flush(bool confirm) {
    const int flags = MSG_DONTWAIT | (confirm ? MSG_CONFIRM : 0);
    std::size_t at = 0;
    while (at < used_) {
        const std::size_t count = std::min(used_ - at, kMessages);
        prepare(at, count);
        ++traffic_.calls;
        const int sent =
            sendmmsg(socket_.number(), headers_.data(), static_cast<unsigned>(count), flags);
        if (sent > 0) {
            count_sent(at, static_cast<std::size_t>(sent));
            at += static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            drop_sent(at);
            return false;
        } else {
            at = after_error(at);
        }
    }
    used_ = 0;
    return true;
}

void SendBatch::prepare(std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        Message& message = messages_[first + i];
        msghdr& header = headers_[i].msg_hdr;
        std::memset(&headers_[i], 0, sizeof headers_[i]);
        header.msg_iov = message.parts.data();
        header.msg_iovlen = message.parts.size();
        if (!message.to.is_of_no_host()) {
            header.msg_name = const_cast<sockaddr*>(message.to.get());
            header.msg_namelen = message.to.bytes();
        }
        if (message.datagrams < 2) continue;
        header.msg_control = controls_[i].bytes.data();
        header.msg_controllen = sizeof(Control);
        cmsghdr* control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = IPPROTO_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const auto segment = static_cast<std::uint16_t>(message.segment);
        std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
    }
}

void SendBatch::count_sent(std::size_t first, std::size_t count) {
    tried_again_ = false;
    for (std::size_t i = first; i < first + count; ++i) {
        const Message& message = messages_[i];
        ++traffic_.messages;
        traffic_.datagrams += message.datagrams;
        traffic_.bytes += message.datagrams * message.segment;
        // Datagrams that could not be cut can be sent in pieces: the fault is in the cutting.
        if (message.apart) segments_ = false;
    }
}

std::size_t SendBatch::after_error(std::size_t at) {
    const Message& message = messages_[at];
    switch (errno) {
        case EINTR:
            return at;
        case ECONNREFUSED: {
            // About an earlier datagram. Reporting it has cleared it, so this one can go; unless
            // the answer to one of this call was faster.
            const bool again = !refused_;
            refused_ = true;
            return again ? at : at + 1;
        }
        case EMSGSIZE:
            if (message.datagrams > 1) {
                // The kernel does not cut what does not fit the path when it is cut. A socket that
                // may send fragments can send each.
                cut_apart(at, false);
                return at;
            }
            if (!tried_again_) {
                // About an earlier datagram, perhaps, which a router has reported: see above.
                tried_again_ = true;
                return at;
            }
            tried_again_ = false;
            too_long_ = message.segment;
            return at + 1;
        case EIO:
        case EINVAL:
        case ENOPROTOOPT:
        case EOPNOTSUPP:
            if (message.datagrams < 2) return at + 1;
            // No offload on this route, or a length that the route does not carry.
            cut_apart(at, true);
            return at;
        default:
            // No buffers, or no route for now.
            return at + 1;
    }
}

void SendBatch::cut_apart(std::size_t at, bool for_good) {
    const Message whole = std::move(messages_[at]);
    std::vector<Message> pieces;
    std::size_t bytes = 0;
    for (const iovec& part : whole.parts) {
        if (bytes == 0) {
            pieces.emplace_back();
            pieces.back().to = whole.to;
            pieces.back().segment = whole.segment;
            pieces.back().datagrams = 1;
            pieces.back().apart = for_good;
        }
        pieces.back().parts.push_back(part);
        bytes += part.iov_len;
        if (bytes == whole.segment) bytes = 0;
    }
    used_ += pieces.size() - 1;
    const auto place = messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(at));
    messages_.insert(place, std::make_move_iterator(pieces.begin()),
                     std::make_move_iterator(pieces.end()));
}

void SendBatch::drop_sent(std::size_t count) {
    // Rotated rather than erased, so that their memory serves again.
    std::rotate(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(count),
                messages_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ -= count;
    latest_ = 0;
}

}  // namespace afflux::datagrams

#include "datagrams/receiver.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace afflux::datagrams {
namespace {

// The longest datagram of IPv4 and of IPv6, and so the longest that the kernel makes by joining
// some.
constexpr std::size_t kJoinedBytes = 65535;
// Half a megabyte with one call, in few messages or many; more would not stay in the processor's
// cache.
constexpr std::size_t kBytes = 1 << 19;
constexpr std::size_t kMessages = 64;

// Length of each datagram but the last, if the kernel has joined some; else 0.
std::size_t segment_of(const msghdr& header) {
    // The macros want a header that may be written to.
    auto& all = const_cast<msghdr&>(header);
    for (cmsghdr* control = CMSG_FIRSTHDR(&all); control != nullptr;
         control = CMSG_NXTHDR(&all, control)) {
        if (control->cmsg_level != IPPROTO_UDP || control->cmsg_type != UDP_GRO) continue;
        int bytes = 0;
        std::memcpy(&bytes, CMSG_DATA(control), sizeof bytes);
        return static_cast<std::size_t>(bytes);
    }
    return 0;
}

}  // namespace

Receiver::Receiver(std::size_t longest, bool coalesced)
    : longest_(longest),
      buffer_bytes_(coalesced ? std::max(kJoinedBytes, longest + 1) : longest + 1),
      sources_(kMessages),
      controls_(sources_.size()),
      vectors_(sources_.size()),
      messages_(sources_.size()) {
    // Left as it is, so that the kernel provides only the pages that are used.
    buffers_ = std::make_unique_for_overwrite<std::uint8_t[]>(sources_.size() * buffer_bytes_);
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        vectors_[i] = {buffers_.get() + i * buffer_bytes_, buffer_bytes_};
        std::memset(&messages_[i], 0, sizeof messages_[i]);
        messages_[i].msg_hdr.msg_iov = &vectors_[i];
        messages_[i].msg_hdr.msg_iovlen = 1;
        messages_[i].msg_hdr.msg_name = sources_[i].put();
        messages_[i].msg_hdr.msg_control = controls_[i].bytes.data();
    }
}

std::span<const Datagram> Receiver::receive(const UdpSocket& socket) {
    datagrams_.clear();
    for (mmsghdr& message : messages_) {
        message.msg_hdr.msg_namelen = Address::kCapacity;
        message.msg_hdr.msg_controllen = sizeof(Control);
    }
    ++traffic_.calls;
    const int received = recvmmsg(socket.number(), messages_.data(), static_cast<unsigned>(asked_),
                                  MSG_DONTWAIT, nullptr);
    if (received < 0) {
        if (errno == ECONNREFUSED) refused_ = true;
        // A send error takes the place of what has come; the next call gives that.
        more_ = errno != EAGAIN && errno != EWOULDBLOCK && errno != EBADF;
        return {};
    }
    const auto count = static_cast<std::size_t>(received);
    more_ = count == asked_;
    const std::uint64_t before = traffic_.bytes;
    for (std::size_t i = 0; i < count; ++i) {
        take_apart(messages_[i], sources_[i], buffers_.get() + i * buffer_bytes_);
    }
    traffic_.messages += count;
    // As many as make up the bytes if they are like these.
    const std::size_t mean =
        static_cast<std::size_t>(traffic_.bytes - before) / std::max(count, std::size_t{1});
    asked_ = std::clamp(kBytes / std::max(mean, std::size_t{1}), kMessages / 8, kMessages);
    traffic_.datagrams += datagrams_.size();
    return datagrams_;
}

void Receiver::take_apart(const mmsghdr& message, const Address& source, const std::uint8_t* data) {
    std::size_t left = message.msg_len;
    traffic_.bytes += left;
    const std::size_t joined = segment_of(message.msg_hdr);
    const std::size_t segment = joined == 0 ? left : joined;
    // At least one, as a datagram may be empty.
    do {
        const std::size_t bytes = std::min(segment, left);
        datagrams_.push_back({&source, data, std::min(bytes, longest_ + 1)});
        data += bytes;
        left -= bytes;
    } while (left > 0);
}

}  // namespace afflux::datagrams

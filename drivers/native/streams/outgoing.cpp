#include "streams/outgoing.hpp"

#include <cerrno>
#include <cstring>

namespace afflux::streams {

bool Outgoing::takes(std::size_t runs) const {
    return first_ == 0 && messages_ < kMessages && bytes_ < kBatchBytes &&
           last_ + runs + 1 <= kVectors;
}

void Outgoing::add(Head head, std::span<const std::byte> front, std::span<const iovec> runs) {
    Front& own = fronts_[messages_++];
    std::size_t payload = front.size();
    for (const iovec& run : runs) payload += run.iov_len;
    head.payload = static_cast<std::uint32_t>(payload);
    own.head = head;
    if (!front.empty()) std::memcpy(own.more.data(), front.data(), front.size());
    vectors_[last_++] = {&own, sizeof own.head + front.size()};
    for (const iovec& run : runs) vectors_[last_++] = run;
    bytes_ += payload;
}

bool Outgoing::flush() {
    bool moved = false;
    while (!empty() && !full_) {
        const ssize_t sent = stream_.send(&vectors_[first_], last_ - first_);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) error_ = std::strerror(errno);
            full_ = true;
            return moved;
        }
        moved = true;
        auto left = static_cast<std::size_t>(sent);
        while (first_ < last_ && left >= vectors_[first_].iov_len)
            left -= vectors_[first_++].iov_len;
        if (first_ < last_) {
            vectors_[first_].iov_base = static_cast<std::byte*>(vectors_[first_].iov_base) + left;
            vectors_[first_].iov_len -= left;
            full_ = true;
        }
    }
    if (!empty()) return moved;
    first_ = last_ = messages_ = bytes_ = 0;
    return moved;
}

}  // namespace afflux::streams

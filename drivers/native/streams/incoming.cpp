#include "streams/incoming.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace afflux::streams {

void Incoming::place(std::span<const iovec> runs) {
    first_ = last_ = 0;
    for (const iovec& run : runs) {
        vectors_[last_++] = run;
        placed_ += run.iov_len;
    }
}

void Incoming::place(void* to, std::size_t bytes) {
    const iovec run{to, bytes};
    place({&run, bytes != 0});
}

std::size_t Incoming::missing() const {
    std::size_t bytes = 0;
    for (std::size_t i = first_; i < last_; ++i) bytes += vectors_[i].iov_len;
    return bytes;
}

void Incoming::skip(std::size_t bytes) {
    first_ = last_ = 0;
    placed_ += bytes;
    for (; bytes != 0; bytes -= vectors_[last_++].iov_len)
        vectors_[last_] = {nowhere_.data(), std::min(bytes, nowhere_.size())};
}

void Incoming::next() {
    head_ = next_head_;
    head_bytes_ = next_head_bytes_;
    next_head_bytes_ = placed_ = 0;
}

bool Incoming::read() {
    if (drained_) return false;
    const bool payload = has_head();
    // The head of the next message follows on the payload's last part.
    Head& head = payload ? next_head_ : head_;
    std::size_t& head_bytes = payload ? next_head_bytes_ : head_bytes_;
    const bool with_head = !payload || unplaced() == 0;
    std::size_t count = last_ - first_;
    if (with_head) {
        vectors_[last_] = {reinterpret_cast<std::byte*>(&head) + head_bytes,
                           sizeof head - head_bytes};
        ++count;
    }
    const ssize_t got = stream_.receive(&vectors_[first_], count);
    if (got <= 0) {
        if (got == 0)
            end_ = "its connection has ended";
        else if (errno != EAGAIN && errno != EWOULDBLOCK)
            end_ = std::strerror(errno);
        drained_ = true;
        return ended();
    }
    auto left = static_cast<std::size_t>(got);
    while (first_ < last_ && left >= vectors_[first_].iov_len) left -= vectors_[first_++].iov_len;
    if (first_ < last_) {
        vectors_[first_].iov_base = static_cast<std::byte*>(vectors_[first_].iov_base) + left;
        vectors_[first_].iov_len -= left;
    } else {
        head_bytes += left;
    }
    drained_ = first_ < last_ || (with_head && head_bytes < sizeof head);
    return true;
}

}  // namespace afflux::streams

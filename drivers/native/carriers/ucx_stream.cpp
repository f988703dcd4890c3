#include "carriers/ucx_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace afflux::carriers {
namespace {

constexpr std::uint64_t kLast = std::uint64_t{1} << 63;
// Bytes that were sent before the end come within that time.
constexpr std::chrono::seconds kPatience{1};

}  // namespace

ucx::Status UcxStream::connect(void* worker, const void* address) {
    ucx::EndpointParams params{};
    params.field_mask = params.kRemoteAddress | params.kErrMode | params.kErrHandler;
    params.address = address;
    params.err_mode = params.kErrModePeer;
    params.err_handler = {&UcxStream::failed, this};
    return ucx_.ep_create(worker, &params, &endpoint_);
}

// Called from within `worker_progress`.
void UcxStream::failed(void* self, void*, ucx::Status) {
    static_cast<UcxStream*>(self)->failed_ = true;
}

bool UcxStream::is_sending() {
    if (request_ && ucx_.request_check_status(request_) != ucx::kInProgress) {
        failed_ = failed_ || ucx_.request_check_status(request_) != ucx::kOk;
        ucx_.request_free(request_);
        request_ = nullptr;
    }
    return request_ != nullptr;
}

ssize_t UcxStream::send(const iovec* vectors, std::size_t count) {
    if (is_sending()) {
        errno = EAGAIN;
        return -1;
    }
    if (failed_) {
        end_found_ = true;
        errno = end_announced_ ? ECONNRESET : EAGAIN;
        return -1;
    }
    if (request_bytes_) return static_cast<ssize_t>(std::exchange(request_bytes_, 0));
    // Whole vectors, as many as the window has room for.
    std::size_t few = 0, bytes = 0;
    const auto choose = [&] {
        const std::uint64_t room = taken_ + kWindow - sent_;
        for (; few < count && bytes + vectors[few].iov_len <= room; ++few)
            bytes += vectors[few].iov_len;
    };
    choose();
    if (few < count) {
        read_words();
        choose();
    }
    if (!bytes) {
        errno = EAGAIN;
        return -1;
    }
    if (bytes > kLong && vectors[0].iov_len <= kShort) {
        few = 1;
        bytes = vectors[0].iov_len;
    }
    ucx::RequestParams params{};
    params.op_attr_mask = params.kDatatype;
    params.datatype = params.kIov;
    void* const given = ucx_.stream_send_nbx(endpoint_, vectors, few, &params);
    const ucx::Status status = ucx::status_of(given);
    if (status < 0) {
        failed_ = end_found_ = true;
        errno = end_announced_ ? ECONNRESET : EAGAIN;
        return -1;
    }
    sent_ += bytes;
    if (status == ucx::kOk) return static_cast<ssize_t>(bytes);
    request_ = given;
    request_bytes_ = bytes;
    errno = EAGAIN;
    return -1;
}

bool UcxStream::next_chunk() {
    if (chunk_ && chunk_taken_ < chunk_bytes_) return true;
    if (chunk_) ucx_.stream_data_release(endpoint_, const_cast<std::byte*>(chunk_));
    chunk_ = nullptr;
    if (failed_) return false;
    void* const data = ucx_.stream_recv_data_nb(endpoint_, &chunk_bytes_);
    if (!ucx::is_request(data)) return false;
    chunk_ = static_cast<const std::byte*>(data);
    chunk_taken_ = 0;
    return true;
}

ssize_t UcxStream::receive(const iovec* vectors, std::size_t count) {
    std::size_t got = 0;
    for (std::size_t i = 0; i < count; ++i) {
        auto* const to = static_cast<std::byte*>(vectors[i].iov_base);
        for (std::size_t at = 0; at < vectors[i].iov_len;) {
            if (!next_chunk()) {
                i = count - 1;
                break;
            }
            const std::size_t bytes =
                std::min(vectors[i].iov_len - at, chunk_bytes_ - chunk_taken_);
            std::memcpy(to + at, chunk_ + chunk_taken_, bytes);
            chunk_taken_ += bytes;
            at += bytes;
            got += bytes;
        }
    }
    if (got) {
        received_ += got;
        if (received_ - acknowledged_ >= kWindow / 4 || (has_total_ && received_ == total_))
            acknowledge();
        return static_cast<ssize_t>(got);
    }
    errno = EAGAIN;
    if (!failed_ && (!connection_ended_ || expects_more())) return -1;
    end_found_ = true;
    if (!end_announced_) return -1;
    errno = ECONNRESET;
    return connection_ended_ ? 0 : -1;
}

bool UcxStream::expects_more() const {
    // A process that was killed has left no total.
    return connection_ended_ && !failed_ && (!has_total_ || received_ < total_) &&
           Clock::now() < connection_end_ + kPatience;
}

void UcxStream::read_words() {
    while (!connection_ended_) {
        const ssize_t got =
            ::recv(socket_, word_.data() + word_bytes_, word_.size() - word_bytes_, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            connection_ended_ = true;
            connection_end_ = Clock::now();
            return;
        }
        word_bytes_ += static_cast<std::size_t>(got);
        if (word_bytes_ < word_.size()) continue;
        word_bytes_ = 0;
        std::uint64_t word;
        std::memcpy(&word, word_.data(), sizeof word);
        if (word & kLast) {
            has_total_ = true;
            total_ = word & ~kLast;
            if (received_ == total_) acknowledge();
        } else if (word >= taken_ && word <= sent_) {
            taken_ = word;
        }
    }
}

void UcxStream::acknowledge() {
    acknowledged_ = received_;
    write_word(received_);
}

// A peer that sends bytes reads words when it may send no more, so few of them are on their way,
// and the kernel has room for one.
void UcxStream::write_word(std::uint64_t word) {
    static_cast<void>(::send(socket_, &word, sizeof word, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void UcxStream::send_last_word() {
    if (!failed_ && !request_) write_word(kLast | sent_);
    ::shutdown(socket_, SHUT_WR);
}

bool UcxStream::is_done() const {
    return failed_ || connection_ended_ || has_total_ || taken_ == sent_;
}

void UcxStream::drop() {
    if (!endpoint_) return;
    if (chunk_) ucx_.stream_data_release(endpoint_, const_cast<std::byte*>(chunk_));
    chunk_ = nullptr;
    ucx::RequestParams params{};
    params.op_attr_mask = params.kFlags;
    params.flags = params.kCloseForce;
    void* const given = ucx_.ep_close_nbx(endpoint_, &params);
    if (ucx::is_request(given)) closing_ = given;
    endpoint_ = nullptr;
    failed_ = true;
}

bool UcxStream::is_dropped() {
    if (closing_ && ucx_.request_check_status(closing_) != ucx::kInProgress) {
        ucx_.request_free(closing_);
        closing_ = nullptr;
    }
    return !closing_ && !is_sending();
}

}  // namespace afflux::carriers

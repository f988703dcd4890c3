// A stream to one member over an endpoint of UCX.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "carriers/carrier.hpp"
#include "carriers/ucx_library.hpp"

namespace afflux::carriers {

// UCX takes bytes in as they come, though nobody asks for them, so a stream limits how many may be
// on their way. Nor does it say where a stream ends. So words of 64 bits go over the TCP connection
// in each direction: how many bytes have been received in all, and last, with the highest bit set,
// how many were sent in all.
//
// Received bytes are copied out of UCX's memory. It could write them itself where they belong, but
// does not take such a request back, and it would write into a tensor after an operation failed.
class UcxStream final : public Stream {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint64_t kWindow = std::uint64_t{4} << 20;
    // In front of more bytes than this a short first vector goes alone. It leaves then, whatever
    // becomes of the rest.
    static constexpr std::size_t kLong = std::size_t{32} << 10, kShort = std::size_t{1} << 10;

    // The socket stays the caller's.
    UcxStream(const UcxLibrary& ucx, int socket) : ucx_(ucx), socket_(socket) {}
    UcxStream(const UcxStream&) = delete;
    UcxStream& operator=(const UcxStream&) = delete;

    ucx::Status connect(void* worker, const void* address);
    ssize_t send(const iovec* vectors, std::size_t count) override;
    ssize_t receive(const iovec* vectors, std::size_t count) override;

    int socket() const { return socket_; }
    void read_words();
    // Whether a call has found the end. It is returned only after `announce_end`, so that a lane
    // looks at the other streams before.
    bool end_waits() const { return end_found_ && !end_announced_; }
    void announce_end() { end_announced_ = failed_ || connection_ended_; }
    // Whether the TCP connection has ended, in the direction from the member.
    bool connection_ended() const { return connection_ended_; }
    // It has, but bytes that were sent before may still come.
    bool expects_more() const;
    std::uint64_t sent() const { return sent_; }
    // Whether bytes are on their way from memory of the caller.
    bool is_sending();
    // Tells the member how many bytes were sent, and ends the TCP connection behind that.
    void send_last_word();
    // Whether the member has all that was sent, or wants nothing more.
    bool is_done() const;
    // Gives the endpoint up. Sends end soon, with an error.
    void drop();
    // Whether `drop` is over.
    bool is_dropped();

  private:
    static void failed(void* self, void* endpoint, ucx::Status status);
    bool next_chunk();
    void write_word(std::uint64_t word);
    void acknowledge();

    const UcxLibrary& ucx_;
    const int socket_;
    void* endpoint_ = nullptr;
    bool failed_ = false, end_found_ = false, end_announced_ = false;
    // Sending: a request of so many bytes, and what has left before it or with it.
    void* request_ = nullptr;
    std::size_t request_bytes_ = 0;
    std::uint64_t sent_ = 0, taken_ = 0;  // the member has taken so many
    // Receiving: a part that came, and what of it was taken.
    const std::byte* chunk_ = nullptr;
    std::size_t chunk_bytes_ = 0, chunk_taken_ = 0;
    std::uint64_t received_ = 0, acknowledged_ = 0;
    // Words.
    std::array<std::byte, sizeof(std::uint64_t)> word_{};
    std::size_t word_bytes_ = 0;
    bool has_total_ = false;
    std::uint64_t total_ = 0;
    bool connection_ended_ = false;
    Clock::time_point connection_end_{};
    void* closing_ = nullptr;
};

}  // namespace afflux::carriers

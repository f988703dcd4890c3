// The carrier of a lane's streams: bytes to each member and from it, in order.
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace afflux::carriers {

// A stream to one member, and from it. Neither call waits.
class Stream {
  public:
    virtual ~Stream() = default;

    // As sendmsg: how many bytes have left, or -1 and `errno`, which is EAGAIN if none can leave
    // now. The call is then repeated with the same vectors, whose memory stays until it returns a
    // number: the bytes may be on their way.
    virtual ssize_t send(const iovec* vectors, std::size_t count) = 0;
    // As recvmsg: how many bytes have come, 0 at the end, or -1 and `errno`. It writes to memory
    // only while it runs.
    virtual ssize_t receive(const iovec* vectors, std::size_t count) = 0;
};

// The streams of one lane, by member. Used by one thread at a time.
class LaneCarrier {
  public:
    virtual ~LaneCarrier() = default;

    // How many members there are, of which the own one has no stream.
    virtual std::size_t members() const = 0;
    virtual Stream* stream(std::size_t member) = 0;

    // Takes what has come, before the streams are asked. Returns whether anything has, or has left;
    // all streams are to be asked then.
    virtual bool progress() { return false; }
    // Whether all that was sent leaves without further calls.
    virtual bool flushed() { return true; }
    // Waits for that, a second at most, and drops what has not left: afterwards nothing refers to
    // memory that was given to `send`.
    virtual void release() {}

    // For a wait in `poll`: the socket of a member, -1 for the own one, and its events. Before it
    // `arm` is asked; the wait is in vain if it returns false. `descriptor` is readable when
    // something has come that does not come by a socket; -1 if there is nothing such.
    virtual int socket(std::size_t member) const = 0;
    // The wait need not end for fewer of the member's bytes than these, which are sure to come.
    virtual void expect(std::size_t, std::size_t) {}
    virtual short events(std::size_t member, bool input, bool output) const = 0;
    virtual bool arm() { return true; }
    virtual int descriptor() const { return -1; }
    // The socket has become readable.
    virtual void readable(std::size_t) {}

    // After `release` nothing is sent any more: the members find the end behind all that was.
    virtual void end() = 0;
    // Leaves, with what the members still need.
    virtual void close() {}
};

}  // namespace afflux::carriers

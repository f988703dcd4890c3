#include "costs/stages.hpp"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "datagrams/receiver.hpp"
#include "datagrams/send_batch.hpp"
#include "datagrams/udp_socket.hpp"
#include "engine/slots.hpp"
#include "packet/frame.hpp"
#include "packet/packet_buffer.hpp"

namespace afflux::costs {
namespace {

constexpr std::uint32_t kLoopback = 0x7F000001;
constexpr std::size_t kBufferBytes = 8 << 20;
// As much as a receiver takes with one call.
constexpr std::size_t kArrivedBytes = 1 << 19;
constexpr int kWaitMs = 100;
// Waits for packets that are lost, which a loopback interface does when memory is short.
constexpr int kWaits = 20;

double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The processor time of a thread since it was made, less one reading of the clock.
class Watch {
  public:
    double seconds() const { return std::max(0.0, thread_seconds() - begin_ - look()); }

  private:
    static double look() {
        static const double seconds = [] {
            constexpr int kLooks = 1000;
            const double begin = thread_seconds();
            for (int i = 0; i < kLooks; ++i) thread_seconds();
            return (thread_seconds() - begin) / kLooks;
        }();
        return seconds;
    }

    double begin_ = thread_seconds();
};

void check(std::size_t lanes) {
    if (lanes < 1 || lanes > wire::kLanesMax) {
        throw std::invalid_argument("packets have 1 to 16 lanes");
    }
}

std::uint64_t block_bytes(std::size_t lanes, std::size_t packets) {
    return packets * lanes * wire::kBlockBytes;
}

std::size_t packets_for(std::size_t lanes, std::size_t bytes) {
    const std::size_t each = lanes * wire::kBlockBytes;
    return std::max<std::size_t>(1, (bytes + each - 1) / each);
}

// Packets with something in them, one behind the other, as the kernel has joined them.
std::vector<std::uint8_t> arrived(std::size_t datagram_bytes) {
    std::vector<std::uint8_t> made(kArrivedBytes / datagram_bytes * datagram_bytes);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::uint8_t>(i * 31);
    return made;
}

}  // namespace

double counter_hz() {
#if defined(__x86_64__)
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const std::uint64_t first = __rdtsc();
    std::chrono::duration<double> passed{};
    while (passed.count() < 0.02) passed = Clock::now() - begin;
    return static_cast<double>(__rdtsc() - first) / passed.count();
#else
    return 0;
#endif
}

Cost copy_packets(std::size_t lanes, std::size_t bytes) {
    check(lanes);
    const std::size_t length = packet::datagram_bytes(lanes);
    const std::vector<std::uint8_t> source = arrived(length);
    const std::size_t packets = packets_for(lanes, bytes);
    packet::PacketBuffer packet;
    const auto copy = [&](std::size_t count) {
        for (std::size_t i = 0, at = 0; i < count; ++i, at += length) {
            if (at == source.size()) at = 0;
            std::memcpy(packet.datagram(), source.data() + at, length);
            // It is read next.
            asm volatile("" : : "r"(packet.datagram()) : "memory");
        }
    };
    copy(source.size() / length);
    const Watch watch;
    copy(packets);
    return {watch.seconds(), block_bytes(lanes, packets), 0};
}

Cost merge_packets(unsigned workers, std::size_t lanes, std::size_t slots, std::size_t bytes) {
    check(lanes);
    if (workers < 1 || workers > wire::kWorkersMax || slots < 1) {
        throw std::invalid_argument("a job has 1 to 64 workers and a slot");
    }
    const std::size_t length = packet::datagram_bytes(lanes);
    const std::vector<std::uint8_t> source = arrived(length);
    engine::SlotPool pool(slots, wire::kLanesMax);
    for (std::size_t slot = 0; slot < slots; ++slot) pool.reset(slot, 0, 0);
    packet::Header header{};
    header.version_type = packet::version_type(wire::Type::Data);
    header.present = static_cast<wire::Present>((1U << lanes) - 1);
    const std::size_t rounds =
        std::max<std::size_t>(1, packets_for(lanes, bytes) / (slots * workers));
    std::size_t at = 0;
    const auto merge = [&] {
        for (unsigned worker = 0; worker < workers; ++worker) {
            for (std::size_t slot = 0; slot < slots; ++slot, at += length) {
                if (at == source.size()) at = 0;
                const engine::Packet packet{header, source.data() + at + wire::kHeaderBytes};
                if (worker == 0) {
                    pool.open(slot, packet);
                } else {
                    pool.merge_words(slot, packet);
                }
                pool.add(slot, packet);
            }
        }
        ++header.round;
    };
    merge();
    merge();
    const Watch watch;
    for (std::size_t i = 0; i < rounds; ++i) merge();
    return {watch.seconds(), block_bytes(lanes, rounds * slots * workers), 0};
}

Exchange exchange_packets(std::size_t lanes, std::size_t at_once, std::size_t bytes, bool gathered,
                          bool offloads) {
    check(lanes);
    if (at_once < 1) throw std::invalid_argument("at least one packet is sent at once");
    datagrams::UdpSocket from, to;
    from.enlarge(kBufferBytes);
    to.enlarge(kBufferBytes);
    to.bind({kLoopback, 0});
    from.bind({kLoopback, 0});
    from.connect(to.own_address());
    const bool joined = offloads && to.coalesce();
    const std::size_t length = packet::datagram_bytes(lanes);
    std::vector<packet::PacketBuffer> packets(at_once);
    datagrams::SendBatch batch(from, offloads);
    datagrams::Receiver receiver(packet::datagram_bytes(wire::kLanesMax), joined);
    const auto put = [&] {
        for (packet::PacketBuffer& each : packets) {
            const datagrams::Part whole(each.datagram(), length);
            if (gathered) {
                batch.add({}, {whole.first(wire::kHeaderBytes), whole.subspan(wire::kHeaderBytes)});
            } else {
                batch.add({}, {whole});
            }
        }
    };
    const auto take = [&] {
        std::size_t left = at_once;
        for (int waits = 0; left > 0;) {
            const std::size_t got = receiver.receive(to).size();
            left -= std::min(left, got);
            if (got > 0) continue;
            pollfd readable{to.number(), POLLIN, 0};
            if (poll(&readable, 1, kWaitMs) == 0 && ++waits == kWaits) {
                throw std::runtime_error("packets to the own loopback interface do not arrive");
            }
        }
    };
    // The receive buffer holds them all.
    put();
    batch.flush();
    take();
    const std::uint64_t sent = batch.traffic().calls, received = receiver.traffic().calls;
    const std::size_t rounds = std::max<std::size_t>(1, packets_for(lanes, bytes) / at_once);
    Exchange found;
    for (std::size_t i = 0; i < rounds; ++i) {
        const Watch joining;
        put();
        found.join.seconds += joining.seconds();
        const Watch sending;
        batch.flush();
        found.send.seconds += sending.seconds();
        const Watch receiving;
        take();
        found.receive.seconds += receiving.seconds();
    }
    found.join.bytes = found.send.bytes = found.receive.bytes =
        block_bytes(lanes, rounds * at_once);
    found.send.calls = batch.traffic().calls - sent;
    found.receive.calls = receiver.traffic().calls - received;
    return found;
}

Cost empty_calls(std::size_t calls) {
    datagrams::UdpSocket socket;
    socket.bind({kLoopback, 0});
    datagrams::Receiver receiver(packet::datagram_bytes(wire::kLanesMax), true);
    receiver.receive(socket);
    const Watch watch;
    for (std::size_t i = 0; i < calls; ++i) receiver.receive(socket);
    return {watch.seconds(), 0, calls};
}

}  // namespace afflux::costs

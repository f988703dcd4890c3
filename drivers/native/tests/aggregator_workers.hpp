// A server on loopback and the workers of a job, for test programs: one thread plays all workers,
// as plainly as possible.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "aggregator/server.hpp"
#include "datagrams/receiver.hpp"
#include "datagrams/send_batch.hpp"
#include "packet/octets.hpp"
#include "packet/packet_buffer.hpp"
#include "tests/check.hpp"

namespace afflux::tests {

constexpr std::uint32_t kLoopback = 0x7F000001;
constexpr std::uint64_t kKey = 0x0123'4567'89AB'CDEF;
constexpr wire::Round kFirst = 0xFFFF'FFF0;

struct Shape {
    unsigned workers;
    unsigned lanes;
    unsigned slots;
    unsigned job = 1;
    unsigned slot_base = 3;
};

// As `afflux serve` has it.
constexpr engine::Limits kLimits{.workers = 64, .lanes = 16, .jobs = 64, .slots = 2048};

// An engine with a job, served by a thread for each share.
class Served {
  public:
    Served(const Shape& shape, unsigned shares, const datagrams::Address& loopback = {kLoopback, 0})
        : engine_(kLimits, shares) {
        std::vector<int> numbers;
        for (unsigned i = 0; i < shares; ++i) {
            sockets_.emplace_back(loopback.family());
            sockets_.back().enlarge(16 << 20);
            if (shares > 1) sockets_.back().set(SOL_SOCKET, SO_REUSEPORT, "shared port", 1);
            sockets_.back().bind(i == 0 ? loopback : address());
            numbers.push_back(sockets_.back().number());
        }
        using registers::Address;
        set(Address::LocalAddress, kLoopback);
        set(Address::LocalPort, address().port());
        server_ = std::make_unique<aggregator::Server>(engine_, numbers);
        create(shape);
        processor_seconds_.resize(shares);
        for (unsigned i = 0; i < shares; ++i) {
            threads_.emplace_back([this, i] {
                server_->serve(i);
                timespec used;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
                processor_seconds_[i] =
                    static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
            });
        }
    }

    ~Served() { stop(); }

    void stop() {
        server_->stop();
        for (std::thread& thread : threads_) {
            if (thread.joinable()) thread.join();
        }
    }

    void create(const Shape& shape) {
        using registers::Address;
        set(Address::JobIndex, shape.job);
        set(Address::JobKeyLow, static_cast<std::uint32_t>(kKey));
        set(Address::JobKeyHigh, kKey >> 32);
        set(Address::JobWorkers, shape.workers);
        set(Address::JobLanes, shape.lanes);
        set(Address::JobSlotBase, shape.slot_base);
        set(Address::JobSlotCount, shape.slots);
        set(Address::JobRound, kFirst);
        set(Address::JobCommand, static_cast<std::uint32_t>(registers::Command::Create));
    }

    void set(registers::Address address, std::uint32_t value) {
        engine_.write(static_cast<std::uint32_t>(address), value);
    }

    std::uint64_t counter(registers::Counter number) {
        const auto at = static_cast<std::uint32_t>(registers::kCounterBase +
                                                   8 * static_cast<std::size_t>(number));
        const std::uint64_t low = engine_.read(at);
        return std::uint64_t{engine_.read(at + 4)} << 32 | low;
    }

    datagrams::Address address() const { return sockets_[0].own_address(); }
    aggregator::Server::Totals totals() const { return server_->totals(); }
    // Of each thread, once stopped.
    const std::vector<double>& processor_seconds() const { return processor_seconds_; }

  private:
    engine::Engine engine_;
    std::vector<datagrams::UdpSocket> sockets_;
    std::unique_ptr<aggregator::Server> server_;
    std::vector<double> processor_seconds_;
    std::vector<std::thread> threads_;
};

class Workers {
  public:
    // `ranges`: packets of slots in different ranges are not joined, so that with as many threads
    // none gets another's.
    Workers(const Shape& shape, const datagrams::Address& server, bool offloads = true,
            unsigned ranges = 1)
        : shape_(shape) {
        for (unsigned i = 0; i < shape.workers; ++i) {
            workers_.push_back(std::make_unique<Worker>(shape, server, offloads, ranges));
        }
    }

    void join() {
        for (unsigned i = 0; i < shape_.workers; ++i) {
            Worker& worker = *workers_[i];
            std::uint8_t* packet = compose(worker, i, 0, wire::Type::Join, 0, 0);
            bool joined = false;
            while (!joined) {
                worker.batches[0].add({}, {datagrams::Part(packet, wire::kUdpPayloadMin)});
                CHECK(worker.batches[0].flush());
                wait(worker);
                for (const datagrams::Datagram& each : worker.receiver.receive(worker.socket)) {
                    if (packet::load_header(each.data).type() != wire::Type::Joined) continue;
                    const std::uint8_t* words = each.data + wire::kHeaderBytes;
                    CHECK(packet::load<std::uint32_t>(words) == shape_.workers);
                    CHECK(packet::load<std::uint32_t>(words + 4) == shape_.lanes);
                    CHECK(packet::load<std::uint32_t>(words + 8) == shape_.slots);
                    joined = true;
                }
            }
        }
    }

    // Adds so many rounds of full packets in each slot; checks every sum.
    void run(wire::Round rounds, wire::Present present) {
        const wire::Round end = next_ + rounds;
        std::size_t left = 0;
        for (unsigned i = 0; i < shape_.workers; ++i) {
            for (unsigned s = 0; s < shape_.slots; ++s, ++left) contribute(i, s, next_, present);
            flush(*workers_[i]);
        }
        while (left > 0) {
            bool idle = true;
            for (unsigned i = 0; i < shape_.workers; ++i) {
                Worker& worker = *workers_[i];
                for (const datagrams::Datagram& each : worker.receiver.receive(worker.socket)) {
                    idle = false;
                    const packet::Header header = packet::load_header(each.data);
                    if (header.type() != wire::Type::Result) continue;
                    wire::Round& round = worker.rounds[header.slot];
                    if (header.round != round) continue;
                    check(each, header, i);
                    if (++round == end) {
                        --left;
                    } else {
                        contribute(i, header.slot, round, present);
                    }
                }
                flush(worker);
            }
            if (idle && !wait_for_any()) {
                // Something has been lost.
                for (unsigned i = 0; i < shape_.workers; ++i) {
                    for (unsigned s = 0; s < shape_.slots; ++s) {
                        const wire::Round round = workers_[i]->rounds[s];
                        if (round != end) contribute(i, s, round, present);
                    }
                    flush(*workers_[i]);
                }
            }
        }
        next_ = end;
    }

  private:
    struct Worker {
        Worker(const Shape& shape, const datagrams::Address& server, bool offloads, unsigned ranges)
            : socket(server.family()),
              receiver(packet::datagram_bytes(wire::kLanesMax), start(server, offloads)),
              batches(ranges, datagrams::SendBatch(socket, offloads)),
              rounds(shape.slots, kFirst),
              packets(shape.slots, std::vector<std::uint8_t>(packet::datagram_bytes(shape.lanes))) {
        }

        bool start(const datagrams::Address& server, bool offloads) {
            socket.enlarge(8 << 20);
            socket.connect(server);
            return offloads && socket.coalesce();
        }

        datagrams::UdpSocket socket;
        datagrams::Receiver receiver;
        std::vector<datagrams::SendBatch> batches;
        std::vector<wire::Round> rounds;  // of each slot, the one that is outstanding
        std::vector<std::vector<std::uint8_t>> packets;
    };

    std::int32_t element(unsigned worker, unsigned slot, wire::Round round) const {
        return static_cast<std::int32_t>((worker + 1) * 1000003 + (shape_.slot_base + slot) * 17 +
                                         round);
    }

    std::uint8_t* compose(Worker& worker, unsigned number, unsigned slot, wire::Type type,
                          wire::Round round, wire::Present present) {
        std::uint8_t* packet = worker.packets[slot].data();
        packet::store_header(packet, {
                                         .version_type = packet::version_type(type),
                                         .opcode_dtype = 0,
                                         .job = static_cast<wire::Job>(shape_.job),
                                         .worker = static_cast<wire::Worker>(number),
                                         .slot = static_cast<wire::Slot>(slot),
                                         .present = present,
                                         .round = round,
                                         .key = kKey,
                                         .operation = 0,
                                     });
        return packet;
    }

    void contribute(unsigned number, unsigned slot, wire::Round round, wire::Present present) {
        Worker& worker = *workers_[number];
        std::uint8_t* packet = compose(worker, number, slot, wire::Type::Data, round, present);
        const std::size_t bytes =
            packet::datagram_bytes(static_cast<std::size_t>(std::popcount(present)));
        // The first and the last element of all, so that the time is not spent here.
        if (present != 0) {
            packet::store(packet + wire::kUdpPayloadMin, element(number, slot, round));
            packet::store(packet + bytes - 4, element(number, slot, round));
        }
        worker.batches[slot * worker.batches.size() / shape_.slots].add(
            {}, {datagrams::Part(packet, bytes)});
    }

    void check(const datagrams::Datagram& result, const packet::Header& header, unsigned number) {
        CHECK(header.worker == number && header.key == kKey);
        CHECK(result.bytes == packet::datagram_bytes(header.blocks()));
        std::uint32_t sum = 0;
        for (unsigned i = 0; i < shape_.workers; ++i) {
            sum += static_cast<std::uint32_t>(element(i, header.slot, header.round));
        }
        if (header.present == 0) return;
        CHECK(packet::load<std::uint32_t>(result.data + wire::kUdpPayloadMin) == sum);
        CHECK(packet::load<std::uint32_t>(result.data + result.bytes - 4) == sum);
    }

    static void flush(Worker& worker) {
        for (datagrams::SendBatch& batch : worker.batches) {
            while (!batch.empty() && !batch.flush()) {
                pollfd writable{worker.socket.number(), POLLOUT, 0};
                poll(&writable, 1, 1000);
            }
        }
    }

    static bool wait(const Worker& worker) {
        pollfd readable{worker.socket.number(), POLLIN, 0};
        return poll(&readable, 1, 500) > 0;
    }

    bool wait_for_any() const {
        std::vector<pollfd> readable;
        for (const auto& worker : workers_) {
            readable.push_back({worker->socket.number(), POLLIN, 0});
        }
        return poll(readable.data(), readable.size(), 500) > 0;
    }

    Shape shape_;
    std::vector<std::unique_ptr<Worker>> workers_;
    wire::Round next_ = kFirst;
};

}  // namespace afflux::tests

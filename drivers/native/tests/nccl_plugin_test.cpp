// The plugin's tables, called by several nodes that are threads here: each version's, with steps in
// flight on several communicators, and tests out of order. The thread sanitizer watches.
#include <barrier>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <random>

#include "control/libcrypto.hpp"
#include "tests/nccl_aggregator.hpp"
#include "tests/nccl_tables.hpp"

using namespace afflux;
using namespace afflux::tests;

namespace {

constexpr int kInt32 = 2, kFloat32 = 7, kSum = 0, kMax = 2;
constexpr int kNodes = 3, kComms = 2, kSteps = 8;
constexpr std::size_t kHandle = 128, kMost = 3000;

void log_warning(int level, unsigned long, const char*, int, const char* format, ...) {
    constexpr int kWarn = 2;
    if (level != kWarn) return;
    std::va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
}

// The functions that differ between versions.
template <typename Table>
struct Version {
    const Table& table;

    void init() const {
        void* context = nullptr;
        if constexpr (requires { table.finalize; }) {
            CHECK(table.init(&context, 1, log_warning) == 0);
        } else {
            CHECK(table.init(log_warning) == 0);
        }
    }
    void listen(void* handle, void** out) const {
        if constexpr (requires { table.finalize; }) {
            CHECK(table.listen(nullptr, 0, handle, out) == 0);
        } else {
            CHECK(table.listen(0, handle, out) == 0);
        }
    }
};

using Handles = std::array<std::array<char, kHandle>, kNodes>;

// A communicator's end at one node, and the buffers of its proxy.
template <typename Table>
struct Comm {
    Comm(const Version<Table>& used, int own, Handles& handles, std::barrier<>& together)
        : table(used.table), rank(own), send(kSteps * kMost), receive(kSteps * kMost) {
        void* listening = nullptr;
        used.listen(handles[static_cast<std::size_t>(rank)].data(), &listening);
        together.arrive_and_wait();
        std::array<void*, kNodes> all;
        for (std::size_t i = 0; i < kNodes; ++i) all[i] = handles[i].data();
        CHECK(table.connect(all.data(), kNodes, rank, listening, &comm) == 0);
        CHECK(table.closeListen(listening) == 0);
        CHECK(table.regMr(comm, send.data(), 4 * send.size(), 1, &send_handle) == 0);
        CHECK(table.regMr(comm, receive.data(), 4 * receive.size(), 1, &receive_handle) == 0);
        together.arrive_and_wait();
    }

    void* post(std::size_t slot, std::size_t count, int dtype, int op) {
        void* request = nullptr;
        CHECK(result_of_post(slot, count, dtype, op, &request) == 0);
        CHECK(request != nullptr);
        return request;
    }

    int result_of_post(std::size_t slot, std::size_t count, int dtype, int op, void** request) {
        using Count = std::conditional_t<std::is_same_v<Table, CollNetV8>, int, std::size_t>;
        return table.iallreduce(comm, &send[slot * kMost], &receive[slot * kMost],
                                static_cast<Count>(count), dtype, op, send_handle, receive_handle,
                                request);
    }

    void wait(void* request, std::size_t bytes) {
        int done = 0, size = 0;
        for (; done == 0; std::this_thread::yield()) {
            CHECK(table.test(request, &done, &size) == 0);
        }
        CHECK(size == static_cast<int>(bytes));
    }

    void close() {
        CHECK(table.deregMr(comm, send_handle) == 0);
        CHECK(table.deregMr(comm, receive_handle) == 0);
        CHECK(table.closeColl(comm) == 0);
    }

    const Table& table;
    int rank;
    void* comm = nullptr;
    void* send_handle = nullptr;
    void* receive_handle = nullptr;
    std::vector<std::int32_t> send, receive;
};

// Small integers, whose sums are exact in both types.
std::int32_t element(int dtype, std::int32_t value) {
    const auto number = static_cast<float>(value);
    std::int32_t bits = value;
    if (dtype == kFloat32) std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

std::int32_t value_of(int rank, std::size_t i, std::int32_t seed) {
    return static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(seed)) % 1000) * (rank + 1);
}

// Eight steps, posted in order and tested in another one.
template <typename Table>
void go_round(Comm<Table>& comm, std::mt19937& random) {
    std::array<void*, kSteps> requests;
    std::array<std::size_t, kSteps> counts;
    std::array<int, kSteps> dtypes, ops;
    for (std::size_t step = 0; step < kSteps; ++step) {
        counts[step] = 1 + random() % kMost;
        dtypes[step] = random() % 2 == 0 ? kInt32 : kFloat32;
        ops[step] = random() % 2 == 0 ? kSum : kMax;
        for (std::size_t i = 0; i < counts[step]; ++i) {
            comm.send[step * kMost + i] =
                element(dtypes[step], value_of(comm.rank, i, static_cast<std::int32_t>(step)));
        }
        requests[step] = comm.post(step, counts[step], dtypes[step], ops[step]);
    }
    for (std::size_t i = 0; i < kSteps; ++i) {
        const std::size_t step = i * 3 % kSteps;
        comm.wait(requests[step], 4 * counts[step]);
        for (std::size_t at = 0; at < counts[step]; ++at) {
            const std::int32_t first = value_of(0, at, static_cast<std::int32_t>(step));
            const std::int32_t factor = ops[step] == kSum ? 1 + 2 + 3 : kNodes;
            CHECK(comm.receive[step * kMost + at] == element(dtypes[step], first * factor));
        }
    }
}

template <typename Table>
void test_rings(const Table& table, int rounds, bool streams = false, bool dies = false) {
    ControlledAggregator aggregator;
    CHECK(std::strcmp(table.name, "Afflux") == 0);
    setenv("AFFLUX_AGGREGATOR", streams ? "streams://" : aggregator.url().c_str(), 1);
    setenv("AFFLUX_INTERFACE", "lo", 1);
    const Version<Table> version{table};
    version.init();
    std::array<Handles, kComms> handles{};
    std::barrier together(kNodes);
    std::vector<std::thread> nodes;
    for (int rank = 0; rank < kNodes; ++rank) {
        nodes.emplace_back([&, rank] {
            std::vector<std::unique_ptr<Comm<Table>>> comms;
            for (Handles& each : handles) {
                comms.push_back(std::make_unique<Comm<Table>>(version, rank, each, together));
            }
            // Each communicator has a proxy of its own.
            std::vector<std::thread> proxies;
            for (const auto& each : comms) {
                proxies.emplace_back([&each, rounds] {
                    std::mt19937 random(7);
                    for (int round = 0; round < rounds; ++round) go_round(*each, random);
                });
            }
            if (dies && rank == 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(30));
                aggregator.drop();
            }
            for (std::thread& each : proxies) each.join();
            for (const auto& each : comms) each->close();
        });
    }
    for (std::thread& each : nodes) each.join();
    CHECK(dies || aggregator.jobs() == 0);
}

// A node closes with steps in flight, of which the others know nothing: all get errors, and all
// jobs end.
void test_failures(int rounds) {
    ControlledAggregator aggregator;
    setenv("AFFLUX_AGGREGATOR", aggregator.url().c_str(), 1);
    const Version<CollNetV12> version{ncclCollNetPlugin_v12};
    version.init();
    for (int round = 0; round < rounds; ++round) {
        Handles handles{};
        std::barrier together(kNodes);
        std::vector<std::thread> nodes;
        for (int rank = 0; rank < kNodes; ++rank) {
            nodes.emplace_back([&, rank] {
                Comm<CollNetV12> comm(version, rank, handles, together);
                // The last node posts less than the others.
                const std::size_t steps = rank == kNodes - 1 ? 2 : kSteps;
                void* request = nullptr;
                int result = 0, done = 0;
                // Another node may have closed by then, which posting tells, too.
                for (std::size_t step = 0; step < steps && result == 0; ++step) {
                    result = comm.result_of_post(step, 1000, kInt32, kSum, &request);
                }
                while (rank != round % 2 && result == 0 && done == 0) {
                    result = comm.table.test(request, &done, nullptr);
                    std::this_thread::yield();
                }
                // Only what the last node has posted, too, can be over.
                CHECK(rank == kNodes - 1 || rank == round % 2 || result != 0);
                comm.close();
            });
        }
        for (std::thread& each : nodes) each.join();
    }
    CHECK(aggregator.jobs() == 0);
}

void test_transfers() {
    const NetV12& net = ncclNetPlugin_v12;
    constexpr std::size_t kBytes = 3 << 20, kMessages = 24;
    std::array<char, kHandle> handle{};
    void *context = nullptr, *listening = nullptr, *sending = nullptr, *receiving = nullptr;
    CHECK(net.init(&context, 1, nullptr, log_warning, nullptr) == 0);
    CHECK(net.listen(context, 0, handle.data(), &listening) == 0);
    while (sending == nullptr || receiving == nullptr) {
        void* device = &context;
        if (sending == nullptr) {
            CHECK(net.connect(context, 0, handle.data(), &sending, &device) == 0);
        }
        if (receiving == nullptr) CHECK(net.accept(listening, &receiving, &device) == 0);
        CHECK(device == nullptr);
    }
    CHECK(net.closeListen(listening) == 0);
    const auto size_of = [](std::size_t message) { return message * message * 5003 % kBytes; };
    std::thread sender([&] {
        std::vector<std::vector<char>> messages;
        std::vector<void*> requests;
        for (std::size_t i = 0; i < kMessages; ++i) {
            auto& each = messages.emplace_back(size_of(i));
            for (std::size_t at = 0; at < each.size(); ++at)
                each[at] = static_cast<char>(at / 64 + i);
            CHECK(net.isend(sending, each.data(), each.size(), 0, nullptr, nullptr,
                            &requests.emplace_back()) == 0);
        }
        for (void* const each : requests) {
            for (int done = 0; done == 0;) CHECK(net.test(each, &done, nullptr) == 0);
        }
    });
    std::vector<char> room(kBytes);
    for (std::size_t i = 0; i < kMessages; ++i) {
        void *data = room.data(), *request = nullptr, *memory = nullptr;
        std::size_t bytes = room.size();
        int tag = 0, done = 0, size = -1;
        CHECK(net.irecv(receiving, 1, &data, &bytes, &tag, &memory, nullptr, &request) == 0);
        while (done == 0) CHECK(net.test(request, &done, &size) == 0);
        CHECK(size == static_cast<int>(size_of(i)));
        for (std::size_t at = 0; at < size_of(i); ++at) {
            CHECK(room[at] == static_cast<char>(at / 64 + i));
        }
    }
    sender.join();
    // A message that cannot come any more is an error, and no success.
    CHECK(net.closeSend(sending) == 0);
    void *data = room.data(), *request = nullptr, *memory = nullptr;
    std::size_t bytes = room.size();
    int tag = 0, done = 0, size = -1;
    int result = net.irecv(receiving, 1, &data, &bytes, &tag, &memory, nullptr, &request);
    while (result == 0 && done == 0) result = net.test(request, &done, &size);
    CHECK(result != 0 && done == 0);
    CHECK(net.closeRecv(receiving) == 0);
}

}  // namespace

// A process reads its environment once, so each version has one: its number is the argument. 0
// stands for failures, 1 for streams, 2 for an aggregator that dies.
int main(int count, char** arguments) {
    try {
        control::hmac_sha256("", "");
    } catch (const control::NotAuthenticated& error) {
        std::printf("no communicator can be formed, so nothing is tested: %s\n", error.what());
        return 0;
    }
    const int version = count > 1 ? std::atoi(arguments[1]) : 12;
    constexpr int kRounds = 20;
    switch (version) {
        case 1:
            test_rings(ncclCollNetPlugin_v12, kRounds, true);
            break;
        case 2:
            test_rings(ncclCollNetPlugin_v12, 5 * kRounds, false, true);
            break;
        case 8:
            test_rings(ncclCollNetPlugin_v8, kRounds);
            break;
        case 9:
            test_rings(ncclCollNetPlugin_v9, kRounds);
            break;
        case 10:
            test_rings(ncclCollNetPlugin_v10, kRounds);
            break;
        case 11:
            test_rings(ncclCollNetPlugin_v11, kRounds);
            break;
        case 0:
            test_failures(kRounds);
            break;
        default:
            test_rings(ncclCollNetPlugin_v12, kRounds);
            test_transfers();
    }
}

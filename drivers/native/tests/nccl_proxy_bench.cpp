// One node of an all-reduce as NCCL's proxy carries it out, through the tables of any network
// plugin, version 12. benchmarks/network/nccl_nodes.py starts one for each node, and carries their
// handles.
//
//     nccl_proxy_bench LIBRARY collnet|ring RANK RANKS
//
// It prints `handles` and its handles in hexadecimal, reads a line with those of all nodes by rank,
// and prints `ready`. Then it reads lines of bytes and calls, makes so many all-reduces one after
// the other, and prints `took`, the seconds, and the seconds of processor time of its threads. It
// ends with its standard input.
//
// Nothing is added here and no kernel runs: a GPU does that beside the proxy. `collnet` fills its
// slots, which the plugin clears, and looks at the sums. `ring` sends as much as NCCL's ring does,
// in slices as long, with the simple protocol.
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/nccl_tables.hpp"

using namespace afflux::tests;

namespace {

constexpr std::size_t kHandle = 128;
constexpr int kHost = 1, kFloat32 = 7, kSum = 0;
constexpr int kWarn = 2;
// NCCL's: a buffer of 4 MiB is 8 steps, of which a slice is 2 and a chunk 4. It does not split
// sizes of less than 64 KiB among channels.
constexpr std::size_t kStep = 512 << 10, kSlice = 2 * kStep, kChunk = 4 * kStep;
constexpr std::size_t kSlots = 8, kSlices = 4, kChannels = 2, kOneChannel = 64 << 10;

using Bytes = std::vector<std::byte>;
using Handle = std::array<char, kHandle>;

void log(int level, unsigned long, const char*, int, const char* format, ...) {
    if (level != kWarn) return;
    va_list values;
    va_start(values, format);
    std::vfprintf(stderr, format, values);
    std::fputc('\n', stderr);
    va_end(values);
}

void check(int result, const char* what) {
    if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
}

std::string hexadecimal(const Handle& handle) {
    std::string text;
    for (const char each : handle) {
        std::array<char, 3> two{};
        std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned char>(each));
        text += two.data();
    }
    return text;
}

Handle from_hexadecimal(const std::string& text) {
    Handle made{};
    for (std::size_t i = 0; i < kHandle; ++i) {
        made[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return made;
}

template <typename Table>
const Table& table(void* library, const char* symbol) {
    const void* const found = dlsym(library, symbol);
    if (found == nullptr) throw std::runtime_error(std::string("the library lacks ") + symbol);
    return *static_cast<const Table*>(found);
}

// Prints own handles, and reads those of all nodes.
std::vector<Handle> exchanged(const std::vector<Handle>& own) {
    std::cout << "handles";
    for (const Handle& each : own) std::cout << ' ' << hexadecimal(each);
    std::cout << std::endl;
    std::string line, word;
    std::getline(std::cin, line);
    std::istringstream words(line);
    std::vector<Handle> all;
    while (words >> word) all.push_back(from_hexadecimal(word));
    return all;
}

class Node {
  public:
    virtual ~Node() = default;
    virtual void all_reduce(std::size_t bytes) = 0;
};

// Chunks through an aggregator, as CollNetChain with one GPU has them.
class CollNet : public Node {
  public:
    CollNet(void* library, int rank, int ranks, void* context)
        : table_(table<CollNetV12>(library, "ncclCollNetPlugin_v12")), ranks_(ranks) {
        int devices = 0;
        check(table_.init(&context, 1, log), "init");
        check(table_.devices(&devices), "devices");
        if (devices == 0) throw std::runtime_error("no device for collectives");
        Handle own{};
        void* listening = nullptr;
        check(table_.listen(context, 0, own.data(), &listening), "listen");
        std::vector<Handle> all = exchanged({own});
        std::vector<void*> handles;
        for (Handle& each : all) handles.push_back(each.data());
        check(table_.connect(handles.data(), ranks, rank, listening, &comm_), "connect");
        check(table_.closeListen(listening), "closeListen");
        for (Bytes* each : {&send_, &receive_}) {
            check(table_.regMr(comm_, each->data(), each->size(), kHost, &memory_.emplace_back()),
                  "regMr");
        }
        for (std::size_t i = 0; i < values_.size(); ++i) {
            values_[i] = static_cast<float>(i % 251 + 1) * static_cast<float>(rank + 1);
        }
    }
    ~CollNet() override {
        for (void* const each : memory_) table_.deregMr(comm_, each);
        table_.closeColl(comm_);
    }

    void all_reduce(std::size_t bytes) override {
        // src/enqueue.cc of NCCL, for a chain of one GPU.
        std::size_t chunk = 256 << 10;
        const auto rounds = [&] { return bytes / (kChannels * chunk); };
        while (rounds() < 64 && chunk > (128 << 10)) chunk /= 2;
        while (rounds() < 8 && chunk > (64 << 10)) chunk /= 2;
        while (rounds() < 1 && chunk > (32 << 10)) chunk /= 2;
        const std::size_t steps = (bytes + chunk - 1) / chunk;
        std::deque<std::pair<void*, std::size_t>> flying;
        for (std::size_t posted = 0, over = 0; over < steps;) {
            bool idle = true;
            if (posted < steps && flying.size() < kSlots) {
                const std::size_t slot = posted % kSlots * kStep;
                const std::size_t valid = std::min(chunk, bytes - posted * chunk);
                std::memcpy(send_.data() + slot, values_.data(), valid);
                void* request = nullptr;
                check(table_.iallreduce(comm_, send_.data() + slot, receive_.data() + slot,
                                        chunk / sizeof(float), kFloat32, kSum, memory_[0],
                                        memory_[1], &request),
                      "iallreduce");
                if (request == nullptr) throw std::runtime_error("iallreduce has no request");
                flying.emplace_back(request, slot);
                ++posted;
                idle = false;
            }
            int done = 0, size = 0;
            check(table_.test(flying.front().first, &done, &size), "test");
            if (done != 0) {
                look_at(flying.front().second, std::min(chunk, bytes - over * chunk));
                flying.pop_front();
                ++over;
                idle = false;
            }
            if (idle) sched_yield();
        }
    }

  private:
    void look_at(std::size_t slot, std::size_t valid) const {
        const std::size_t last = valid / sizeof(float) - 1;
        float found = 0;
        std::memcpy(&found, receive_.data() + slot + last * sizeof(float), sizeof found);
        if (found != static_cast<float>(last % 251 + 1) * 0.5F * static_cast<float>(ranks_) *
                         static_cast<float>(ranks_ + 1)) {
            throw std::runtime_error("a sum is wrong: " + std::to_string(found));
        }
    }

    const CollNetV12& table_;
    int ranks_;
    void* comm_ = nullptr;
    std::vector<void*> memory_;
    std::vector<float> values_ = std::vector<float>(kStep / sizeof(float));
    Bytes send_ = Bytes(kSlots * kStep), receive_ = Bytes(kSlots * kStep);
};

// A channel of a ring: a connection to the next node, and one from the node before.
class Channel {
  public:
    Channel(const NetV12& net, void* context) : net_(net), context_(context) {
        check(net_.listen(context_, 0, own_.data(), &listening_), "listen");
    }
    ~Channel() {
        net_.closeSend(sending_);
        net_.closeRecv(receiving_);
    }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    const Handle& handle() const { return own_; }

    // Goes on to connect; returns whether that is over.
    bool connect(Handle& next) {
        void* none = nullptr;
        if (sending_ == nullptr) {
            check(net_.connect(context_, 0, next.data(), &sending_, &none), "connect");
        }
        if (receiving_ == nullptr) check(net_.accept(listening_, &receiving_, &none), "accept");
        if (sending_ == nullptr || receiving_ == nullptr) return false;
        check(net_.closeListen(listening_), "closeListen");
        return true;
    }

    void begin(std::size_t bytes, std::size_t ranks) {
        slices_.clear();
        sent_ = received_ = 0;
        for (std::size_t at = 0; at < bytes;) {
            const std::size_t rest = bytes - at;
            const std::size_t chunk = std::min(kChunk, (rest + ranks - 1) / ranks);
            for (std::size_t step = 0; step < 2 * (ranks - 1); ++step) {
                const std::size_t slice = std::max(kSlice / 32, (chunk + 1) / 2);
                const std::size_t parts = slice < chunk ? 2 : 1;
                for (std::size_t part = 0; part < parts; ++part) {
                    // A step passes on what has come in the one before.
                    const std::size_t needs = step == 0 ? 0 : slices_.size() + 1 - parts;
                    slices_.push_back({part == 0 ? std::min(slice, chunk) : chunk - slice, needs});
                }
            }
            at += std::min(rest, chunk * ranks);
        }
    }

    // Posts and tests as much as it can; returns whether something has moved.
    bool progress() {
        bool moved = false;
        while (receives_.size() < kSlices && received_ + receives_.size() < slices_.size()) {
            std::byte* const room = in_.data() + (received_ + receives_.size()) % kSlices * kSlice;
            void* data = room;
            std::size_t size = kSlice;
            int tag = 0;
            void *memory = nullptr, *request = nullptr;
            check(net_.irecv(receiving_, 1, &data, &size, &tag, &memory, nullptr, &request),
                  "irecv");
            if (request == nullptr) break;
            receives_.push_back(request);
            moved = true;
        }
        while (sends_.size() < kSlices && sent_ + sends_.size() < slices_.size()) {
            const std::size_t number = sent_ + sends_.size();
            if (received_ < slices_[number].needs) break;
            void* request = nullptr;
            check(net_.isend(sending_, out_.data() + number % kSlices * kSlice,
                             slices_[number].bytes, 0, nullptr, nullptr, &request),
                  "isend");
            if (request == nullptr) break;
            sends_.push_back(request);
            moved = true;
        }
        moved |= tested(receives_, received_, true);
        moved |= tested(sends_, sent_, false);
        return moved;
    }

    bool over() const { return sent_ == slices_.size() && received_ == slices_.size(); }

  private:
    struct Slice {
        std::size_t bytes;
        std::size_t needs;  // slices that must have come before
    };

    bool tested(std::deque<void*>& requests, std::size_t& over, bool came) const {
        if (requests.empty()) return false;
        int done = 0, size = 0;
        check(net_.test(requests.front(), &done, &size), "test");
        if (done == 0) return false;
        if (came && static_cast<std::size_t>(size) != slices_[over].bytes) {
            throw std::runtime_error("a message has another size: " + std::to_string(size));
        }
        requests.pop_front();
        ++over;
        return true;
    }

    const NetV12& net_;
    void* context_;
    Handle own_{};
    void *listening_ = nullptr, *sending_ = nullptr, *receiving_ = nullptr;
    Bytes in_ = Bytes(kSlices * kSlice), out_ = Bytes(kSlices * kSlice, std::byte{1});
    std::vector<Slice> slices_;
    std::size_t sent_ = 0, received_ = 0;
    std::deque<void*> sends_, receives_;
};

class Ring : public Node {
  public:
    Ring(void* library, int rank, int ranks)
        : net_(table<NetV12>(library, "ncclNetPlugin_v12")),
          ranks_(static_cast<std::size_t>(ranks)) {
        void* context = nullptr;
        int config = -1;
        check(net_.init(&context, 1, &config, log, nullptr), "init");
        std::vector<Handle> own;
        for (std::size_t i = 0; i < kChannels; ++i) {
            channels_.push_back(std::make_unique<Channel>(net_, context));
            own.push_back(channels_.back()->handle());
        }
        std::vector<Handle> all = exchanged(own);
        const std::size_t next = (static_cast<std::size_t>(rank) + 1) % ranks_ * kChannels;
        std::array<bool, kChannels> over{};
        while (std::find(over.begin(), over.end(), false) != over.end()) {
            for (std::size_t i = 0; i < kChannels; ++i) {
                over[i] = over[i] || channels_[i]->connect(all[next + i]);
            }
            sched_yield();
        }
    }

    void all_reduce(std::size_t bytes) override {
        const std::size_t used = bytes < kOneChannel ? 1 : kChannels;
        for (std::size_t i = 0; i < used; ++i) channels_[i]->begin(bytes / used, ranks_);
        for (bool over = false; !over;) {
            bool moved = false;
            over = true;
            for (std::size_t i = 0; i < used; ++i) {
                moved |= channels_[i]->progress();
                over = over && channels_[i]->over();
            }
            if (!moved) sched_yield();
        }
    }

  private:
    const NetV12& net_;
    std::size_t ranks_;
    std::vector<std::unique_ptr<Channel>> channels_;
};

double processor_s() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int run(const std::string& path, const std::string& way, int rank, int ranks) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    std::unique_ptr<Node> node;
    if (way == "ring") {
        node = std::make_unique<Ring>(library, rank, ranks);
    } else {
        // NCCL initialises Net before.
        void *context = nullptr, *network = nullptr;
        int config = -1;
        check(table<NetV12>(library, "ncclNetPlugin_v12").init(&network, 1, &config, log, nullptr),
              "init");
        node = std::make_unique<CollNet>(library, rank, ranks, context);
    }
    std::cout << "ready" << std::endl;
    for (std::size_t bytes, calls; std::cin >> bytes >> calls;) {
        const double before = processor_s();
        const auto began = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < calls; ++i) node->all_reduce(bytes);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        std::cout << "took " << took.count() << ' ' << processor_s() - before << std::endl;
    }
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (count != 5) throw std::runtime_error("LIBRARY collnet|ring RANK RANKS");
        return run(arguments[1], arguments[2], std::atoi(arguments[3]), std::atoi(arguments[4]));
    } catch (const std::exception& error) {
        std::cerr << "nccl_proxy_bench: " << error.what() << std::endl;
        return 1;
    }
}

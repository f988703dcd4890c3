// The software engine behind plain C functions, so that a test can build it with a fault in it.
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "engine/soft_engine.hpp"

using afflux::engine::SoftEngine;
using afflux::engine::Limits;
using afflux::engine::SendQueue;

namespace {

struct Handle {
    SoftEngine engine;
    std::vector<std::uint8_t> sent;
};

thread_local std::string problem;

// Calls, and keeps the text of what it throws.
template <typename Call>
auto guarded(Call call) -> decltype(call()) {
    problem.clear();
    try {
        return call();
    } catch (const std::exception& error) {
        problem = error.what();
        return {};
    }
}

}  // namespace

extern "C" {

// The error of the last call; empty if nothing.
const char* engine_problem() {
    return problem.c_str();
}

Handle* engine_new(unsigned workers, unsigned lanes, unsigned jobs, unsigned slots) {
    const Limits limits{workers, lanes, jobs, slots};
    return guarded([&] { return new Handle{SoftEngine(limits), {}}; });
}

void engine_delete(Handle* handle) {
    delete handle;
}

std::uint32_t engine_read(Handle* handle, std::uint32_t address) {
    return handle->engine.read(address);
}

int engine_write(Handle* handle, std::uint32_t address, std::uint32_t value) {
    return guarded([&] {
        handle->engine.write(address, value);
        return 0;
    });
}

int engine_receive(Handle* handle, const std::uint8_t* frame, std::size_t bytes) {
    return guarded([&] {
        handle->engine.receive({frame, bytes});
        return 0;
    });
}

// Gives the frames sent, each after its length in 32 bits; returns their octets together.
std::size_t engine_send(Handle* handle, const std::uint8_t** frames) {
    SendQueue& queue = handle->engine.send();
    handle->sent.clear();
    for (const SendQueue::Frame& frame : queue.frames()) {
        const auto bytes = static_cast<std::uint32_t>(frame.bytes());
        const std::size_t at = handle->sent.size();
        handle->sent.resize(at + sizeof bytes + bytes);
        std::uint8_t* to = handle->sent.data() + at;
        std::memcpy(to, &bytes, sizeof bytes);
        std::memcpy(to + sizeof bytes, frame.head.data(), frame.head.size());
        std::memcpy(to + sizeof bytes + frame.head.size(), queue.body(frame), frame.body_bytes);
        std::memcpy(to + sizeof bytes + frame.head.size() + frame.body_bytes, frame.seal.data(),
                    frame.seal.size());
    }
    queue.clear();
    *frames = handle->sent.data();
    return handle->sent.size();
}
}

// The software engine for Python, with frames as bytes and registers by address.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "bindings/parts.hpp"
#include "engine/soft_engine.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using engine::Limits;
using engine::SendQueue;
using engine::SoftEngine;
using packet::Octets;

nb::bytes to_bytes(const SendQueue& queue, const SendQueue::Frame& frame) {
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(frame.bytes()));
    if (bytes == nullptr) throw nb::python_error();
    char* at = PyBytes_AS_STRING(bytes);
    at = std::copy(frame.head.begin(), frame.head.end(), at);
    std::copy_n(queue.body(frame), frame.body_bytes, at);
    return nb::steal<nb::bytes>(bytes);
}

// Works without the interpreter's lock, so it needs one of its own.
class LockedEngine {
  public:
    LockedEngine(const Limits& limits, unsigned shares) : engine_(limits, shares) {}

    std::vector<nb::bytes> play(const std::vector<nb::bytes>& frames) {
        std::vector<Octets> octets;
        octets.reserve(frames.size());
        for (const nb::bytes& frame : frames) {
            octets.push_back({static_cast<const std::uint8_t*>(frame.data()), frame.size()});
        }
        const SendQueue sent = play_unlocked(octets);
        std::vector<nb::bytes> answers;
        answers.reserve(sent.frames().size());
        for (const SendQueue::Frame& frame : sent.frames())
            answers.push_back(to_bytes(sent, frame));
        return answers;
    }

    std::uint32_t read(std::uint32_t address) {
        const nb::gil_scoped_release no_python;
        const std::lock_guard alone(mutex_);
        return engine_.read(address);
    }

    void write(std::uint32_t address, std::uint32_t value) {
        const nb::gil_scoped_release no_python;
        const std::lock_guard alone(mutex_);
        engine_.write(address, value);
    }

  private:
    SendQueue play_unlocked(const std::vector<Octets>& frames) {
        const nb::gil_scoped_release no_python;
        const std::lock_guard alone(mutex_);
        for (const Octets& frame : frames) engine_.receive(frame);
        return std::exchange(engine_.send(), {});
    }

    SoftEngine engine_;
    std::mutex mutex_;
};

}  // namespace

void bind_engine(nb::module_& module) {
    nb::class_<LockedEngine>(module, "SoftEngine", "The software engine. Thread-safe.")
        .def(
            "__init__",
            [](LockedEngine* self, unsigned workers, unsigned lanes, unsigned jobs, unsigned slots,
               unsigned shares) {
                new (self) LockedEngine(Limits{workers, lanes, jobs, slots}, shares);
            },
            nb::arg("workers") = Limits{}.workers, nb::arg("lanes") = Limits{}.lanes,
            nb::arg("jobs") = Limits{}.jobs, nb::arg("slots") = Limits{}.slots,
            nb::arg("shares") = 1)
        .def("play", &LockedEngine::play, nb::arg("frames"),
             "Take frames one after the other; return all frames sent, in order.")
        .def("read", &LockedEngine::read, nb::arg("address"), "Read a register.")
        .def("write", &LockedEngine::write, nb::arg("address"), nb::arg("value"),
             "Write a register.");
}

}  // namespace afflux::bindings

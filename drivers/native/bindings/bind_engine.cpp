// The software engine for Python, with frames as bytes and registers by address.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bindings/locked_engine.hpp"
#include "bindings/parts.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using engine::Limits;
using engine::SendQueue;
using packet::Octets;

nb::bytes to_bytes(const SendQueue& queue, const SendQueue::Frame& frame) {
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(frame.bytes()));
    if (bytes == nullptr) throw nb::python_error();
    char* at = PyBytes_AsString(bytes);
    at = std::copy(frame.head.begin(), frame.head.end(), at);
    at = std::copy_n(queue.body(frame), frame.body_bytes, at);
    std::copy(frame.seal.begin(), frame.seal.end(), at);
    return nb::steal<nb::bytes>(bytes);
}

}  // namespace

std::vector<nb::bytes> LockedEngine::play(const std::vector<nb::bytes>& frames) {
    std::vector<Octets> octets;
    octets.reserve(frames.size());
    for (const nb::bytes& frame : frames) {
        octets.push_back({static_cast<const std::uint8_t*>(frame.data()), frame.size()});
    }
    const SendQueue sent = play_unlocked(octets);
    std::vector<nb::bytes> answers;
    answers.reserve(sent.frames().size());
    for (const SendQueue::Frame& frame : sent.frames()) answers.push_back(to_bytes(sent, frame));
    return answers;
}

void bind_engine(nb::module_& module) {
    nb::class_<LockedEngine>(module, "SoftEngine", "The software engine. Thread-safe.")
        .def(
            "__init__",
            [](LockedEngine* self, unsigned workers, unsigned lanes, unsigned jobs, unsigned slots,
               unsigned shares, int partial_bits) {
                const Limits limits{workers, lanes, jobs, slots, partial_bits};
                new (self) LockedEngine(limits, shares);
            },
            nb::arg("workers") = Limits{}.workers, nb::arg("lanes") = Limits{}.lanes,
            nb::arg("jobs") = Limits{}.jobs, nb::arg("slots") = Limits{}.slots,
            nb::arg("shares") = 1, nb::arg("partial_bits") = Limits{}.partial_bits)
        .def_prop_ro(
            "shares", [](LockedEngine& self) { return self.engine().shares(); },
            "Cores that share the slots.")
        .def("play", &LockedEngine::play, nb::arg("frames"),
             "Take frames one after the other; return all frames sent, in order.")
        .def("read", &LockedEngine::read, nb::arg("address"), "Read a register.")
        .def("write", &LockedEngine::write, nb::arg("address"), nb::arg("value"),
             "Write a register.");
}

}  // namespace afflux::bindings

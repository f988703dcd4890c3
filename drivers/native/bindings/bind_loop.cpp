// The loop that runs a worker's dialogues without the interpreter's lock, and its calls from C++.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c_api_capsule.hpp"
#include "bindings/parts.hpp"
#include "worker/c_api.hpp"
#include "worker/operation.hpp"
#include "worker/session.hpp"
#include "worker/udp_loop.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using worker::LossSwitch;
using worker::Session;

// A line that keeps the dialogue on it.
class BoundLine final : public worker::Line {
  public:
    using Line::Line;

    void open(const nb::object& dialogue) {
        held_ = dialogue;
        worker::Dialogue& opened = nb::cast<worker::Dialogue&>(dialogue);
        const nb::gil_scoped_release release;
        Line::open(opened);
    }

    void drop_if_idle() {
        if (idle()) held_.reset();
    }

  private:
    nb::object held_;
};

// A loop that keeps its lines.
class BoundLoop final : public worker::UdpLoop {
  public:
    explicit BoundLoop(const std::vector<BoundLine*>& lines)
        : UdpLoop({lines.begin(), lines.end()}), lines_(lines) {}

    // Opens a dialogue on each of the first lines.
    void open(const std::vector<nb::object>& dialogues) {
        for (std::size_t i = 0; i < dialogues.size(); ++i) lines_.at(i)->open(dialogues[i]);
    }

    void run(double until) {
        {
            const nb::gil_scoped_release release;
            UdpLoop::run(until);
        }
        for (BoundLine* line : lines_) line->drop_if_idle();
    }

  private:
    std::vector<BoundLine*> lines_;
};

// Calls that keep what they use.
class BoundCalls final : public worker::Calls {
  public:
    BoundCalls(BoundLoop& loop, const nb::object& held, const std::vector<BoundLine*>& lines,
               const std::vector<Session*>& sessions, nb::object held_sessions)
        : Calls(loop, {lines.begin(), lines.end()}, sessions),
          held_(held),
          held_sessions_(std::move(held_sessions)) {}

  private:
    nb::object held_;  // the loop, which keeps the lines
    nb::object held_sessions_;
};

// Python's references; a capsule may keep them longer.
class WorkerCalls {
  public:
    WorkerCalls(const nb::object& loop, const std::vector<BoundLine*>& lines,
                const nb::object& sessions)
        : calls_(std::make_shared<BoundCalls>(nb::cast<BoundLoop&>(loop), loop, lines,
                                              nb::cast<std::vector<Session*>>(sessions),
                                              sessions)) {}

    BoundCalls& operator*() const { return *calls_; }
    nb::object capsule() const { return capsule_of(calls_); }

    void close() const {
        const nb::gil_scoped_release release;
        calls_->close();
    }

  private:
    std::shared_ptr<BoundCalls> calls_;
};

std::size_t sharing(int dtype, int op, std::size_t count, std::size_t lanes,
                    std::size_t aggregators, int ranks) {
    const worker::Tensor tensor{
        .dtype = static_cast<arithmetic::Dtype>(dtype),
        .op = static_cast<arithmetic::Op>(op),
        .ranks = ranks,
        .count = count,
        .elements = nullptr,
        .result = nullptr,
    };
    return worker::Operation::sharing(tensor, lanes, aggregators);
}

}  // namespace

void bind_loop(nb::module_& module) {
    nb::class_<BoundLine>(module, "Line", "A worker's way to one aggregator.")
        .def(
            "__init__",
            [](BoundLine* self, const std::string& host, std::uint16_t port, Session& session,
               LossSwitch* loss, std::size_t buffer_bytes) {
                new (self)
                    BoundLine(worker::Address::parse(host, port), session, loss, buffer_bytes);
            },
            nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::arg("host"), nb::arg("port"),
            nb::arg("session"), nb::arg("loss").none(), nb::arg("buffer_bytes"))
        .def(
            "join_group",
            [](BoundLine& line, std::uint32_t host, std::uint16_t port) {
                line.join_group({host, port});
            },
            nb::arg("host"), nb::arg("port"), "Take what the aggregator sends to a group, too.")
        .def("close", &BoundLine::close, "Close the sockets. May be called more than once.")
        .def_prop_ro(
            "own_address",
            [](const BoundLine& line) {
                const worker::Address own = line.own_address();
                return std::pair(own.text(), own.port());
            },
            "Own address, as a text, and port on the way to the aggregator.")
        .def_prop_ro("refused", &BoundLine::refused,
                     "Whether the aggregator's host has reported that nobody listens on the port.")
        .def_prop_ro("overflows", &BoundLine::overflows,
                     "Datagrams that came while the receive buffers were full.")
        .def_prop_ro("calls", &BoundLine::calls, "System calls on its sockets so far.")
        .def_prop_ro("too_long", &BoundLine::too_long,
                     "Bytes of a packet that was longer than the path's MTU, or 0.")
        .def_prop_ro("mtu", &BoundLine::mtu, "Bytes of the longest IP packet on the path.")
        .def("open", &BoundLine::open, nb::arg("dialogue"),
             "Begin a dialogue: send its first packets.")
        .def("probe_liveness", &BoundLine::probe_liveness,
             "Send one more JOIN, which an aggregator that is there answers.");

    nb::class_<BoundLoop>(module, "UdpLoop", "One thread that drives a worker's lines.")
        .def(nb::init<std::vector<BoundLine*>>(), nb::keep_alive<1, 2>(), nb::arg("lines"))
        .def_prop_ro("serving", &BoundLoop::serving,
                     "Number of the line that `run` was serving when it raised.")
        .def_prop_ro("waits", &BoundLoop::waits,
                     "How often it has waited, each time with one system call.")
        .def("open", &BoundLoop::open, nb::arg("dialogues"),
             "Begin a dialogue on each of the first lines, before Python handles any signal.")
        .def("run", &BoundLoop::run, nb::arg("until"),
             "Feed the lines' dialogues until all are over, or the time has come.");

    nb::class_<WorkerCalls>(module, "WorkerCalls",
                            "All-reduces in place by a worker's lines, for C++; see c_api.h.")
        .def(nb::init<const nb::object&, const std::vector<BoundLine*>&, const nb::object&>(),
             nb::arg("loop"), nb::arg("lines"), nb::arg("sessions"))
        .def(
            "describe",
            [](const WorkerCalls& calls, const std::string& rest) {
                return (*calls).describe(rest);
            },
            nb::arg("rest"),
            "Return what a request has as fingerprint; `rest` is the text after the number.")
        .def("calls", &WorkerCalls::capsule,
             "Return a capsule of the calls, for another C or C++ library.")
        .def(
            "in_progress", [](const WorkerCalls& calls) { return (*calls).in_progress(); },
            "Return the number of the operation in progress, counted from 1, or 0.")
        .def(
            "advance",
            [](const WorkerCalls& calls, std::uint64_t operation, double seconds) {
                const nb::gil_scoped_release release;
                afflux_outcome outcome{};
                return (*calls).advance(operation, static_cast<std::int64_t>(seconds * 1e9),
                                        outcome);
            },
            nb::arg("operation"), nb::arg("timeout_s"),
            "Work and wait for up to so long; return the status.")
        .def(
            "parts", [](const WorkerCalls& calls) { return (*calls).parts(); },
            nb::rv_policy::reference_internal,
            "Return the parts of the latest operation, valid until the next one begins.")
        .def_prop_ro(
            "number", [](const WorkerCalls& calls) { return (*calls).number(); },
            "Number of the latest operation, among those of the job.")
        .def_prop_ro(
            "over", [](const WorkerCalls& calls) { return (*calls).over(); },
            "How many operations have come to a good end.")
        .def(
            "raise_failure", [](const WorkerCalls& calls) { (*calls).raise_failure(); },
            "Raise what ended the latest operation, if an error did.")
        .def("close", &WorkerCalls::close, "From now on nothing can be called.");

    module.attr("SOCKET_BUFFER_BYTES") = worker::kBufferBytes;
    module.def("sharing", &sharing, nb::arg("dtype"), nb::arg("op"), nb::arg("count"),
               nb::arg("lanes"), nb::arg("aggregators"), nb::arg("ranks") = 1,
               "Return how many of so many aggregators share a tensor's columns.");
}

}  // namespace afflux::bindings

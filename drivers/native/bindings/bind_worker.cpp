// The worker for Python: sessions, dialogues, and the loop that runs them without the interpreter's
// lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/calls_capsule.hpp"
#include "bindings/parts.hpp"
#include "worker/calls.hpp"
#include "worker/errors.hpp"
#include "worker/join.hpp"
#include "worker/operation.hpp"
#include "worker/session.hpp"
#include "worker/udp_loop.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using packet::Octets;
using worker::LossSwitch;
using worker::RoundTrip;
using worker::Session;
using worker::Slot;

using Elements = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::bytes to_bytes(Octets octets) {
    return nb::bytes(octets.data, octets.bytes);
}

// Keeps what a dialogue sends.
class Collected final : public worker::PacketSink {
  public:
    void send(Octets datagram) override { datagrams.push_back(to_bytes(datagram)); }

    std::vector<nb::bytes> datagrams;
};

// Memory of a host's other ranks: their contributions, and the place of their results.
struct Host {
    std::vector<Elements> others;
    std::vector<Elements> exponents;
    std::optional<std::pair<Result, Result>> mirror;
};

// An operation that keeps the arrays that it works on.
class BoundOperation final : public worker::Operation {
  public:
    BoundOperation(Session& session, Elements elements, Result result, int dtype, int op,
                   std::uint32_t fingerprint, worker::Share share, std::size_t slots, Host host)
        : Operation(session, to_tensor(session, elements, result, dtype, op, host), fingerprint,
                    share, slots),
          elements_(std::move(elements)),
          result_(std::move(result)),
          host_(std::move(host)) {}

  private:
    static worker::Tensor to_tensor(const Session& session, const Elements& elements,
                                    const Result& result, int dtype, int op, const Host& host) {
        worker::Tensor tensor{
            .dtype = static_cast<codec::Dtype>(dtype),
            .op = static_cast<codec::Op>(op),
            .ranks = static_cast<int>(session.job.ranks),
            .count = elements.shape(0),
            .elements = elements.data(),
            .result = result.data(),
        };
        const std::size_t bytes = codec::size_of(tensor.dtype);
        if (elements.itemsize() != bytes || result.itemsize() != bytes ||
            result.shape(0) != tensor.count) {
            throw std::invalid_argument(
                "elements of " + std::to_string(bytes) +
                " bytes are needed, and a result as long; " + std::to_string(tensor.count) +
                " elements of " + std::to_string(elements.itemsize()) + " bytes and a result of " +
                std::to_string(result.shape(0)) + " of " + std::to_string(result.itemsize()) +
                " bytes were given");
        }
        const std::size_t blocks = codec::blocks_of(tensor.count);
        const auto expect = [](bool right) {
            if (!right)
                throw std::invalid_argument("the ranks of a host need as many elements each");
        };
        expect(host.exponents.empty() || host.exponents.size() == host.others.size());
        for (const Elements& each : host.others) {
            expect(each.itemsize() == bytes && each.shape(0) == tensor.count);
            tensor.others.push_back({each.data()});
        }
        for (std::size_t i = 0; i < host.exponents.size(); ++i) {
            expect(host.exponents[i].nbytes() == blocks);
            tensor.others[i].exponents = static_cast<const std::uint8_t*>(host.exponents[i].data());
        }
        if (host.mirror) {
            const auto& [mirrored, marks] = *host.mirror;
            expect(mirrored.itemsize() == bytes && mirrored.shape(0) == tensor.count);
            expect(marks.nbytes() == blocks);
            tensor.mirror = {mirrored.data(), static_cast<std::uint8_t*>(marks.data())};
        }
        return tensor;
    }

    Elements elements_;
    Result result_;
    Host host_;
};

void copy_marked(const Result& from, const Result& marks, const Result& out) {
    const std::size_t count = out.shape(0), size = out.itemsize();
    if (from.itemsize() != size || from.shape(0) != count ||
        marks.nbytes() != codec::blocks_of(count))
        throw std::invalid_argument("marks are of each block, of as many elements here as there");
    const nb::gil_scoped_release release;
    worker::copy_marked({from.data(), static_cast<std::uint8_t*>(marks.data())}, count, size,
                        out.data());
}

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
                    std::size_t aggregators) {
    const worker::Tensor tensor{
        .dtype = static_cast<codec::Dtype>(dtype),
        .op = static_cast<codec::Op>(op),
        .ranks = 1,
        .count = count,
        .elements = nullptr,
        .result = nullptr,
    };
    return worker::Operation::sharing(tensor, lanes, aggregators);
}

nb::dict counts_of(const Session& session) {
    const worker::Counts& counts = session.counts;
    const auto now = [](const datagrams::Tally& tally) { return std::uint64_t{tally}; };
    nb::dict counted;
    counted["packets_sent"] = now(counts.packets_sent);
    counted["packets_received"] = now(counts.packets_received);
    counted["bytes_sent"] = now(counts.bytes_sent);
    counted["bytes_received"] = now(counts.bytes_received);
    counted["blocks_sent"] = now(counts.blocks_sent);
    counted["rounds"] = now(counts.rounds);
    counted["retransmissions"] = now(counts.retransmissions);
    counted["probes"] = now(counts.probes);
    counted["ignored"] = now(counts.ignored);
    counted["dropped_sent"] = now(counts.dropped_sent);
    counted["dropped_received"] = now(counts.dropped_received);
    return counted;
}

// An exception class of the module's own, whose argument holds more than a text.
template <typename Error, typename ToPython>
void bind_error(nb::module_& module, const char* name) {
    nb::exception<Error> raised(module, name, PyExc_RuntimeError);
    nb::register_exception_translator(
        [](const std::exception_ptr& thrown, void* type) {
            try {
                std::rethrow_exception(thrown);
            } catch (const Error& error) {
                const nb::object argument = ToPython()(error);
                PyErr_SetObject(static_cast<PyObject*>(type), argument.ptr());
            }
        },
        raised.ptr());
}

struct Fingerprints {
    nb::object operator()(const worker::Disagreed& error) const {
        return error.fingerprints ? nb::cast(*error.fingerprints) : nb::none();
    }
};

struct Cause {
    nb::object operator()(const worker::Refused& error) const { return nb::cast(error.cause); }
};

struct Terms {
    nb::object operator()(const worker::DifferentJob& error) const { return nb::cast(error.found); }
};

void bind_errors(nb::module_& module) {
    nb::exception<worker::Misbehaved>(module, "Misbehaved", PyExc_RuntimeError);
    bind_error<worker::Disagreed, Fingerprints>(module, "Disagreed");
    bind_error<worker::Refused, Cause>(module, "Refused");
    bind_error<worker::DifferentJob, Terms>(module, "DifferentJob");
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::system_error& error) {
            const nb::object arguments = nb::make_tuple(error.code().value(), error.what());
            PyErr_SetObject(PyExc_OSError, arguments.ptr());
        }
    });
}

void bind_session(nb::module_& module) {
    nb::class_<RoundTrip>(module, "RoundTrip",
                          "Estimates the timeout of one path (RFC 6298, Karn's rule). In seconds.")
        .def(nb::init<double>(), nb::arg("cap_s") = 1.0)
        .def_prop_ro("cap_s", &RoundTrip::cap, "The longest timeout.")
        .def_prop_ro("timeout_s", &RoundTrip::timeout, "How long to wait now.")
        .def_prop_ro("smoothed_s", &RoundTrip::smoothed,
                     "Smoothed round trip, 0 before the first sample.")
        .def("sample", &RoundTrip::sample, nb::arg("sent_at"), nb::arg("now"),
             "Take the round trip of a packet that was sent once and answered now.")
        .def_prop_ro("overdue_after_s", &RoundTrip::overdue_after,
                     "How long to wait once a later packet has been answered.")
        .def("sample_short", &RoundTrip::sample_short, nb::arg("sent_at"), nb::arg("now"),
             "Take the round trip of a packet without blocks.")
        .def("sample_bound", &RoundTrip::sample_bound, nb::arg("sent_at"), nb::arg("now"),
             "Take a time that the round trip does not exceed.")
        .def("expired", &RoundTrip::expired, nb::arg("sent_at"), nb::arg("now"),
             "Note that the timeout of a packet passed.");
    module.attr("GRANULARITY_S") = worker::kGranularity;
    module.attr("INITIAL_S") = worker::kInitial;

    nb::class_<Slot>(module, "Slot", "One slot of a worker.")
        .def_ro("number", &Slot::number)
        .def_ro("round", &Slot::round, "Round of the outstanding packet, or of the next one.")
        .def_ro("outstanding", &Slot::outstanding, "Whether a result is awaited.");

    nb::class_<LossSwitch>(module, "LossSwitch", "Loses packets for tests.")
        .def(nb::init<double, std::uint64_t, std::uint64_t>(), nb::arg("share"), nb::arg("seed"),
             nb::arg("rank"))
        .def("loses_outward", &LossSwitch::loses_outward,
             "Whether the next packet to be sent gets lost.")
        .def("loses_inward", &LossSwitch::loses_inward,
             "Whether the next packet received gets lost.");

    nb::class_<Session>(module, "Session", "One worker's part in a job run.")
        .def(
            "__init__",
            [](Session* self, wire::Job job, wire::Key key, wire::Round first_round,
               unsigned workers, unsigned lanes, std::size_t slots, wire::Worker worker,
               unsigned rank, unsigned ranks, std::uint32_t credit, std::uint32_t group_host,
               std::uint16_t group_port, double cap_s, unsigned ranges, std::uint64_t others) {
                const worker::JobRun run{.number = job,
                                         .key = key,
                                         .first_round = first_round,
                                         .workers = workers,
                                         .lanes = lanes,
                                         .slots = slots,
                                         .worker = worker,
                                         .rank = rank,
                                         .ranks = ranks,
                                         .others = others,
                                         .credit = credit,
                                         .group_host = group_host,
                                         .group_port = group_port,
                                         .ranges = ranges};
                new (self) Session(run, cap_s);
            },
            nb::arg("job"), nb::arg("key"), nb::arg("first_round"), nb::arg("workers"),
            nb::arg("lanes"), nb::arg("slots"), nb::arg("worker"), nb::arg("rank"),
            nb::arg("ranks"), nb::arg("credit"), nb::arg("group_host"), nb::arg("group_port"),
            nb::arg("cap_s"), nb::arg("ranges") = 1, nb::arg("others") = 0)
        .def_rw("number", &Session::number, "Number of the next operation.")
        .def_rw("heard_at", &Session::heard_at,
                "When the aggregator's last packet with this job's key came.")
        .def_ro("refusal", &Session::refusal,
                "Why the latest JOIN was refused, if nothing else has come since; 0: it was not.")
        .def_ro("trip", &Session::trip, "Estimator of the timeout.")
        .def_prop_ro(
            "window", [](const Session& session) { return session.window.size(); },
            "How many packets may be outstanding.")
        .def_prop_ro(
            "slots",
            [](Session& session) {
                std::vector<Slot*> slots;
                for (Slot& slot : session.slots) slots.push_back(&slot);
                return slots;
            },
            nb::rv_policy::reference_internal, "The job's slots, with their rounds.")
        .def("counts", &counts_of, "Return all counts so far, by name.");
}

void bind_dialogues(nb::module_& module) {
    using worker::Dialogue;
    nb::class_<Dialogue>(module, "Dialogue",
                         "The exchange of a worker and its aggregator until it is over.")
        .def_prop_ro("next_timer", &Dialogue::next_timer,
                     "When `expire` is due, in seconds; infinite if nothing is outstanding.")
        .def_prop_ro("done", &Dialogue::done, "Whether it is over.")
        .def(
            "open",
            [](Dialogue& dialogue, double now) {
                Collected sent;
                dialogue.open(now, sent);
                return std::move(sent.datagrams);
            },
            nb::arg("now"), "Return the first packets.")
        .def(
            "receive_bytes",
            [](Dialogue& dialogue, nb::bytes datagram, double now) -> std::optional<nb::bytes> {
                packet::PacketBuffer packet;
                if (datagram.size() > packet.bytes()) {
                    throw std::invalid_argument("a datagram must have at most " +
                                                std::to_string(packet.bytes()) + " bytes, not " +
                                                std::to_string(datagram.size()));
                }
                std::memcpy(packet.datagram(), datagram.data(), datagram.size());
                Collected sent;
                dialogue.receive(packet, datagram.size(), now, sent);
                if (sent.datagrams.empty()) return std::nullopt;
                return sent.datagrams.front();
            },
            nb::arg("datagram"), nb::arg("now"),
            "Take a datagram that came from the aggregator's address; return an answer or None.")
        .def(
            "expire",
            [](Dialogue& dialogue, double now) {
                Collected sent;
                dialogue.expire(now, sent);
                return std::move(sent.datagrams);
            },
            nb::arg("now"), "Return the packets to send as timers have run out.");

    nb::class_<worker::Join, Dialogue>(module, "Join",
                                       "How a worker makes its address known to the aggregator.")
        .def(nb::init<Session&>(), nb::keep_alive<1, 2>(), nb::arg("session"))
        .def_prop_ro("sends", &worker::Join::sends, "How often the JOIN was sent.");

    nb::class_<worker::Operation, Dialogue>(module, "Part",
                                            "One aggregator's part of an operation.")
        .def_prop_ro("missing_workers", &worker::Operation::missing_workers,
                     "Bitmap of the workers whose contributions are missing.")
        .def_prop_ro("vanishing", &worker::Operation::vanishing,
                     "Bytes of the longest packet that never arrives, or 0.")
        .def("waits_above", &worker::Operation::waits_above,
             "Return whether the aggregator waits for its parent.");

    nb::class_<BoundOperation, worker::Operation>(module, "Operation",
                                                  "One all-reduce of one tensor.")
        .def(
            "__init__",
            [](BoundOperation* self, Session& session, Elements elements, Result result, int dtype,
               int op, std::uint32_t fingerprint, std::pair<std::size_t, std::size_t> share,
               std::size_t slots, std::vector<Elements> others, std::vector<Elements> exponents,
               std::optional<std::pair<Result, Result>> mirror) {
                new (self)
                    BoundOperation(session, std::move(elements), std::move(result), dtype, op,
                                   fingerprint, {share.first, share.second}, slots,
                                   {std::move(others), std::move(exponents), std::move(mirror)});
            },
            nb::keep_alive<1, 2>(), nb::arg("session"), nb::arg("elements"), nb::arg("result"),
            nb::arg("dtype"), nb::arg("op"), nb::arg("fingerprint"), nb::arg("share"),
            nb::arg("slots"), nb::arg("others") = std::vector<Elements>{},
            nb::arg("exponents") = std::vector<Elements>{}, nb::arg("mirror") = nb::none());
    module.def("copy_marked", &copy_marked, nb::arg("source"), nb::arg("marks"), nb::arg("target"),
               "Copy the blocks of elements whose marks are not 0.");
}

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
            nb::arg("host"), nb::arg("port"), "Take the aggregator's packets to a group, too.")
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
        .def("ask_for_life", &BoundLine::ask_for_life,
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
                            "All-reduces in place by a worker's lines, for C++; see calls.h.")
        .def(nb::init<const nb::object&, const std::vector<BoundLine*>&, const nb::object&>(),
             nb::arg("loop"), nb::arg("lines"), nb::arg("sessions"))
        .def(
            "describe",
            [](const WorkerCalls& calls, const std::string& rest) {
                return (*calls).describe(rest);
            },
            nb::arg("rest"), "Return a request's fingerprint; `rest` is the text after the number.")
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
            "Raise the error that ended the latest operation, if any.")
        .def("close", &WorkerCalls::close, "From now on nothing can be called.");

    module.attr("SOCKET_BUFFER_BYTES") = worker::kBufferBytes;
    module.def("sharing", &sharing, nb::arg("dtype"), nb::arg("op"), nb::arg("count"),
               nb::arg("lanes"), nb::arg("aggregators"),
               "Return how many of so many aggregators share a tensor's columns.");
}

}  // namespace

void bind_worker(nb::module_& module) {
    bind_errors(module);
    bind_session(module);
    bind_dialogues(module);
    bind_loop(module);
}

}  // namespace afflux::bindings

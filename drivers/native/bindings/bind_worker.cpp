// The worker for Python: sessions, operations, and the line that runs them without the
// interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/parts.hpp"
#include "worker/errors.hpp"
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

// Keeps what an operation sends.
class Collected final : public worker::Outlet {
  public:
    void send(Octets datagram) override { datagrams.push_back(to_bytes(datagram)); }

    std::vector<nb::bytes> datagrams;
};

// An operation and the arrays that it works on.
class BoundOperation {
  public:
    BoundOperation(Session& session, Elements elements, Result result, int dtype, int op,
                   std::uint32_t fingerprint)
        : elements_(std::move(elements)),
          result_(std::move(result)),
          operation(session, tensor(session, dtype, op), fingerprint) {}

    std::vector<nb::bytes> open(double now) {
        Collected sent;
        operation.open(now, sent);
        return std::move(sent.datagrams);
    }

    std::optional<nb::bytes> receive(nb::bytes datagram, double now) {
        packet::PacketBuffer packet;
        if (datagram.size() > packet.bytes()) throw std::invalid_argument("no packet is as long");
        std::memcpy(packet.datagram(), datagram.data(), datagram.size());
        Collected sent;
        operation.receive(packet, datagram.size(), now, sent);
        if (sent.datagrams.empty()) return std::nullopt;
        return sent.datagrams.front();
    }

    std::vector<nb::bytes> expire(double now) {
        Collected sent;
        operation.expire(now, sent);
        return std::move(sent.datagrams);
    }

  private:
    worker::Tensor tensor(const Session& session, int dtype, int op) const {
        const worker::Tensor tensor{
            .dtype = static_cast<codec::Dtype>(dtype),
            .op = static_cast<codec::Op>(op),
            .ranks = static_cast<int>(session.place.ranks),
            .count = elements_.shape(0),
            .elements = elements_.data(),
            .result = result_.data(),
        };
        const std::size_t bytes = codec::size_of(tensor.dtype);
        if (elements_.itemsize() != bytes || result_.itemsize() != bytes ||
            result_.shape(0) != tensor.count) {
            throw std::invalid_argument("the arrays do not fit the element type, or one another");
        }
        return tensor;
    }

    Elements elements_;
    Result result_;

  public:
    worker::Operation operation;
};

nb::dict take_counts(Session& session) {
    const worker::Counts counts = std::exchange(session.counts, {});
    nb::dict taken;
    taken["packets_sent"] = counts.packets_sent;
    taken["packets_received"] = counts.packets_received;
    taken["bytes_sent"] = counts.bytes_sent;
    taken["bytes_received"] = counts.bytes_received;
    taken["blocks_sent"] = counts.blocks_sent;
    taken["rounds"] = counts.rounds;
    taken["retransmissions"] = counts.retransmissions;
    taken["probes"] = counts.probes;
    taken["ignored"] = counts.ignored;
    taken["dropped_sent"] = counts.dropped_sent;
    taken["dropped_received"] = counts.dropped_received;
    return taken;
}

void bind_errors(nb::module_& module) {
    nb::exception<worker::Misbehaved>(module, "Misbehaved", PyExc_RuntimeError);
    nb::exception<worker::Disagreed> disagreed(module, "Disagreed", PyExc_RuntimeError);
    // Its argument is the list of fingerprints, or None.
    nb::register_exception_translator(
        [](const std::exception_ptr& thrown, void* type) {
            try {
                std::rethrow_exception(thrown);
            } catch (const worker::Disagreed& error) {
                nb::object found = nb::none();
                if (error.fingerprints) found = nb::cast(*error.fingerprints);
                PyErr_SetObject(static_cast<PyObject*>(type), found.ptr());
            }
        },
        disagreed.ptr());
}

void bind_session(nb::module_& module) {
    nb::class_<RoundTrip>(module, "RoundTrip",
                          "Estimates the time-out of one path (RFC 6298, Karn's rule). In seconds.")
        .def(nb::init<double>(), nb::arg("cap_s") = 1.0)
        .def_prop_ro("cap_s", &RoundTrip::cap, "The longest time-out.")
        .def_prop_ro("timeout_s", &RoundTrip::timeout, "How long to wait now.")
        .def_prop_ro("smoothed_s", &RoundTrip::smoothed,
                     "Smoothed round trip, 0 before the first sample.")
        .def("sample", &RoundTrip::sample, nb::arg("sent_at"), nb::arg("now"),
             "Takes the round trip of a packet that was sent once and answered now.")
        .def_prop_ro("overdue_after_s", &RoundTrip::overdue_after,
                     "How long to wait once a later packet has been answered.")
        .def("sample_bound", &RoundTrip::sample_bound, nb::arg("sent_at"), nb::arg("now"),
             "Takes a time that the round trip does not exceed.")
        .def("expired", &RoundTrip::expired, nb::arg("sent_at"), nb::arg("now"),
             "Notes that the time-out of a packet passed.");
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
               unsigned rank, unsigned ranks, bool group, double cap_s) {
                const worker::Place place{job,   key,    first_round, workers, lanes,
                                          slots, worker, rank,        ranks,   group};
                new (self) Session(place, cap_s);
            },
            nb::arg("job"), nb::arg("key"), nb::arg("first_round"), nb::arg("workers"),
            nb::arg("lanes"), nb::arg("slots"), nb::arg("worker"), nb::arg("rank"),
            nb::arg("ranks"), nb::arg("group"), nb::arg("cap_s"))
        .def_rw("number", &Session::number, "Number of the next operation.")
        .def_rw("heard_at", &Session::heard_at,
                "When the aggregator's last packet with this job's key came.")
        .def_ro("trip", &Session::trip, "Estimator of the time-out.")
        .def_prop_ro(
            "slots",
            [](Session& session) {
                std::vector<Slot*> slots;
                for (Slot& slot : session.slots) slots.push_back(&slot);
                return slots;
            },
            nb::rv_policy::reference_internal, "The job's slots, with their rounds.")
        .def(
            "join_packet",
            [](const Session& session) {
                const auto packet = session.join_packet();
                return nb::bytes(packet.data(), packet.size());
            },
            "A JOIN.")
        .def(
            "probe_packet",
            [](const Session& session, Slot& slot, wire::OpcodeDtype opcode_dtype) {
                return to_bytes(session.probe(slot, opcode_dtype));
            },
            nb::arg("slot"), nb::arg("opcode_dtype"), "A PROBE for the slot's outstanding round.")
        .def("take_counts", &take_counts, "What was counted since the last call, by name.");
}

}  // namespace

void bind_worker(nb::module_& module) {
    bind_errors(module);
    bind_session(module);
    nb::class_<BoundOperation>(module, "Operation", "One all-reduce of one tensor.")
        .def(nb::init<Session&, Elements, Result, int, int, std::uint32_t>(),
             nb::keep_alive<1, 2>(), nb::arg("session"), nb::arg("elements"), nb::arg("result"),
             nb::arg("dtype"), nb::arg("op"), nb::arg("fingerprint"))
        .def_prop_ro("next_timer",
                     [](const BoundOperation& self) { return self.operation.next_timer(); })
        .def_prop_ro("done", [](const BoundOperation& self) { return self.operation.done(); })
        .def_prop_ro("missing_workers",
                     [](const BoundOperation& self) { return self.operation.missing(); })
        .def("waits_above", [](const BoundOperation& self) { return self.operation.waits_above(); })
        .def("open", &BoundOperation::open, nb::arg("now"))
        .def("receive_bytes", &BoundOperation::receive, nb::arg("datagram"), nb::arg("now"))
        .def("expire", &BoundOperation::expire, nb::arg("now"));
    nb::class_<worker::Line>(module, "Line",
                             "A worker's sockets, driven until its operation is over.")
        .def(nb::init<int, int, std::uint32_t, std::uint16_t, LossSwitch*>(),
             nb::keep_alive<1, 6>(), nb::arg("socket"), nb::arg("group"), nb::arg("address"),
             nb::arg("port"), nb::arg("loss").none())
        .def_prop_ro("refused", &worker::Line::refused)
        .def_prop_ro("too_long", &worker::Line::too_long)
        .def(
            "open",
            [](worker::Line& line, Session& session, BoundOperation& bound) {
                line.open(session, bound.operation);
            },
            nb::call_guard<nb::gil_scoped_release>(), nb::arg("session"), nb::arg("operation"))
        .def(
            "run",
            [](worker::Line& line, Session& session, BoundOperation& bound, double until) {
                line.run(session, bound.operation, until);
            },
            nb::call_guard<nb::gil_scoped_release>(), nb::arg("session"), nb::arg("operation"),
            nb::arg("until"));
}

}  // namespace afflux::bindings

// A worker's part in a job: its session, with the slots, timeouts and counts.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/parts.hpp"
#include "worker/loss_switch.hpp"
#include "worker/session.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using worker::Journal;
using worker::LossSwitch;
using worker::RoundTrip;
using worker::Session;
using worker::Slot;

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

nb::bytes bytes_of(const std::vector<std::uint8_t>& octets) {
    return nb::bytes(octets.data(), octets.size());
}

void bind_journal(nb::module_& module) {
    using Result = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    nb::class_<Journal>(module, "Journal",
                        "A worker's note of its calls' results, for ranks that go on without "
                        "their aggregators.")
        .def(nb::init<>())
        .def(
            "begin",
            [](Journal& journal, const Result& result) {
                journal.begin(result.data(), result.nbytes());
            },
            nb::arg("result"), "Note that a call begins whose result goes there.")
        .def(
            "keep_only",
            [](Journal& journal, const std::vector<std::size_t>& blocks) {
                journal.keep_only(blocks.data(), blocks.size());
            },
            nb::arg("blocks"), "Note that these blocks have come together at last.")
        .def("end", &Journal::end, "Note that the call has come to its good end.")
        .def_prop_ro("over", &Journal::over, "How many calls have come to a good end.")
        .def_prop_ro("running", &Journal::running, "Whether a call is running.")
        .def_prop_ro(
            "result",
            [](const Journal& journal) {
                return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(
                    static_cast<std::uint8_t*>(journal.result()), {journal.bytes()}, nb::handle());
            },
            nb::rv_policy::reference,
            "The bytes of the running call's result, as long as its tensor lives.")
        .def_prop_ro(
            "taken", [](const Journal& journal) { return bytes_of(journal.taken()); },
            "A byte for each block of the running call: 1 if it is a result.")
        .def_prop_ro("taken_before", &Journal::taken_before,
                     "How many blocks of the call that was over last were results.")
        .def_prop_ro(
            "kept", [](const Journal& journal) { return journal.kept(); },
            "Blocks of that call which another rank may lack.")
        .def_prop_ro(
            "contents", [](const Journal& journal) { return bytes_of(journal.contents()); },
            "What is in them, one after the other.");
}

}  // namespace

void bind_session(nb::module_& module) {
    bind_journal(module);
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
               std::uint16_t group_port, double cap_s, unsigned ranges, std::uint64_t others,
               int partial_bits) {
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
                                         .ranges = ranges,
                                         .partial_bits = partial_bits};
                new (self) Session(run, cap_s);
            },
            nb::arg("job"), nb::arg("key"), nb::arg("first_round"), nb::arg("workers"),
            nb::arg("lanes"), nb::arg("slots"), nb::arg("worker"), nb::arg("rank"),
            nb::arg("ranks"), nb::arg("credit"), nb::arg("group_host"), nb::arg("group_port"),
            nb::arg("cap_s"), nb::arg("ranges") = 1, nb::arg("others") = 0,
            nb::arg("partial_bits") = 64)
        .def_rw("number", &Session::number, "Number of the next operation.")
        .def_rw("journal", &Session::journal, nb::arg().none(),
                "Learns what comes of the calls; None if nobody needs to know.")
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
        .def("counts", &counts_of, "Return what has been counted so far, by name.");
}

}  // namespace afflux::bindings

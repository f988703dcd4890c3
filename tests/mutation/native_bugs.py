"""Bugs for the C++ of aggregator, engine and worker, each with the check that must see it.

Each is one that an engineer might make in a line: a bound that is off by one, a lock that ends too
early, a check that is gone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.edge_checks import check_edges
from tests.checks.native_checks import check_engine
from tests.scenarios.shipped_builds import SOFTWARE
from tests.support.drivers.built_engine import BuiltEngine, build
from tests.support.drivers.built_worker import CAUGHT
from tests.support.drivers.native_program import passes
from tests.support.planting import Bug

__all__ = ["BUGS", "CHECKS", "NativeBug", "caught"]

_GOLDEN = "golden model"
_EDGES = "golden model, all slots, jobs and workers"
_SERVER = "aggregator_server_test"
_RACES = "aggregator_server_test, thread sanitizer"
_LOOP = "worker_loop_test"
_SCHEDULE = "worker_schedule_test"
_OFFLOAD = "datagrams_offload_test"
_ROWS = "rows_row_set_test"
_LARGEST = "selection_largest_test"
_FIXED_POINT = "narrow_fixed_point_test"
_HALVES = "narrow_halves_test"

_RUNS_OF_RACES = 5
"""The sanitizer sees a race only if threads come to the place at about the same time."""


def _differs_from_golden(name: str, bug: Bug | None) -> bool:
    try:
        check_engine(BuiltEngine(build(bug), slots=64))
    except CAUGHT:
        return True
    return False


def _differs_at_edges(name: str, bug: Bug | None) -> bool:
    try:
        # It has what the check needs of a simulated engine that nothing makes wait.
        engine = cast(VerilatedEngine, BuiltEngine(build(bug), **SOFTWARE))
        check_edges(engine, SOFTWARE, queues=False)
    except CAUGHT:
        return True
    return False


def _fails(program: str) -> Callable[[str, Bug | None], bool]:
    def failed(name: str, bug: Bug | None) -> bool:
        return not passes(name, bug, program=program)

    return failed


def _races(name: str, bug: Bug | None) -> bool:
    return not passes(name, bug, program=_SERVER, sanitized=True, runs=_RUNS_OF_RACES)


CHECKS: dict[str, Callable[[str, Bug | None], bool]] = {
    _GOLDEN: _differs_from_golden,
    _EDGES: _differs_at_edges,
    _SERVER: _fails(_SERVER),
    _RACES: _races,
    _LOOP: _fails(_LOOP),
    _SCHEDULE: _fails(_SCHEDULE),
    _OFFLOAD: _fails(_OFFLOAD),
    _ROWS: _fails(_ROWS),
    _LARGEST: _fails(_LARGEST),
    _FIXED_POINT: _fails(_FIXED_POINT),
    _HALVES: _fails(_HALVES),
}
"""By name: whether it fails with a bug; without one it must not."""


@dataclass(frozen=True)
class NativeBug:
    """A bug, and the name of its check."""

    bug: Bug
    check: str


BUGS = {
    # Engine: the state machine.
    "counts a contribution that comes again": NativeBug(
        Bug(
            "engine/rounds.cpp",
            "if ((slot.seen >> header.worker & 1) != 0) {",
            "if (slot.full()) {",
        ),
        _GOLDEN,
    ),
    "sends a result in the name of another slot": NativeBug(
        Bug("engine/sender.cpp", ".slot = slot,", ".slot = static_cast<wire::Slot>(slot ^ 1),"),
        _GOLDEN,
    ),
    "adds what belongs to the round before": NativeBug(
        Bug(
            "engine/rounds.cpp",
            "} else if (ahead == 0) { if ((slot.seen",
            "} else if (ahead == 0 || ahead == kLast) { if ((slot.seen",
        ),
        _GOLDEN,
    ),
    "takes the slot behind a job's last one": NativeBug(
        Bug(
            "engine/core.cpp",
            "} else if (header.slot >= job->slots) { ++counters_[Counter::BadSlot];"
            " } else if (header.present >> job->lanes != 0 || (probes",
            "} else if (header.slot > job->slots) { ++counters_[Counter::BadSlot];"
            " } else if (header.present >> job->lanes != 0 || (probes",
        ),
        _GOLDEN,
    ),
    "does not look at UDP's checksum": NativeBug(
        Bug(
            "engine/soft_engine.cpp",
            "if (!right_udp_checksum(ip, udp_bytes)) return drop(Counter::BadChecksum);",
            "static_cast<void>(right_udp_checksum);",
        ),
        _GOLDEN,
    ),
    # Engine: tables of the sizes that it is shipped with.
    "gives slots 1,024 apart one memory": NativeBug(
        Bug(
            "engine/slots.hpp",
            "return bodies_ + (2 * slot + version) * body_words_;",
            "return bodies_ + (2 * (slot % 1024) + version) * body_words_;",
        ),
        _EDGES,
    ),
    "takes a job for the one 32 before it": NativeBug(
        Bug(
            "engine/core.hpp",
            "job_at(std::size_t number) { return number < jobs_.size()",
            "job_at(std::size_t number) { number %= 32; return number < jobs_.size()",
        ),
        _EDGES,
    ),
    "looks for a worker at the one 32 before it": NativeBug(
        Bug(
            "engine/sender.cpp",
            "const auto& peer = job.peers[worker];",
            "const auto& peer = job.peers[worker % 32];",
        ),
        _EDGES,
    ),
    "gives lanes 8 apart one block": NativeBug(
        Bug(
            "engine/slots.cpp",
            "static_cast<std::size_t>(lane) * wire::kBlockElements",
            "static_cast<std::size_t>(lane % 8) * wire::kBlockElements",
        ),
        _EDGES,
    ),
    # Aggregator: from socket to socket.
    "steers by one share too many": NativeBug(
        Bug(
            "aggregator/steering.cpp",
            "BPF_MUL | BPF_K, job.shares",
            "BPF_MUL | BPF_K, job.shares + 1",
        ),
        _SERVER,
    ),
    "steers half of the jobs": NativeBug(
        Bug("aggregator/steering.cpp", "number < jobs; ++number", "number < jobs / 2; ++number"),
        _SERVER,
    ),
    "keeps what belongs to another thread": NativeBug(
        Bug(
            "aggregator/thread.cpp",
            "if (owner != number_) return hand_over",
            "if (false) return hand_over",
        ),
        _SERVER,
    ),
    "believes a packet's length": NativeBug(
        Bug(
            "aggregator/thread.cpp",
            "core.passes_length(arrival.packet.header, payload.bytes)",
            "true",
        ),
        _SERVER,
    ),
    "sends words that are gone": NativeBug(
        Bug("aggregator/outbox.cpp", "if (passing) {", "if (false) {"), _SERVER
    ),
    "writes headers over those that wait": NativeBug(
        Bug("aggregator/outbox.cpp", "++chunk_; used_ = 0;", "used_ = 0;"), _SERVER
    ),
    "empties its outbox when its lock is gone": NativeBug(
        Bug(
            "aggregator/thread.cpp",
            "const std::lock_guard alone(share_.mutex);"
            " if (share_.core.jobs_changed() != jobs_changed_) outbox_.drop();",
            "{ const std::lock_guard alone(share_.mutex);"
            " if (share_.core.jobs_changed() != jobs_changed_) outbox_.drop(); }",
        ),
        _RACES,
    ),
    # Worker.
    "accepts a result of any round": NativeBug(
        Bug(
            "worker/operation.cpp",
            "if (header.round != slot.round || !slot.outstanding) {",
            "if (!slot.outstanding) {",
        ),
        _SCHEDULE,
    ),
    "sends again what is made anew by then": NativeBug(
        Bug("worker/operation.cpp", "out.send_now(slot.again());", "out.send(slot.again());"),
        _LOOP,
    ),
    "has no bound for reading a socket out": NativeBug(
        Bug("worker/udp_loop.cpp", "|| reads_[serving_] >= kDrainReads", ""), _LOOP
    ),
    "asks for what lies unread": NativeBug(
        Bug("worker/udp_loop.cpp", "if (read_out && time >=", "if (time >="), _LOOP
    ),
    "sends more than its window": NativeBug(
        Bug(
            "worker/operation.cpp",
            "!waiting_.empty() && outstanding_ < session_.window.size()",
            "!waiting_.empty()",
        ),
        _LOOP,
    ),
    "forgets its buffer's size": NativeBug(
        Bug(
            "worker/line.cpp",
            "session.window.limit(datagrams::usable(bytes) / datagrams::charge(longest));",
            "static_cast<void>(bytes + longest);",
        ),
        _LOOP,
    ),
    # Sockets.
    "joins datagrams of different lengths": NativeBug(
        Bug("datagrams/send_batch.cpp", "return segment == bytes && bytes > 0", "return bytes > 0"),
        _OFFLOAD,
    ),
    # Sparse sums.
    "counts a row among those before it": NativeBug(
        Bug(
            "rows/row_set.cpp",
            "std::popcount(words_[row / kBits] & (bit - 1))",
            "std::popcount(words_[row / kBits] & (bit | (bit - 1)))",
        ),
        _ROWS,
    ),
    "gives two rows one field": NativeBug(
        Bug("rows/row_set.cpp", "row - field * words >= words", "row - field * words > words"),
        _ROWS,
    ),
    "takes a row behind the last": NativeBug(
        Bug(
            "rows/row_set.cpp",
            "number < 0 || row >= rows_",
            "number < 0",
        ),
        _ROWS,
    ),
    "goes by its sample alone": NativeBug(
        Bug(
            "selection/largest.cpp",
            "if (found.size() < count) found = reaching(elements, count, 0);",
            "",
        ),
        _LARGEST,
    ),
    "drops the least of the largest": NativeBug(
        Bug(
            "selection/largest.cpp",
            "std::min(least, kLargestMagnitude - 1) + 1",
            "std::min(least, kLargestMagnitude - 1) + 2",
        ),
        _LARGEST,
    ),
    # Narrow forms.
    "lets an integer round up beyond its field": NativeBug(
        Bug(
            "narrow/fixed_point.cpp",
            "if (std::rint(std::ldexp(mantissa, bits)) > static_cast<float>(most)) ++power;",
            "",
        ),
        _FIXED_POINT,
    ),
    "keeps what a field has borrowed": NativeBug(
        Bug(
            "narrow/fixed_point.cpp",
            "word - static_cast<std::uint32_t>(field)",
            "word",
        ),
        _FIXED_POINT,
    ),
    "sees no element of the last group": NativeBug(
        Bug(
            "narrow/fixed_point.cpp",
            "out[g] = magnitude_of(elements.data() + first, count)",
            "out[g] = magnitude_of(elements.data() + first, count / 64 * 64)",
        ),
        _FIXED_POINT,
    ),
    "rounds ties up": NativeBug(
        Bug("narrow/halves.cpp", "bits + 0x7FFF + (bits >> kUpper & 1)", "bits + 0x8000"),
        _HALVES,
    ),
    "rounds the least like the others": NativeBug(
        Bug(
            "narrow/halves.cpp",
            "(exponent > kLeastNormal ? exponent : kLeastNormal)",
            "exponent",
        ),
        _HALVES,
    ),
}


def caught(name: str) -> bool:
    """Return whether the bug's check fails with it."""
    planted = BUGS[name]
    return CHECKS[planted.check](name, planted.bug)

"""Faults put in on purpose: each must be caught by a check that passes without it."""

from collections.abc import Callable

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.errors import AffluxError
from afflux_drivers.packets import HEADER, PacketBuffer
from afflux_drivers.worker.operation import Operation
from afflux_hdl.contract import wire
from tests.drivers.test_soft_engine import compare_engines, tickets_of
from tests.support.drivers.built_engine import BuiltEngine, Fault, build
from tests.support.drivers.faulty_worker import catches
from tests.support.drivers.golden_check import check_counters, check_operation
from tests.support.drivers.tensors import OPERATIONS, awkward
from tests.support.drivers.virtual_job import VirtualJob, at_random, counters_of

# What a fault may look like: wrong bits or counts, an impossible packet, no end, a crash.
CAUGHT = (AssertionError, AffluxError, IndexError, ValueError, RuntimeError)


def check_codec() -> None:
    """A few reductions of awkward tensors in a perfect network, without overflows."""
    generator = np.random.default_rng(11)
    for workers in (2, 5):
        job = VirtualJob(workers, 3, 2)
        for dtype, reduction in OPERATIONS:
            for count in (9, 60, 1000):
                tensors = [awkward(generator, count, dtype, True) for _ in range(workers)]
                check_operation(job, tensors, dtype, reduction)
        check_counters(job)


def check_numbers_do_not_overflow() -> None:
    job = VirtualJob(4, 16, 1)
    greatest = np.full(2000, np.finfo(np.float32).max, np.float32)
    job.all_reduce([greatest] * 4, wire.Dtype.FLOAT32, Reduction.AVG)
    assert counters_of(job.engine)["overflows"] == 0


def check_schedules(
    receive: Callable[..., bytes | None] = Operation.receive,
    make_engine: Callable[[], Engine] = SoftEngine,
) -> None:
    """Operations under loss, doubling and long delays."""
    for seed in range(4):
        generator = np.random.default_rng(seed)
        job = VirtualJob(3, 2, 2, make_engine())
        fates = at_random(seed, lose=0.1, double=0.2, delay=0.1)
        for _ in range(4):
            tensors = [generator.integers(-99, 99, 1500).astype(np.int32) for _ in range(3)]
            check_operation(
                job,
                tensors,
                wire.Dtype.INT32,
                Reduction.SUM,
                fates,
                patience_s=100.0,
                receive=receive,
            )
        check_counters(job)


def check_engine(engine: Engine | None = None) -> None:
    engine = engine or SoftEngine(slots=64)
    compare_engines(engine, tickets_of([(3, 4, 2, 6, 0xFFFF_FFFE)]), 5, 2500)


@pytest.mark.parametrize(
    "check", [check_codec, check_numbers_do_not_overflow, check_schedules, check_engine]
)
def test_without_a_fault_the_checks_pass(check):
    check()


def test_worker_that_accepts_any_round():
    def receive(self: Operation, packet: PacketBuffer, length: int, now: float) -> bytes | None:
        """As the real one, but told that whatever comes is of the round it waits for."""
        header = list(HEADER.unpack_from(packet.datagram))
        if header[4] < len(self._session.slots):
            header[6] = self._session.slots[header[4]].round
            HEADER.pack_into(packet.datagram, 0, *header)
        return Operation.receive(self, packet, length, now)

    with pytest.raises(CAUGHT):
        check_schedules(receive)


def test_worker_that_ignores_the_operation_number(monkeypatch):
    """Rounds never restart, so this one is caught by the accept rule's own test only."""
    from tests.drivers import test_operation

    def receive(self: Operation, packet: PacketBuffer, length: int, now: float) -> bytes | None:
        header = list(HEADER.unpack_from(packet.datagram))
        header[8] = self.description.number & 0xFFFF
        HEADER.pack_into(packet.datagram, 0, *header)
        return original(self, packet, length, now)

    original = Operation.receive
    monkeypatch.setattr(Operation, "receive", receive)
    with pytest.raises(CAUGHT):
        test_operation.test_accepts_nothing_but_its_own_round_of_its_own_operation({"operation": 1})


GUARD_BITS = "std::bit_width(static_cast<unsigned>(ranks - 1))"

# Faults of the worker, with the checks that must see each.
WORKER_FAULTS = {
    "one guard bit less": (
        Fault("codec/numbers.cpp", GUARD_BITS, f"({GUARD_BITS} - 1)"),
        ["check_codec", "check_numbers_do_not_overflow"],
    ),
    # It overflows nothing; only the bits of the result show it.
    "one guard bit more": (
        Fault("codec/numbers.cpp", GUARD_BITS, f"({GUARD_BITS} + 1)"),
        ["check_codec"],
    ),
    "rounds up": (
        Fault(
            "worker/blocks.cpp",
            "codec::quantise(numbers_, blocks, elements, exponents, out);",
            "codec::quantise(numbers_, blocks, elements, exponents, out);"
            "for (std::size_t i = 0; i < blocks * kBlock; ++i) out[i] |= 1;",
        ),
        ["check_codec"],
    ),
    "loses the greatest limb": (
        Fault(
            "worker/exact_tensor.cpp",
            "codec::exact_encode(tensor.dtype, tensor.elements, tensor.count, words_.data());",
            "codec::exact_encode(tensor.dtype, tensor.elements, tensor.count, words_.data());"
            "for (std::size_t i = 11; i < words_.size(); i += 13) words_[i] = 0;",
        ),
        ["check_codec"],
    ),
    # As the protocol once had it: the bits of a small sum depended on the path's MTU.
    "is exact where one packet is enough": (
        Fault(
            "worker/operation.cpp",
            "if (is_exact(tensor)) exact_.emplace(tensor);",
            "if (is_exact(tensor) && 13 * tensor.count <= 64 * (session.place.lanes - 1))"
            " exact_.emplace(tensor);",
        ),
        ["check_codec"],
    ),
    "forgets classes": (
        Fault(
            "worker/blocks.cpp",
            "codec::class_counts(tensor_.dtype, source(block), length(block), out);",
            "",
        ),
        ["check_codec"],
    ),
    "takes blocks of the wrong row": (
        Fault(
            "worker/columns.cpp",
            "columns.agreed[columns.agreements++] = {block, low};",
            "columns.agreed[columns.agreements++] = {row > 0 ? block - row_blocks_ : block, low};",
        ),
        ["check_schedules"],
    ),
    "never repeats": (
        Fault(
            "worker/operation.cpp",
            "if (slot.deadline <= now) {",
            "if (slot.deadline <= now) slot.expired(now, trip.cap()); if (false) {",
        ),
        ["check_schedules"],
    ),
    # The next round's data in place of the outstanding one's, say.
    "repeats something else": (
        Fault(
            "worker/operation.cpp",
            "} else { ++session_.counts.retransmissions;",
            "} else { ++session_.counts.retransmissions; slot.packet.blocks()[0] ^= 1;",
        ),
        ["check_schedules"],
    ),
}


@pytest.mark.parametrize(
    ("name", "check"), [(name, check) for name in WORKER_FAULTS for check in WORKER_FAULTS[name][1]]
)
def test_worker_that(name, check):
    assert catches(name, WORKER_FAULTS[name][0], f"test_planted_bugs:{check}")


def test_worker_built_without_a_fault():
    for check in ("check_codec", "check_schedules"):
        assert not catches("none", None, f"test_planted_bugs:{check}")


# Faults of the engine: a text of its sources, and what stands in its place.
ENGINE_FAULTS = {
    "counts a contribution twice": Fault(
        "engine/slots.cpp",
        "overflows += merge(opcode, block(own, lane), arriving);",
        "overflows += merge(opcode, block(own, lane), arriving);"
        "if (states_[slot].round % 8 == 3) merge(opcode, block(own, lane), arriving);",
    ),
    "forgets who was seen": Fault(
        "engine/rounds.cpp",
        "slots_.merge_words(in_pool, packet);",
        "slots_.merge_words(in_pool, packet); slot.seen &= ~std::uint64_t{1};",
    ),
    "completes a round too soon": Fault(
        "engine/slots.hpp",
        "return seen == everyone;",
        "return ((everyone & ~seen) & ((everyone & ~seen) - 1)) == 0;",
    ),
    "keeps one version only": Fault(
        "engine/slots.cpp",
        "std::int32_t* own = body(slot, version);",
        "std::int32_t* own = body(slot, states_[slot].round & 1);",
    ),
    "does not replay the round before": Fault(
        "engine/rounds.cpp",
        "++counters_[Counter::Replays]; sender_.replay(",
        "++counters_[Counter::Replays];"
        "if (header.round == slots_[job.slot_base + header.slot].round) sender_.replay(",
    ),
}


@pytest.mark.parametrize("name", ENGINE_FAULTS)
def test_engine_with_a_fault(name):
    library = build(ENGINE_FAULTS[name])
    with pytest.raises(CAUGHT):
        check_engine(BuiltEngine(library, slots=64))
    with pytest.raises(CAUGHT):
        check_schedules(make_engine=lambda: BuiltEngine(library))


def test_engine_built_without_a_fault():
    library = build()
    check_engine(BuiltEngine(library, slots=64))
    check_schedules(make_engine=lambda: BuiltEngine(library))

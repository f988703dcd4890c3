"""Faults put in on purpose: each must be caught by a check that passes without it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.drivers.golden_check import check_counters, check_operation
from tests.drivers.tensors import OPERATIONS, awkward
from tests.drivers.test_soft_engine import compare_engines, tickets_of
from tests.drivers.virtual_job import VirtualJob, at_random, counters_of

from afflux_drivers import columns, direct, exact, fixed_point, operation, soft_engine, soft_slot
from afflux_drivers.errors import AffluxError
from afflux_drivers.operation import Operation
from afflux_drivers.packets import HEADER, PacketBuffer
from afflux_drivers.reduction import Reduction
from afflux_drivers.soft_engine import SoftEngine
from afflux_hdl import wire

# What a fault may look like: wrong bits or counts, an impossible packet, no end, a crash.
CAUGHT = (AssertionError, AffluxError, IndexError, ValueError, RuntimeError)


def check_codec() -> None:
    """A few reductions of awkward tensors in a perfect network, without overflows."""
    generator = np.random.default_rng(11)
    for workers in (2, 5):
        job = VirtualJob(workers, 3, 2)
        for dtype, reduction in OPERATIONS:
            for count in (9, 1000):
                tensors = [awkward(generator, count, dtype, True) for _ in range(workers)]
                check_operation(job, tensors, dtype, reduction)
        check_counters(job)


def check_numbers_do_not_overflow() -> None:
    job = VirtualJob(4, 16, 1)
    greatest = np.full(2000, np.finfo(np.float32).max, np.float32)
    job.all_reduce([greatest] * 4, wire.Dtype.FLOAT32, Reduction.AVG)
    assert counters_of(job.engine)["overflows"] == 0


def check_schedules(receive: Callable[..., memoryview | None] = Operation.receive) -> None:
    """Operations under loss, doubling and long delays."""
    for seed in range(4):
        generator = np.random.default_rng(seed)
        job = VirtualJob(3, 2, 2)
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


def check_engine() -> None:
    compare_engines(SoftEngine(slots=64), tickets_of([(3, 4, 2, 6, 0xFFFF_FFFE)]), 5, 2500)


@pytest.mark.parametrize(
    "check", [check_codec, check_numbers_do_not_overflow, check_schedules, check_engine]
)
def test_without_a_fault_the_checks_pass(check):
    check()


def test_worker_that_accepts_any_round():
    def receive(
        self: Operation, packet: PacketBuffer, length: int, now: float
    ) -> memoryview | None:
        """As the real one, but told that whatever comes is of the round it waits for."""
        header = list(HEADER.unpack_from(packet.datagram))
        if header[4] < len(self._active):
            header[6] = self._active[header[4]].round
            HEADER.pack_into(packet.datagram, 0, *header)
        return Operation.receive(self, packet, length, now)

    with pytest.raises(CAUGHT):
        check_schedules(receive)


def test_worker_that_ignores_the_operation_number(monkeypatch):
    """Rounds never restart, so this one is caught by the accept rule's own test only."""
    from tests.drivers import test_operation

    def receive(
        self: Operation, packet: PacketBuffer, length: int, now: float
    ) -> memoryview | None:
        header = list(HEADER.unpack_from(packet.datagram))
        header[8] = self._number
        HEADER.pack_into(packet.datagram, 0, *header)
        return original(self, packet, length, now)

    original = Operation.receive
    monkeypatch.setattr(Operation, "receive", receive)
    with pytest.raises(CAUGHT):
        test_operation.test_accepts_nothing_but_its_own_round_of_its_own_operation({"operation": 1})


def plant(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Any) -> None:
    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, fault)


@pytest.mark.parametrize("less", [1, -1])
@pytest.mark.parametrize("check", [check_codec, check_numbers_do_not_overflow])
def test_codec_with_one_guard_bit_less_or_more(monkeypatch, less, check):
    right = fixed_point.guard_bits
    plant(monkeypatch, fixed_point, "guard_bits", lambda workers: right(workers) - less)
    if less < 0 and check is check_numbers_do_not_overflow:
        # A bit wasted overflows nothing; only the bits of the result show it.
        check()
    else:
        with pytest.raises(CAUGHT):
            check()


def test_codec_that_truncates(monkeypatch):
    right = fixed_point.FixedPoint.quantise

    def quantise(
        self: fixed_point.FixedPoint, blocks: np.ndarray, low: bytes, out: np.ndarray
    ) -> None:
        scales = self._scales.take(np.frombuffer(low, np.uint8), axis=0)
        right(self, np.trunc(blocks * scales) / scales, low, out)

    plant(monkeypatch, fixed_point.FixedPoint, "quantise", quantise)
    with pytest.raises(CAUGHT):
        check_codec()


def test_codec_that_rounds_twice(monkeypatch):
    right = fixed_point.floats.narrow

    def narrow(values: np.ndarray, dtype: wire.Dtype, out: np.ndarray) -> None:
        right(values.astype(np.float32).astype(np.float64), dtype, out)

    plant(monkeypatch, fixed_point.floats, "narrow", narrow)
    from tests.drivers import test_numbers

    with pytest.raises(CAUGHT), np.errstate(all="ignore"):
        for dtype in (wire.Dtype.FLOAT16, wire.Dtype.BFLOAT16):
            test_numbers.test_narrow_rounds_once(dtype)


def test_exact_mode_that_loses_the_greatest_limb(monkeypatch):
    right = exact.encode

    def encode(elements: np.ndarray) -> np.ndarray:
        words = right(elements)
        words[:, 11] = 0
        return words

    plant(monkeypatch, direct.exact, "encode", encode)
    with pytest.raises(CAUGHT):
        check_codec()


def test_worker_that_forgets_classes(monkeypatch):
    plant(monkeypatch, columns.classes, "class_counts", lambda e: np.zeros(e.shape, np.int32))
    with pytest.raises(CAUGHT):
        check_codec()


def test_worker_that_takes_blocks_of_the_wrong_row(monkeypatch):
    right = columns.Columns.take

    def take(self: columns.Columns, slot: int, present: int, blocks: np.ndarray) -> None:
        agreement = self._agreed[slot]
        if agreement.row > 0:
            agreement.row -= 1
        right(self, slot, present, blocks)

    plant(monkeypatch, columns.Columns, "take", take)
    with pytest.raises(CAUGHT):
        check_schedules()


def test_worker_that_never_repeats(monkeypatch):
    def expire(self: Operation, now: float) -> Any:
        self.next_timer = now + 1
        return iter(())

    plant(monkeypatch, operation.Operation, "expire", expire)
    with pytest.raises(CAUGHT):
        check_schedules()


def test_worker_that_repeats_something_else(monkeypatch):
    """The next round's data in place of the outstanding one's."""
    right = operation.Slot.again

    def again(self: operation.Slot) -> memoryview:
        datagram = right(self)
        if self.length > wire.UDP_PAYLOAD_MIN:
            datagram[wire.UDP_PAYLOAD_MIN] ^= 1
        return datagram

    plant(monkeypatch, operation.Slot, "again", again)
    with pytest.raises(CAUGHT):
        check_schedules()


def test_engine_that_counts_a_contribution_twice(monkeypatch):
    class Forgetful(soft_slot.SoftSlot):
        """Forgets one worker in eight rounds or so."""

        def add(self, present: int, blocks: np.ndarray, opcode: int) -> int:
            overflows = super().add(present, blocks, opcode)
            if self.round % 8 == 3 and self.seen.bit_count() > 1:
                super().add(present, blocks, opcode)
            return overflows

    plant(monkeypatch, soft_engine, "SoftSlot", Forgetful)
    for check in (check_engine, check_schedules):
        with pytest.raises(CAUGHT):
            check()


def test_engine_that_forgets_who_was_seen(monkeypatch):
    right = soft_slot.SoftSlot.take_least

    def take_least(self: soft_slot.SoftSlot, words: np.ndarray) -> None:
        self.seen &= ~1
        right(self, words)

    plant(monkeypatch, soft_slot.SoftSlot, "take_least", take_least)
    for check in (check_engine, check_schedules):
        with pytest.raises(CAUGHT):
            check()


def test_engine_that_opens_a_round_too_soon(monkeypatch):
    right = soft_engine.SoftEngine._frame

    def frame(self: SoftEngine, data: bytes) -> None:
        for job in self._jobs:
            for slot in job.slots if job is not None else ():
                if slot.seen.bit_count() == job.workers - 1:
                    slot.seen = job.everyone
        right(self, data)

    plant(monkeypatch, soft_engine.SoftEngine, "_frame", frame)
    for check in (check_engine, check_schedules):
        with pytest.raises(CAUGHT):
            check()


def test_engine_that_keeps_one_version_only(monkeypatch):
    right = soft_slot.SoftSlot.result

    def result(self: soft_slot.SoftSlot, version: int) -> bytes:
        return right(self, self.round & 1)

    plant(monkeypatch, soft_slot.SoftSlot, "result", result)
    for check in (check_engine, check_schedules):
        with pytest.raises(CAUGHT):
            check()

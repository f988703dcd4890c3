"""Whole all-reduces of golden workers through the golden engine, against exact sums."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import ABSENT, DATA, PROBE, Endpoint, Packet, parse_packet
from afflux_sim.golden.network import deliver, run_in_order, run_unkindly
from afflux_sim.golden.reductions import Tensor, all_reduce
from afflux_sim.golden.state import Job
from afflux_sim.golden.worker import GoldenWorker
from tests.support.golden_job import JOB, new_job
from tests.support.golden_tensors import DTYPES, KINDS, bits_of, draw, reductions

OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]


def assert_all_equal(results: Sequence[Tensor], tensors, dtype, reduction) -> None:
    expected = all_reduce(tensors, dtype, reduction)
    for worker, result in enumerate(results):
        assert result.shape == expected.shape
        wrong = bits_of(result, dtype) != bits_of(expected, dtype)
        assert not wrong.any(), f"worker {worker}: {np.flatnonzero(wrong)[:10]}"


def sizes(lanes: int, slots: int) -> list[int]:
    """Sizes at which something ends: an element, a block, a packet, a row, a direct operation."""
    block = 64
    ends = [block, lanes * block, lanes * slots * block, 2 * lanes * slots * block]
    ends += [(lanes - 1) * block, (lanes - 1) * block // 2]
    return sorted({max(0, end + i) for end in [*ends, 1] for i in (-1, 0, 1)})


@pytest.mark.parametrize(("lanes", "slots"), [(1, 1), (2, 1), (2, 3), (5, 2), (16, 2)])
def test_sizes_at_every_boundary(lanes, slots):
    rng = np.random.default_rng(lanes)
    engine, workers = new_job(workers=2, lanes=lanes, slots=slots)
    for at, count in enumerate(sizes(lanes, slots)):
        dtype, reduction = OPERATIONS[at % len(OPERATIONS)]
        tensors = [draw(rng, "dense", dtype, count) for _ in workers]
        results = run_in_order(engine.receive, workers, tensors, dtype, reduction)
        assert_all_equal(results, tensors, dtype, reduction)


@pytest.mark.parametrize(
    "n", [1, 2, 3, 5, 8, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 6, 7, 64))]
)
def test_numbers_of_workers(n):
    rng = np.random.default_rng(n)
    engine, workers = new_job(workers=n, lanes=4, slots=2)
    for dtype, reduction, kind in (
        ("float32", "sum", "special"),
        ("float16", "avg", "huge"),
        ("int32", "sum", "dense"),
        ("bfloat16", "min", "special"),
    ):
        for count in (5, 700):
            tensors = [draw(rng, kind, dtype, count) for _ in workers]
            results = run_in_order(engine.receive, workers, tensors, dtype, reduction)
            assert_all_equal(results, tensors, dtype, reduction)


def test_shapes_are_kept():
    engine, workers = new_job(workers=2, lanes=2)
    tensors = [np.ones((3, 4, 50), dtype=np.float32)] * 2
    for result in run_in_order(engine.receive, workers, tensors, "float32", "avg"):
        assert np.array_equal(result, tensors[0])
    for result in run_in_order(
        engine.receive, workers, [np.array(7, np.float32)] * 2, "float32", "sum"
    ):
        assert result == np.float32(14)


def test_rows_that_are_zero_everywhere_are_never_sent():
    engine, workers = new_job(workers=2, lanes=1)
    tensors = [np.zeros(64 * 1000, dtype=np.float32) for _ in workers]
    tensors[0][64 * 5] = 1
    tensors[1][64 * 5] = 2
    tensors[1][64 * 999] = 3
    results = run_in_order(engine.receive, workers, tensors, "float32", "sum")
    assert_all_equal(results, tensors, "float32", "sum")
    assert engine.counters["rounds"] == 3
    # Two fingerprints and three blocks of the tensors.
    assert engine.counters["blocks_accepted"] == 5


def test_small_tensors_take_one_round():
    engine, workers = new_job(workers=2, lanes=16, slots=4)
    for rounds, (dtype, reduction, count) in enumerate(
        [
            ("float32", "sum", 480),
            ("float16", "avg", 960),
            ("int32", "sum", 960),
            ("bfloat16", "max", 960),
            ("float32", "sum", 0),
        ]
    ):
        tensors = [draw(np.random.default_rng(1), "dense", dtype, count)] * 2
        run_in_order(engine.receive, workers, tensors, dtype, reduction)
        assert engine.counters["rounds"] == rounds + 1
    run_in_order(engine.receive, workers, [np.ones(481, np.float32)] * 2, "float32", "sum")
    assert engine.counters["rounds"] == 5 + 2


@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [
        # A lane, all of them, and for each dtype some others; `make test-long` has every number.
        pytest.param(
            dtype,
            lanes,
            marks=pytest.mark.long if lanes not in (1, 16) and lanes % 6 != 2 * at else (),
        )
        for at, dtype in enumerate(("float32", "float16", "bfloat16"))
        for lanes in range(1, 17)
    ],
)
def test_the_number_of_lanes_changes_no_bit(dtype, lanes):
    rng = np.random.default_rng(lanes)
    engine, workers = new_job(workers=3, lanes=lanes, slots=2)
    for count in (1, 21, 22, 85, 86, 320, 321):
        huge = draw(rng, "huge", dtype, count)
        # bfloat16 is given as bits.
        opposite: Tensor = (
            np.bitwise_xor(huge, 0x8000) if dtype == "bfloat16" else np.negative(huge)
        )
        cancelling = [huge, opposite, draw(rng, "tiny", dtype, count)]
        special = [draw(rng, "special", dtype, count) for _ in workers]
        for tensors in (cancelling, special):
            for reduction in ("sum", "avg"):
                results = run_in_order(engine.receive, workers, tensors, dtype, reduction)
                assert_all_equal(results, tensors, dtype, reduction)


@pytest.mark.parametrize(
    ("lanes", "slots", "count", "rounds"),
    [
        (16, 2, 480, 1),
        (15, 2, 480, 2),
        (5, 4, 1000, 8),
        (5, 4, 128, 1),
        (5, 4, 129, 2),
        (1, 1, 1, 2),
    ],
)
def test_rounds_of_sums(lanes, slots, count, rounds):
    engine, workers = new_job(workers=2, lanes=lanes, slots=slots)
    run_in_order(engine.receive, workers, [np.ones(count, np.float32)] * 2, "float32", "sum")
    assert engine.counters["rounds"] == rounds


def test_infinities_take_no_round_of_their_own():
    engine, workers = new_job(workers=2, lanes=1)
    tensors = [np.ones(128, dtype=np.float32) for _ in workers]
    tensors[0][3] = np.inf
    results = run_in_order(engine.receive, workers, tensors, "float32", "sum")
    assert_all_equal(results, tensors, "float32", "sum")
    assert engine.counters["rounds"] == 3


def test_operation_numbers_go_on_past_16_bits():
    engine, workers = new_job(workers=2, lanes=2)
    for worker in workers:
        worker._next_number = 2**16 - 1
    for _ in range(3):
        tensors = [np.arange(200, dtype=np.int32)] * 2
        results = run_in_order(engine.receive, workers, tensors, "int32", "sum")
        assert_all_equal(results, tensors, "int32", "sum")


@pytest.mark.parametrize(
    ("dtype", "reduction", "count"),
    [
        ("float32", "sum", 11),
        ("float32", "avg", 10),
        ("float32", "max", 10),
        ("float16", "sum", 10),
        ("int32", "sum", 10),
    ],
)
def test_workers_that_disagree_all_fail(dtype, reduction, count):
    engine, workers = new_job(workers=2, lanes=4)
    one = np.ones(10, np.float32)
    other = draw(np.random.default_rng(0), "dense", dtype, count)
    workers[0].start(one, "float32", "sum")
    workers[1].start(other, dtype, reduction)
    for worker in workers:
        for frame in worker.frames_to_send():
            deliver(engine.receive(frame), workers)
    for worker in workers:
        assert worker.error
        assert worker.frames_to_send() == []
        with pytest.raises(ValueError):
            worker.start(one, "float32", "sum")


# The worker by itself.


def test_retransmission_is_byte_for_byte_and_a_probe_has_no_blocks():
    _, workers = new_job(workers=2, lanes=2)
    workers[0].start(np.ones(500, np.float32), "float32", "sum")
    (frame,) = workers[0].frames_to_send()
    assert workers[0].retransmit(0) == frame
    probe = parse_packet(workers[0].retransmit(0, probe=True))
    sent = parse_packet(frame)
    assert (sent.type, probe.type, probe.present) == (DATA, PROBE, 0)
    assert (probe.round, probe.operation) == (sent.round, sent.operation)


def test_missing_names_workers_and_brings_a_retransmission_from_whom_it_lacks():
    engine, workers = new_job(workers=3, lanes=2)
    frames = []
    for worker in workers:
        worker.start(np.ones(500, np.float32), "float32", "sum")
        frames += worker.frames_to_send()
    engine.receive(frames[0])
    for worker in workers:
        deliver(engine.receive(worker.retransmit(0, probe=True)), workers)
        assert worker.missing == {0: [1, 2]}
    assert [worker.frames_to_send() for worker in workers] == [[], [frames[1]], [frames[2]]]


@pytest.mark.parametrize(
    "at", [*range(6), *range(26, 38), 42, 44, 45, 46, 50, 53, 54, 61, 62], ids="byte {}".format
)
def test_a_worker_ignores_what_is_not_its_own(at):
    engine, workers = new_job(workers=1, lanes=2, slots=2)
    (worker,) = workers
    worker.start(np.ones(5000, np.float32), "float32", "sum")
    frame, _ = worker.frames_to_send()
    (result,) = engine.receive(frame)
    wrong = bytearray(result)
    # Slot 1 is outstanding too, so another one than that.
    wrong[at] ^= 0x40 if at in (42, 46) else 1
    worker.receive(bytes(wrong))
    worker.receive(result[:-1])
    assert worker.frames_to_send() == []
    worker.receive(result)
    assert len(worker.frames_to_send()) == 1
    # The same result once more is no longer of the outstanding round.
    worker.receive(result)
    assert worker.frames_to_send() == []


def test_words_of_lanes_that_the_job_does_not_have_are_absent():
    _, workers = new_job(workers=1, lanes=3)
    workers[0].start(np.ones(5000, np.float32), "float32", "sum")
    (frame,) = workers[0].frames_to_send()
    words = parse_packet(frame).words
    assert words[3:] == (ABSENT,) * 13
    # Row 0, exponent of 1.0.
    assert words[:3] == (128, 128, 128)


# Loss, duplication, delay, reordering, bad frames.


@settings(max_examples=60)
@given(
    choose=st.integers(0, 2**32 - 1).map(random.Random),
    n=st.integers(1, 5),
    lanes=st.integers(1, 4),
    slots=st.integers(1, 3),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    duplication=st.sampled_from([0.0, 0.1, 0.5]),
    operations=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(KINDS), st.integers(0, 700)),
        min_size=1,
        max_size=3,
    ),
)
def test_any_schedule_gives_the_same_bits(choose, n, lanes, slots, loss, duplication, operations):
    engine, workers = new_job(workers=n, lanes=lanes, slots=slots)
    rng = np.random.default_rng(9)

    def receive(frame: bytes) -> list[bytes]:
        # Bad ends and wrong checksums are loss, whatever else they may look like.
        if choose.random() < 0.1:
            assert engine.receive(frame, mac_error=True) == []
        return engine.receive(frame)

    for (dtype, reduction), kind, count in operations:
        tensors = [draw(rng, kind, dtype, count) for _ in workers]
        results = run_unkindly(
            receive,
            workers,
            tensors,
            dtype,
            reduction,
            choose=choose,
            loss=loss,
            duplication=duplication,
        )
        assert_all_equal(results, tensors, dtype, reduction)
    assert engine.counters["premature"] == 0


# Planted bugs: each of these engines must be caught by the all-reduces above.


class CountsTwice(GoldenEngine):
    """Adds a contribution again when it comes again."""

    def _data(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        counter, sent = super()._data(job, packet)
        if counter == "duplicates" and packet.round == job.slots[packet.slot].round:
            self._add(job, packet)
        return counter, sent


class LosesTheLast(GoldenEngine):
    """Completes a round without the blocks of the last worker's packet."""

    def _add(self, job: Job, packet: Packet) -> list[bytes]:
        blocks = dict(packet.blocks)
        if job.slots[packet.slot].seen == job.full and len(blocks) > 1:
            blocks.popitem()
        return super()._add(job, replace(packet, blocks=blocks))


class KeepsOldSums(GoldenEngine):
    """Forgets to clear `present` when a round opens."""

    def _data(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        slot = job.slots[packet.slot]
        version = slot.versions[packet.round & 1]
        present, opens = version.present, packet.round != slot.round
        if opens and packet.blocks:
            for lane in packet.blocks:
                if present >> lane & 1:
                    packet.blocks[lane][:] += version.blocks[lane]
        return super()._data(job, packet)


class OneVersion(GoldenEngine):
    """Keeps only the open round."""

    def _result(
        self, job: Job, slot: int, round_: int, worker: int, destination: Endpoint
    ) -> bytes:
        return super()._result(job, slot, job.slots[slot].round, worker, destination)


class MergesBadFrames(GoldenEngine):
    """Adds what a frame carries before its end has been checked."""

    def receive(self, frame: bytes, mac_error: bool = False) -> list[bytes]:
        if mac_error:
            packet = parse_packet(frame)
            job = self.jobs[JOB]
            assert job is not None
            slot = job.slots[packet.slot]
            if packet.round == slot.round and slot.seen != job.full:
                seen, slot.seen = slot.seen, 0
                self._add(job, packet)
                slot.seen = seen
        return super().receive(frame, mac_error)


class SignedWords(GoldenEngine):
    """Takes absent for −1, which is less than any row."""

    def _data(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        version = job.slots[packet.slot].versions[packet.round & 1]
        before = version.words
        counter, sent = super()._data(job, packet)
        if counter == "accepted" and job.slots[packet.slot].seen.bit_count() > 1:
            pairs = zip(before, packet.words, strict=True)
            version.words = tuple(ABSENT if ABSENT in pair else min(pair) for pair in pairs)
            if sent:
                sent = [
                    self._result(job, packet.slot, packet.round, worker, job.joined[worker])
                    for worker in range(job.workers)
                ]
        return counter, sent


def caught(engine_class: type[GoldenEngine], run: Callable[..., list[Tensor]]) -> bool:
    """Return whether an all-reduce through such an engine fails, hangs or differs."""
    for seed in range(8):
        engine, workers = new_job(workers=3, lanes=2, engine_class=engine_class)
        rng = np.random.default_rng(seed)
        tensors = [draw(rng, "dense", "float32", 1000) for _ in range(2)]
        tensors.append(draw(rng, "sparse", "float32", 1000))
        try:
            results = run(engine, workers, tensors, seed)
            assert_all_equal(results, tensors, "float32", "sum")
        except (AssertionError, ValueError, IndexError, KeyError):
            return True
    return False


def in_order(engine, workers: list[GoldenWorker], tensors, seed: int) -> list[Tensor]:
    return run_in_order(engine.receive, workers, tensors, "float32", "sum")


def unkindly(engine, workers: list[GoldenWorker], tensors, seed: int) -> list[Tensor]:
    choose = random.Random(seed)

    def receive(frame: bytes) -> list[bytes]:
        if choose.random() < 0.1:
            engine.receive(frame, mac_error=True)
        return engine.receive(frame)

    return run_unkindly(
        receive, workers, tensors, "float32", "sum", choose=choose, max_steps=20_000
    )


@pytest.mark.parametrize("run", [in_order, unkindly])
def test_the_golden_engine_itself_is_not_caught(run):
    assert not caught(GoldenEngine, run)


@pytest.mark.parametrize(
    ("engine_class", "run"),
    [
        (CountsTwice, unkindly),
        (LosesTheLast, in_order),
        (KeepsOldSums, in_order),
        (OneVersion, unkindly),
        (MergesBadFrames, unkindly),
        (SignedWords, in_order),
    ],
)
def test_planted_bugs_are_caught(engine_class, run):
    assert caught(engine_class, run)

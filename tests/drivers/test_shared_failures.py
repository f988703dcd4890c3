"""Shared-memory groups whose ranks disagree, die, wait, or have little memory."""

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

from afflux_drivers import _native
from tests.support.drivers.shared_processes import Processes

FLOAT32, SUM, MAX = 1, 0, 2

# The time in which a rank must learn that another one is dead: a twentieth of a second, and an
# allowance for a machine full of other work.
BOUND_S = 20


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes(3)
    yield processes
    processes.end()


@pytest.mark.parametrize("count", [10, 1000, 100_000])
def test_disagreement(processes: Processes, count: int) -> None:
    # -0 would become +0, if anything were written.
    tensor = np.full(count, -0.0, np.float32)
    tensor[::2] = 1
    with processes.group(3):
        for rank in range(3):
            processes.start(rank, "reduce", tensor, FLOAT32, SUM, difference=rank == 1)
        for rank in range(3):
            left, kind, _ = processes.answer(rank)
            assert kind == "GroupDisagreement"
            np.testing.assert_array_equal(left.view(np.uint32), tensor.view(np.uint32))
        assert processes.call_all(3, "ask", "fingerprints") == [[1, 2, 1]] * 3
        # No later operation either.
        for _, kind, _ in processes.call_all(3, "reduce", tensor, FLOAT32, SUM):
            assert kind == "GroupFailed"


def test_different_sizes_and_reductions(processes: Processes) -> None:
    for other_count, other_reduction in ((9, SUM), (100_000, SUM), (10, MAX)):
        with processes.group(2):
            processes.start(0, "reduce", np.ones(10, np.float32), FLOAT32, SUM)
            processes.start(1, "reduce", np.ones(other_count, np.float32), FLOAT32, other_reduction)
            assert [processes.answer(r)[1] for r in range(2)] == ["GroupDisagreement"] * 2


def test_giving_up(processes: Processes) -> None:
    with processes.group(3):
        for rank in (0, 1):
            processes.start(rank, "reduce", np.ones(10_000, np.float32), FLOAT32, SUM)
        time.sleep(0.1)
        processes.call(2, "ask", "fail", "the optimiser diverged")
        for rank in (0, 1):
            _, kind, text = processes.answer(rank)
            assert kind == "GroupFailed"
            assert text == "rank 2 reports: the optimiser diverged"
        assert processes.call(0, "ask", "failed")


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
def test_killed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    processes = Processes(3)
    try:
        with processes.group(3, batch_bytes=16384, reachable=1 << 19):
            victim = int(generator.integers(3))
            for rank in range(3):
                processes.start(rank, "repeat", seed)
            time.sleep(float(generator.uniform(0.05, 0.5)))
            processes.processes[victim].kill()
            start = time.monotonic()
            for rank in {0, 1, 2} - {victim}:
                _, text = processes.answer(rank)
                assert f"the process of rank {victim} has ended" in text
                assert processes.call(rank, "ask", "dead") == [victim]
            assert time.monotonic() - start < BOUND_S
    finally:
        processes.end()


@pytest.mark.parametrize("ranks", [2, 3])
def test_waiting_takes_no_processor(processes: Processes, ranks: int) -> None:
    """Neither where each rank has one of two to look from, nor where they take turns."""
    with processes.group(ranks):
        # All attached, and the first knows whether it may look before it sleeps.
        processes.call_all(ranks, "reduce", np.ones(10, np.float32), FLOAT32, SUM)
        processes.call(0, "ask", "begin", np.ones(10, np.float32), FLOAT32, SUM, 2)
        assert processes.call(0, "wait_idly", 2.0) < 0.1
        assert processes.call(0, "ask", "missing") == list(range(1, ranks))
        assert processes.call(0, "ask", "dead") == []


def test_little_memory(processes: Processes) -> None:
    """The memory in flight is bounded, needs no /dev/shm, and is gone with the group."""
    before = len(os.listdir("/proc/self/fd"))
    descriptors = processes.call_all(2, "descriptors")
    # A tensor of 16 MB and what compares it, in ranks that make and check it themselves: pickles of
    # it would take more than the group does.
    processes.call_all(2, "limit_memory", (32 << 20) + 3 * _native.shared_segment_bytes(2))
    with processes.group(2) as memfd:
        for _ in range(2):
            for right, text in processes.call_all(2, "reduce_ones", 4_000_000):
                assert right, text
        held = os.fstat(memfd).st_blocks * 512
        assert held <= _native.shared_segment_bytes(2)
        for mappings in processes.call_all(2, "mappings"):
            assert "afflux-test" in mappings
            assert "/dev/shm" not in mappings
        # More than the limit lets in: an error here, and the group goes on.
        with pytest.raises(AssertionError, match="MemoryError"):
            processes.call(0, "ask", "allocate", 0, 1 << 30)
        assert processes.call_all(2, "reduce_ones", 10) == [(True, "")] * 2
    for mappings in processes.call_all(2, "mappings"):
        assert "afflux-test" not in mappings
    assert processes.call_all(2, "descriptors") == descriptors
    # Objects of earlier tests may be closed meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= before


def test_reachable_memory_is_given_back(processes: Processes) -> None:
    with processes.group(2) as memfd:
        processes.call_all(2, "allocate", 0, 1 << 20)
        tensor = np.ones(1 << 18, np.float32)
        for rank in range(2):
            processes.start(rank, "reduce", tensor, FLOAT32, SUM, 0)
        for rank in range(2):
            processes.answer(rank)
        held = os.fstat(memfd).st_blocks * 512
        assert held >= 2 << 20
        # A new one in its place: the old one's memory returns to the system.
        processes.call_all(2, "allocate", 1 << 20, 4096)
        assert os.fstat(memfd).st_blocks * 512 <= held - (2 << 20)
        assert processes.call(0, "ask", "statistics")["reachable_bytes"] == 4096


def test_refused() -> None:
    with pytest.raises(ValueError, match="1 to 64 ranks"):
        _native.initialise_segment(0, 65)
    memfd = os.memfd_create("afflux-test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    _native.initialise_segment(memfd, 1)
    with pytest.raises(ValueError, match="in use"):
        _native.initialise_segment(memfd, 1)
    group = _native.SharedGroup(memfd, 0, 1)
    tensor = np.ones(100, np.float32)
    with pytest.raises(ValueError, match="reduction"):
        group.begin(tensor, FLOAT32, 7, 0)
    with pytest.raises(ValueError, match="storage"):
        group.begin(tensor.astype(np.float64), FLOAT32, SUM, 0)
    with pytest.raises(RuntimeError, match="no operation"):
        group.advance(0.0)
    group.begin(tensor, FLOAT32, SUM, 0)
    with pytest.raises(RuntimeError, match="in progress"):
        group.begin(tensor, FLOAT32, SUM, 0)
    assert group.advance(0.0)
    child = os.fork()
    if child == 0:
        try:
            group.begin(tensor, FLOAT32, SUM, 0)
        except _native.GroupFailed:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    group.begin(tensor, FLOAT32, SUM, 0)
    assert group.advance(0.0)
    group.close()
    with pytest.raises(_native.GroupFailed, match="closed"):
        group.advance(0.0)

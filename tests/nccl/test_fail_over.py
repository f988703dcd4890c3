"""The aggregator ends in the middle of a step: the nodes go on over streams, with the same bits."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from afflux_sim.golden.reductions import all_reduce
from tests.nccl.planted_checks import vanishing
from tests.support.golden_tensors import bits_of, draw
from tests.support.host import serving
from tests.support.nccl.node import Buffer, Comm, Node, PluginError, run_nodes

# Nodes do not sum so many bytes in one hop.
STEPS, SLOTS, COUNT = 120, 8, 30_000
TENSORS = 2
KINDS = ("soft", "streams")


def drawn(rank: int, step: int) -> npt.NDArray[Any]:
    return draw(np.random.default_rng((rank, step % TENSORS)), "mixed", "float32", COUNT)


@cache
def expected(size: int) -> list[npt.NDArray[Any]]:
    """Return the bits of each tensor's sum."""
    return [
        bits_of(all_reduce([drawn(r, s) for r in range(size)], "float32", "sum"), "float32")
        for s in range(TENSORS)
    ]


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the URL of an aggregator of the kind that the test names, and its process."""
    process, line = serving.start("--port", "0", "--no-secret", engine=(request.param,))
    try:
        yield next(word for word in line.split() if "://" in word).rstrip(",.;"), process
    finally:
        process.kill()
        serving.finish(process)


class Steps:
    """Steps of one communicator, eight in flight."""

    def __init__(self, node: Node) -> None:
        node.init()
        self.node, self.comm = node, node.form()
        self._send, self._receive = (Buffer(SLOTS * 4 * COUNT) for _ in range(2))
        for each in (self._send, self._receive):
            self.comm.register(each)
        self._flying: list[int] = []
        self._posted = 0
        self.found: list[npt.NDArray[Any]] = []

    def post(self) -> None:
        """Post one more; wait for the earliest if all slots are in use."""
        if len(self._flying) == SLOTS:
            self.take()
        at = self._posted % SLOTS * 4 * COUNT
        self._send.view("float32", at, COUNT)[:] = drawn(self.node.rank, self._posted)
        places = (self._send, at), (self._receive, at)
        request = self.comm.iallreduce(*places, COUNT, "float32", "sum")
        assert request is not None
        self._flying.append(request)
        self._posted += 1

    def take(self) -> None:
        self.comm.wait(self._flying.pop(0))
        at = len(self.found) % SLOTS * 4 * COUNT
        self.found.append(bits_of(self._receive.view("float32", at, COUNT).copy(), "float32"))

    def end(self) -> list[npt.NDArray[Any]]:
        while self._flying:
            self.take()
        self.comm.close()
        return self.found


def check(found: list[tuple[list[npt.NDArray[Any]], list[str]]]) -> None:
    sums = expected(len(found))
    for bits, warnings in found:
        assert len(bits) == STEPS
        assert all((each == sums[step % TENSORS]).all() for step, each in enumerate(bits))
        (warning,) = warnings
        assert "the aggregator at " in warning or "the job is over" in warning
        assert warning.endswith("; the nodes go on over streams to each other")


def with_a_death(
    node: Node, aggregator: int, after: int, how: int
) -> tuple[list[npt.NDArray[Any]], list[str]]:
    steps = Steps(node)
    for step in range(STEPS):
        if node.rank == 0 and step == after:
            os.kill(aggregator, how)
        steps.post()
    return steps.end(), node.warnings()


@pytest.mark.parametrize(
    "after", [1, 37, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 80))]
)
@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_steps_in_flight_end_with_the_same_bits(served, after):
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url}
    call = process.pid, after, signal.SIGKILL
    found = run_nodes(with_a_death, 3, *call, environment=environment, limit_s=60)
    check(found)


@pytest.mark.parametrize("served", ["soft"], indirect=True)
def test_nodes_that_lag_behind_get_what_others_have(served):
    """Packets to node 2 are lost, so the others have ended operations that it has not."""
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_NCCL_JOBS": "3"}
    own = {2: {"AFFLUX_TEST_LOSS": "0.1", "AFFLUX_TEST_SEED": "5"}}
    call = process.pid, 20, signal.SIGKILL
    found = run_nodes(with_a_death, 3, *call, environment=environment, own=own, limit_s=60)
    check(found)


@pytest.mark.parametrize("served", ["soft"], indirect=True)
def test_an_aggregator_that_is_silent_has_ended(served):
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_PEER_TIMEOUT": "0.5"}
    call = process.pid, 20, signal.SIGSTOP
    found = run_nodes(with_a_death, 2, *call, environment=environment, limit_s=60)
    check(found)


def in_the_last_step(node: Node, aggregator: int) -> tuple[list[npt.NDArray[Any]], list[str]]:
    steps = Steps(node)
    for _ in range(STEPS):
        steps.post()
    if node.rank == 0:
        # The slots of all have steps in flight.
        os.kill(aggregator, signal.SIGKILL)
    return steps.end(), node.warnings()


@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_the_last_steps_before_the_end(served):
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url}
    found = run_nodes(in_the_last_step, 3, process.pid, environment=environment, limit_s=60)
    for bits, _ in found:
        assert len(bits) == STEPS
        assert all((each == expected(3)[step % TENSORS]).all() for step, each in enumerate(bits))


def at_any_time(node: Node, aggregator: int, seed: int) -> int:
    """Sum vectors of any length; a timer kills the aggregator. Return how many are right."""
    draws = np.random.default_rng(seed)
    node.init()
    comm = node.form()
    counts = draws.integers(1, COUNT, STEPS)
    ops = draws.choice(["sum", "max"], STEPS)
    send, receive = (Buffer(SLOTS * 4 * COUNT) for _ in range(2))
    for each in (send, receive):
        comm.register(each)
    if node.rank == 0:
        threading.Timer(draws.exponential(0.15), os.kill, (aggregator, signal.SIGKILL)).start()
    flying: list[int] = []
    right = 0
    for step in range(STEPS + SLOTS):
        at = step % SLOTS * 4 * COUNT
        if step >= SLOTS:
            comm.wait(flying.pop(0))
            before = step - SLOTS
            number = node.size * (node.size + 1) // 2 if ops[before] == "sum" else node.size
            found = receive.view("int32", at, counts[before])
            right += bool((found == number * (np.arange(counts[before]) % 1000 + 1)).all())
        if step < STEPS:
            values = (node.rank + 1) * (np.arange(counts[step]) % 1000 + 1)
            send.view("int32", at, counts[step])[:] = values
            request = comm.iallreduce((send, at), (receive, at), counts[step], "int32", ops[step])
            assert request is not None
            flying.append(request)
    comm.close()
    return right


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_any_steps_at_any_time(served, seed):
    url, process = served
    draws = np.random.default_rng(1000 + seed)
    size = int(draws.integers(2, 6))
    jobs = str(draws.integers(1, 9))
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_NCCL_JOBS": jobs}
    lossy = {int(draws.integers(size)): {"AFFLUX_TEST_LOSS": "0.1", "AFFLUX_TEST_SEED": f"{seed}"}}
    call = process.pid, seed
    found = run_nodes(at_any_time, size, *call, environment=environment, own=lossy)
    assert found == [STEPS] * size


def over_and_over(node: Node, aggregator: int) -> tuple[str, float] | None:
    """Sum; after the aggregator node 1 ends, too."""
    steps = Steps(node)
    for step in range(STEPS):
        if step == 40 and node.rank == 0:
            os.kill(aggregator, signal.SIGKILL)
        if step == 90 and node.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        try:
            steps.post()
        except PluginError as error:
            return str(error), time.monotonic() - began
    return None


@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_a_node_that_ends_later_ends_the_communicator(served):
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url}
    found = run_nodes(over_and_over, 3, process.pid, environment=environment, may_die=[1])
    for each in (found[0], found[2]):
        text, seconds = each
        assert "node 1" in text and "has gone" in text
        assert seconds < 3


def both_at_once(node: Node, aggregator: int) -> tuple[str, float] | None:
    steps = Steps(node)
    for step in range(STEPS):
        if step == 40 and node.rank == 1:
            os.kill(aggregator, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        try:
            steps.post()
        except PluginError as error:
            return str(error), time.monotonic() - began
    return None


@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_a_node_that_ends_with_the_aggregator(served):
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_CONNECT_TIMEOUT": "1"}
    found = run_nodes(both_at_once, 3, process.pid, environment=environment, may_die=[1])
    for each in (found[0], found[2]):
        assert each is not None
        assert "node 1" in each[0]
        assert each[1] < 3


@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_required_aggregators_are_not_replaced(served):
    url, process = served
    environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_REQUIRE": "1"}
    found = run_nodes(over_and_over, 3, process.pid, environment=environment, may_die=[1])
    for each in (found[0], found[2]):
        assert each is not None
        assert "go on" not in each[0]


def two_comms(node: Node, aggregator: int) -> list[float]:
    """Two communicators of the same nodes; the second is idle when the aggregator ends."""
    node.init()
    comms: list[Comm] = [node.form(), node.form()]
    buffers = Buffer(4 * COUNT), Buffer(4 * COUNT)
    found = []
    for step in range(6):
        if step == 3:
            node.gather(0)
            if node.rank == 0:
                os.kill(aggregator, signal.SIGKILL)
        for comm in comms if step > 4 else comms[:1]:
            ones = np.ones(COUNT, np.float32)
            found.append(float(comm.all_reduce(ones, "float32", "sum", buffers)[-1]))
    for comm in comms:
        comm.close()
    return found


@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_communicators_that_rest_when_it_ends(served):
    url, process = served
    found = run_nodes(two_comms, 3, process.pid, environment={"AFFLUX_AGGREGATOR": url})
    assert found == [[3.0] * 7] * 3


@pytest.mark.parametrize("served", ["streams"], indirect=True)
def test_an_aggregator_that_node_0_alone_names(served):
    """The others go on all the same: what has been formed counts."""
    url, process = served
    own = {rank: {"AFFLUX_AGGREGATOR": "streams://", "AFFLUX_INTERFACE": "lo"} for rank in (1, 2)}
    call = process.pid, 37, signal.SIGKILL
    check(run_nodes(with_a_death, 3, *call, environment={"AFFLUX_AGGREGATOR": url}, own=own))


@pytest.mark.parametrize("kind", KINDS)
def test_an_aggregators_host_that_vanishes(kind):
    """Nothing says that it has gone: no connection ends, and no port refuses."""
    vanishing("", kind)

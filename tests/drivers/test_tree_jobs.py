"""Trees of aggregators over real sockets, created by one process as rank 0 does."""

import contextlib
import json
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_drivers.control.several import JobsLease
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.control.tree import create_tree
from afflux_drivers.errors import AggregatorRefused, AggregatorUnreachable, DeadlineExceeded
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.frames_only import FramesOnly
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.groups import free_group, why_no_group
from tests.support.drivers.ranks import run_ranks
from tests.support.drivers.served import Served
from tests.support.drivers.tensors import OPERATIONS, awkward, gaussian

F32 = wire.Dtype.FLOAT32


@contextlib.contextmanager
def serving(*engines: Engine, group: bool = False) -> Iterator[list[Served]]:
    running: list[Served] = []
    try:
        for engine in engines:
            running.append(Served(engine, free_group() if group else None))
        yield running
    finally:
        for each in running:
            each.stop()


def mixed() -> list[Engine]:
    """Return a parent that takes frames, a leaf with three threads, one with one."""
    return [FramesOnly(), SoftEngine(shares=3), SoftEngine()]


@pytest.fixture(params=["sockets", "mixed"])
def three(no_threads_left: None, request: pytest.FixtureRequest) -> Iterator[list[Served]]:
    """Serve a parent and two leaves."""
    engines = mixed() if request.param == "mixed" else [SoftEngine(), SoftEngine(), SoftEngine()]
    with serving(*engines) as running:
        yield running


class TreeRanks:
    """The workers of all ranks of a tree, joined; closes them at the end of a `with`."""

    def __init__(self, lease: JobsLease, loss: float = 0.0) -> None:
        homes = {rank: ticket for ticket in lease.tickets for rank in ticket.members}
        self.workers = [
            Worker([homes[rank]], rank, loss=LossSwitch(loss, 3, rank)) for rank in sorted(homes)
        ]

    def __enter__(self) -> "TreeRanks":
        for worker in self.workers:
            worker.join(10.0)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    def all_reduce(self, tensors, dtype, reduction, timeout_s=30.0, ranks=None):
        def function(worker, tensor):
            flat = tensor.reshape(-1)
            return lambda: worker.all_reduce(flat, dtype, reduction, tensor.shape, timeout_s)

        pairs = list(zip(self.workers, tensors, strict=True))
        return run_ranks([function(*pairs[rank]) for rank in ranks or range(len(pairs))])


def check(lease: JobsLease, loss: float, lanes: int, count: int = 6000) -> None:
    generator = np.random.default_rng(5)
    with TreeRanks(lease, loss) as ranks:
        for dtype, reduction in OPERATIONS:
            tensors = [awkward(generator, count, dtype, True) for _ in ranks.workers]
            results = ranks.all_reduce(tensors, dtype, reduction)
            assert_same_bits(results, expected(tensors, dtype, reduction))


@pytest.mark.parametrize("loss", [pytest.param(0.0, marks=pytest.mark.long), 0.05])
def test_two_leaves_give_the_bits_of_one_aggregator(three, loss):
    parent, *leaves = (each.address for each in three)
    # The second leaf's first rank is 1: numbers within a leaf are not ranks.
    lease = create_tree(parent, [leaves[0], leaves[1], leaves[1], leaves[0]], 16, 8, 5.0)
    assert [ticket.members for ticket in lease.tickets] == [(0, 3), (1, 2)]
    assert {ticket.size for ticket in lease.tickets} == {4}
    check(lease, loss, lanes=16)
    above = read_counters(parent, 5.0)
    below = [read_counters(leaf, 5.0) for leaf in leaves]
    assert above["rounds"] == below[0]["rounds"] == below[1]["rounds"] > 0
    # A leaf repeats its JOIN if the answer takes longer than it waits (section 10.3).
    assert above["joins"] >= 2
    # Two ranks' packets have gone up as one.
    assert above["accepted"] == 2 * above["rounds"]
    for counters in below:
        assert counters["accepted"] == 2 * counters["rounds"]
        assert counters["parent_results"] == counters["rounds"]
    lease.close()
    lease.close()
    # All that the tree had is free again, ports included.
    create_tree(parent, [leaves[0], leaves[1]], 16, 8, 5.0).close()


def test_a_parent_with_a_group_sends_to_each_leaf():
    with serving(SoftEngine(), group=True) as (parent,), serving(SoftEngine()) as (leaf,):
        lease = create_tree(parent.address, [leaf.address] * 2, 16, 8, 5.0)
        check(lease, 0.0, lanes=16)
        counters = read_counters(leaf.address, 5.0)
        assert counters["parent_results"] == counters["rounds"] > 0
        # To nobody but the leaf, and for nobody but it.
        assert counters["bad_worker"] == 0
        above = read_counters(parent.address, 5.0)
        asked = above["duplicates"] + above["probes"]
        assert 0 <= above["frames_out"] - above["joins"] - above["rounds"] <= asked
        if counters["duplicates"] + counters["probes"] == 0:
            assert asked == 0
        lease.close()


def test_leaves_with_groups():
    reason = why_no_group(free_group())
    if reason:
        pytest.skip(reason)
    with (
        serving(SoftEngine()) as (parent,),
        serving(SoftEngine(), SoftEngine(), group=True) as leaves,
    ):
        homes = [each.address for each in leaves]
        lease = create_tree(parent.address, [homes[0], homes[0], homes[1]], 16, 8, 5.0)
        assert len({ticket.group_port for ticket in lease.tickets}) == 2
        check(lease, 0.02, lanes=16)
        counters = read_counters(homes[0], 5.0)
        # A partial sum up and a result down, and what was asked for again.
        asked = counters["duplicates"] + counters["probes"]
        sent = counters["frames_out"] - counters["joins"]
        assert 0 <= sent - 2 * counters["rounds"] <= asked
        lease.close()


def test_the_weakest_sets_lanes_and_slots():
    with serving(SoftEngine(lanes=9), SoftEngine(slots=5), SoftEngine(lanes=3)) as running:
        parent, *leaves = (each.address for each in running)
        lease = create_tree(parent, leaves, 16, 32, 5.0)
        assert {(ticket.lanes, ticket.slots) for ticket in lease.tickets} == {(3, 5)}
        check(lease, 0.0, lanes=3, count=2000)
        lease.close()


def test_jobs_of_a_tree_and_others_share_a_leaf(three):
    parent, *leaves = (each.address for each in three)
    generator = np.random.default_rng(6)
    alone = create_job(leaves[0], 1, 16, 4, 5.0)
    trees = [create_tree(parent, [leaves[0], leaves[1]], 8, 4, 5.0) for _ in range(2)]
    for lease in trees:
        with TreeRanks(lease) as ranks:
            tensors = [gaussian(generator, 3000, F32) for _ in range(2)]
            results = ranks.all_reduce(tensors, F32, Reduction.SUM)
            assert_same_bits(results, expected(tensors, F32, Reduction.SUM))
    alone.close()
    for lease in trees:
        lease.close()


def test_ranks_elsewhere_are_named_when_they_are_missing(three):
    parent, *leaves = (each.address for each in three)
    lease = create_tree(parent, [leaves[0], leaves[0], leaves[1]], 4, 2, 5.0)
    tensors = [np.ones(100, np.float32)] * 3
    with TreeRanks(lease) as ranks:
        for outcome in ranks.all_reduce(tensors, F32, Reduction.SUM, 3.0, ranks=(0, 1)):
            assert type(outcome) is DeadlineExceeded
            assert "waits for its parent: for ranks of other aggregators, rank(s) 2," in str(
                outcome
            )
    lease.close()


def test_a_parent_that_does_not_answer(no_threads_left, monkeypatch):
    """The control channel is there, but no packet comes through."""
    engine = FramesOnly()
    with serving(engine, SoftEngine()) as running:
        parent, leaf = (each.address for each in running)
        monkeypatch.setattr(engine, "feed", lambda _: [])
        with pytest.raises(AggregatorUnreachable, match=r"has not joined its parent in 0\.3 s"):
            create_tree(parent, [leaf], 4, 2, 0.3)
        monkeypatch.undo()
        create_tree(parent, [leaf], 4, 2, 5.0).close()


@contextlib.contextmanager
def taken(address: tuple[str, int], numbers: range) -> Iterator[None]:
    """Hold the parent ports of these jobs of an aggregator, as other programs may."""
    with contextlib.ExitStack() as held:
        for number in numbers:
            other = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            try:
                other.bind((address[0], address[1] + 1 + number))
            except OSError:
                pytest.skip("somebody else has the port")
        yield


def test_a_parent_port_that_is_taken(three):
    """A job of another number has another port."""
    parent, leaf, _ = (each.address for each in three)
    with taken(leaf, range(2)):
        lease = create_tree(parent, [leaf] * 2, 16, 8, 5.0)
    assert lease.tickets[0].job == 2
    check(lease, 0.0, lanes=16, count=500)
    lease.close()
    lease = create_tree(parent, [leaf], 4, 2, 5.0)
    assert lease.tickets[0].job == 0
    lease.close()


def test_no_parent_port_is_free():
    with serving(SoftEngine(), SoftEngine(jobs=2)) as running:
        parent, leaf = (each.address for each in running)
        with taken(leaf, range(2)):
            named = f"none of the ports .* is free: {leaf[1] + 1}, {leaf[1] + 2}"
            with pytest.raises(AggregatorRefused, match=named):
                create_tree(parent, [leaf], 4, 2, 5.0)
        create_tree(parent, [leaf], 4, 2, 5.0).close()


@pytest.mark.parametrize("leaves", [0, 65])
def test_too_few_or_too_many_ranks(leaves):
    with pytest.raises(ValueError, match=f"not {leaves}"):
        create_tree(("h", 1), [("x", 1)] * leaves, 16, 8, 1.0)


def test_no_aggregator_is_its_own_parent():
    with pytest.raises(ValueError, match="its own parent"):
        create_tree(("h", 1), [("x", 1), ("h", 1)], 16, 8, 1.0)


GOOD = ParentJob("127.0.0.1", 4700, 3, 5, 1, 9).to_request()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"address": "host"}, "four decimal octets"),
        ({"address": 5}, "four decimal octets"),
        ({"port": 0}, "port must be an integer"),
        ({"job": 256}, "job must be an integer"),
        ({"key": "5"}, "key must be 16"),
        ({"worker": 64}, "worker must be an integer"),
        ({"round": None}, "round must be an integer"),
        (None, "parent must be an object"),
    ],
)
def test_requests_with_a_wrong_parent(served, change, said):
    request = {"request": "create", "protocol": 2, "workers": 1, "lanes": 1, "slots": 1}
    request["parent"] = None if change is None else {**GOOD, **change}
    with socket.create_connection(served.address, 5) as client:
        client.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(client.makefile().readline())
    assert answer["ok"] is False
    assert said in answer["error"]


def test_a_job_without_a_parent_joins_none(served):
    lease = create_job(served.address, 1, 1, 1, 5.0)
    with pytest.raises(AggregatorRefused, match="job 0 has no parent"):
        lease.join_parent(0.1)
    lease.close()
    with pytest.raises(AggregatorRefused, match="closed"):
        lease.join_parent(0.1)

"""Trees of engines, and groups: the bits are those of one engine, whatever gets lost."""

from dataclasses import replace

import numpy as np
import pytest
from tests.drivers.golden_check import check_operation
from tests.drivers.tensors import OPERATIONS, awkward
from tests.drivers.test_planted_bugs import CAUGHT, plant
from tests.drivers.test_soft_engine import compare_engines, parents_of, tickets_of
from tests.drivers.virtual_job import VirtualJob, VirtualNetwork, at_random, counters_of
from tests.drivers.virtual_tree import VirtualTree

from afflux_drivers import operation, soft_engine, soft_job, soft_rounds, soft_slot
from afflux_drivers.errors import Disagreement
from afflux_drivers.frames import destination_of
from afflux_drivers.packets import PacketBuffer
from afflux_drivers.reduction import Reduction
from afflux_drivers.soft_engine import SoftEngine
from afflux_hdl import wire

MEMBERS = {
    "two leaves": [[0, 1], [2, 3, 4]],
    "mixed ranks": [[3, 0], [1], [4, 2]],
    "one leaf": [[1, 0]],
}


def check_operations(network: VirtualNetwork, seed: int, lossy: bool, count: int = 1500) -> None:
    """Every reduction, with the golden bits at every rank."""
    generator = np.random.default_rng(seed)
    fates = at_random(seed, lose=0.1, double=0.1, delay=0.1) if lossy else ()
    for dtype, reduction in OPERATIONS:
        for size in (5, count):
            tensors = [awkward(generator, size, dtype, True) for _ in network.sessions]
            check_operation(network, tensors, dtype, reduction, fates, patience_s=200.0)


def check_engine_with_parents() -> None:
    tickets = tickets_of([(3, 4, 2, 6, 0xFFFF_FFFE)])
    compare_engines(SoftEngine(slots=64), tickets, 5, 1500, parents_of(tickets, {0}))


def check_tree(members=MEMBERS["two leaves"], lossy=True, group=False, seed=1) -> VirtualTree:
    tree = VirtualTree(members, 3, 2, group)
    check_operations(tree, seed, lossy)
    return tree


def test_without_a_fault_the_comparison_passes():
    check_engine_with_parents()


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("group", [False, True])
def test_a_tree_gives_the_same_bits(name, group):
    tree = check_tree(MEMBERS[name], lossy=False, group=group)
    for session in tree.sessions:
        statistics = session.statistics
        assert (statistics.retransmissions, statistics.probes, statistics.ignored) == (0, 0, 0)
    above = counters_of(tree.root)
    for leaf, ranks in zip(tree.leaves, MEMBERS[name], strict=True):
        counters = counters_of(leaf)
        assert counters["rounds"] == counters["parent_results"] == above["rounds"]
        assert counters["joins"] == len(ranks) + 1
        results = counters["rounds"] * (1 if group else len(ranks))
        # The joins' answers, the own join, partial sums and results.
        assert counters["frames_out"] == counters["joins"] + counters["rounds"] + results


def test_no_sum_of_a_tree_overflows():
    """Guard bits are for all ranks of the tree, not for those of a leaf."""
    tree = VirtualTree(MEMBERS["two leaves"], 3, 2)
    greatest = np.full(2000, np.finfo(np.float32).max, np.float32)
    tree.all_reduce([greatest] * 5, wire.Dtype.FLOAT32, Reduction.AVG)
    for engine in (tree.root, *tree.leaves):
        assert counters_of(engine)["overflows"] == 0


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("group", [False, True])
def test_loss_anywhere_in_a_tree_changes_no_bit(name, group):
    tree = check_tree(MEMBERS[name], lossy=True, group=group, seed=2)
    sent = [0] * len(tree.leaves)
    for session in tree.sessions:
        leaf = [session.rank in ranks for ranks in MEMBERS[name]].index(True)
        sent[leaf] += session.statistics.blocks_sent
    for leaf, blocks in zip(tree.leaves, sent, strict=True):
        counters = counters_of(leaf)
        assert counters["blocks_accepted"] == blocks
        assert counters["replays"] > 0
        assert counters["conflicts"] == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_a_group_gets_each_result_once(workers):
    job = VirtualJob(workers, 3, 2, group=True)
    check_operations(job, 3, lossy=False)
    counters = counters_of(job.engine)
    assert counters["frames_out"] == counters["joins"] + counters["rounds"]
    for session in job.sessions:
        statistics = session.statistics
        assert (statistics.retransmissions, statistics.probes, statistics.ignored) == (0, 0, 0)


def test_loss_with_a_group_changes_no_bit():
    job = VirtualJob(3, 3, 2, group=True)
    check_operations(job, 4, lossy=True)
    counters = counters_of(job.engine)
    assert counters["replays"] > 0
    sent = sum(session.statistics.blocks_sent for session in job.sessions)
    assert counters["blocks_accepted"] == sent


def test_a_disagreement_below_reaches_every_rank():
    """Ranks of one leaf ask for different opcodes: the leaf's parent and the other leaf hear it."""
    tree = VirtualTree(MEMBERS["two leaves"], 3, 2)
    tensors = [np.ones(9, np.int32)] * 5
    operations = [
        operation.Operation(
            session,
            tensor,
            wire.Dtype.INT32,
            Reduction.MAX if session.rank == 4 else Reduction.SUM,
            tensor.shape,
        )
        for session, tensor in zip(tree.sessions, tensors, strict=True)
    ]
    seen = 0
    frames = [
        (tree._homes[rank], tree._frame(rank, bytes(datagram)))
        for rank, each in enumerate(operations)
        for datagram in each.open(0.0)
    ]
    buffer = PacketBuffer()
    while frames:
        home, frame = frames.pop(0)
        for sent in tree._engines[home].play([frame]):
            host, port = destination_of(sent)
            if host in tree._engines:
                frames.append((host, sent))
                continue
            datagram = sent[wire.AFFLUX_OFFSET :]
            buffer.datagram[: len(datagram)] = datagram
            with pytest.raises(Disagreement):
                operations[port - 5000].receive(buffer, len(datagram), 0.1)
            seen += 1
    assert seen == 5
    assert counters_of(tree.root)["conflicts"] == 1
    assert [counters_of(leaf)["conflicts"] for leaf in tree.leaves] == [1, 1]


# The checks above must be able to fail.


def test_a_worker_that_takes_no_results_for_everyone(monkeypatch):
    original = operation.Operation.__init__

    def init(self, *arguments):
        original(self, *arguments)
        self._to_everyone = self._worker

    plant(monkeypatch, operation.Operation, "__init__", init)
    with pytest.raises(CAUGHT):
        test_a_group_gets_each_result_once(3)


def test_an_engine_that_forgets_to_reset_waiting_in_a_new_run(monkeypatch):
    right = soft_slot.SoftSlot.reset

    def reset(self, *arguments):
        waiting = getattr(self, "waiting", False)
        right(self, *arguments)
        self.waiting = waiting

    plant(monkeypatch, soft_slot.SoftSlot, "reset", reset)
    with pytest.raises(CAUGHT):
        check_engine_with_parents()


@pytest.mark.parametrize("field", ["key", "worker", "job", "endpoint"])
def test_an_engine_that_looks_at_less_of_its_parent(monkeypatch, field):
    """Each check of section 5.6 is missed by the comparison with the golden model."""

    right = soft_engine.SoftEngine._from_parent

    def from_parent(self, job, header, *rest):
        if job is None or job.parent is None:
            right(self, job, header, *rest)
            return
        parent = job.parent
        values = {"key": header[7], "worker": header[3], "job": header[2]}
        values["endpoint"] = (parent.endpoint[0], *rest[1:])
        job.parent = replace(parent, **{field: values[field]})
        right(self, job, header, *rest)
        job.parent = parent

    plant(monkeypatch, soft_engine.SoftEngine, "_from_parent", from_parent)
    with pytest.raises(CAUGHT):
        check_engine_with_parents()


def test_a_worker_that_leaves_a_waiting_aggregator_alone(monkeypatch):
    """A partial sum that is lost is a dead end then."""
    right = operation.Operation._missing

    def missing(self, slot, words, now):
        answer = right(self, slot, words, now)
        return None if slot.waits_above else answer

    plant(monkeypatch, operation.Operation, "_missing", missing)
    with pytest.raises(CAUGHT):
        check_tree()


def test_an_engine_that_sends_its_partial_sum_once(monkeypatch):
    right = soft_job.SoftJob.partial_sum
    sent = set()

    def partial_sum(self, number, round_):
        frame = right(self, number, round_)
        key = id(self), number, round_
        if key in sent:
            return frame[:60]
        sent.add(key)
        return frame

    plant(monkeypatch, soft_job.SoftJob, "partial_sum", partial_sum)
    with pytest.raises(CAUGHT):
        check_tree()


def test_an_engine_that_adds_the_parents_result(monkeypatch):
    """In place of replacing its partial sum by it."""

    def take(self, present, words, blocks, conflict):
        self.add(present, blocks, wire.Opcode.SUM)
        self._words[self.round & 1] = words
        self.waiting = False

    plant(monkeypatch, soft_slot.SoftSlot, "take", take)
    with pytest.raises(CAUGHT):
        check_tree(lossy=False)


def test_an_engine_that_opens_the_next_round_while_it_waits(monkeypatch):
    """A parent's result that comes twice is then taken for the round after."""
    right = soft_rounds.SoftRounds.parent_result

    def parent_result(self, job, header, frame):
        slot = job.slots[header[4]]
        header = (*header[:6], slot.round, *header[7:])
        right(self, job, header, frame)

    plant(monkeypatch, soft_rounds.SoftRounds, "parent_result", parent_result)
    with pytest.raises(CAUGHT):
        check_tree()


def test_a_worker_that_takes_its_worker_number_for_its_rank(monkeypatch):
    original = operation.Operation.__init__

    def init(self, *arguments):
        original(self, *arguments)
        self._rank = self._worker

    plant(monkeypatch, operation.Operation, "__init__", init)
    with pytest.raises(CAUGHT):
        check_tree(lossy=False)

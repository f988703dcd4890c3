"""Trees of engines, and groups: the bits are those of one engine, whatever gets lost."""

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_drivers.errors import Disagreement
from afflux_drivers.frames import destination_of
from afflux_drivers.worker.operation import Operation
from afflux_hdl.contract import wire
from tests.checks.native_checks import (
    MEMBERS,
    check_engine_with_parents,
    check_group,
    check_operations,
    check_tree,
)
from tests.support.drivers.built_engine import BuiltEngine, build
from tests.support.drivers.built_worker import CAUGHT, catches
from tests.support.drivers.virtual_job import VirtualJob, counters_of
from tests.support.drivers.virtual_tree import VirtualTree
from tests.support.planting import Bug, first_now

CHECKS = "tests.checks.native_checks"


def test_without_a_bug_the_comparison_passes():
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
    """The scale is for all ranks of the tree, not for those of a leaf."""
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
    for engine, blocks in zip(tree.leaves, sent, strict=True):
        counters = counters_of(engine)
        assert counters["blocks_accepted"] == blocks
        assert counters["replays"] > 0
        assert counters["conflicts"] == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_a_group_gets_each_result_once(workers):
    check_group(workers)


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
        Operation(
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
        (tree._homes[rank], tree._frame(rank, datagram))
        for rank, each in enumerate(operations)
        for datagram in each.open(0.0)
    ]
    while frames:
        home, frame = frames.pop(0)
        for sent in tree._engines[home].play([frame]):
            host, port = destination_of(sent)
            if host in tree._engines:
                frames.append((host, sent))
                continue
            datagram = sent[wire.AFFLUX_OFFSET :]
            with pytest.raises(Disagreement):
                operations[port - 5000].receive(datagram, 0.1)
            seen += 1
    assert seen == 5
    # The opening round is a sum, whatever the reduction: their fingerprints tell.
    assert counters_of(tree.root)["conflicts"] == 0
    assert [counters_of(leaf)["conflicts"] for leaf in tree.leaves] == [0, 0]


# Bugs of a worker, with the check that must see each.
WORKER_BUGS = {
    "takes no results for everyone": (
        Bug("worker/operation.cpp", "job.has_group() && header.worker == wire::kEveryone", "false"),
        "check_group",
    ),
    # A partial sum that is lost is a dead end then.
    "leaves a waiting aggregator alone": (
        Bug("worker/operation.cpp", "if (own_lost || slot.waits_above)", "if (own_lost)"),
        "check_tree",
    ),
    "takes its worker number for its rank": (
        Bug("worker/operation.cpp", "session_.job.rank]", "session_.job.worker]"),
        "check_tree",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WORKER_BUGS)
def test_a_worker_that(name):
    bug, check = WORKER_BUGS[name]
    assert catches(name, bug, f"{CHECKS}:{check}")


_SAME_SOCKET = "!parent->endpoint.same_socket(arrival.peer)"

# Bugs of an engine that has a parent. The first need frames that no honest parent sends, so that
# only the comparison with the golden model finds them.
BUGS_SEEN_BY_COMPARISON = {
    "forgets to reset waiting in a new run": Bug(
        "engine/slots.cpp",
        ".round = first_round - 1,",
        ".round = first_round - 1, .waiting = states_[slot].waiting,",
    ),
    **{
        f"does not look at its parent's {what}": Bug("engine/core.cpp", condition, wrong)
        for what, condition, wrong in (
            ("key", "header.key != parent->key", "false"),
            ("worker number", "header.worker != parent->worker", "false"),
            ("job number", "header.job != parent->job", "false"),
            ("address", _SAME_SOCKET, "parent->endpoint.port != arrival.peer.port"),
            ("port", _SAME_SOCKET, "parent->endpoint.address != arrival.peer.address"),
        )
    },
}
BUGS_SEEN_IN_A_TREE = {
    "sends its partial sum once": Bug(
        "engine/rounds.cpp",
        "++counters_[Counter::Replays]; sender_.partial_sum(job, header.slot, header.round);",
        "++counters_[Counter::Replays];",
    ),
    # In place of replacing its partial sum by it.
    "adds the parent's result": Bug(
        "engine/slots.cpp",
        "std::memcpy(own, packet.words, wire::kLookaheadBytes);",
        "std::memcpy(own, packet.words, wire::kLookaheadBytes);"
        "add(slot, packet); states_[slot].waiting = false; return;",
    ),
    # A parent's result that comes twice is then taken for the round after.
    "takes a parent's result for any round": Bug(
        "engine/rounds.cpp",
        "void Rounds::parent_result(const Job& job, const Packet& packet) {"
        " const packet::Header& header = packet.header;",
        "void Rounds::parent_result(const Job& job, const Packet& packet) {"
        "packet::Header header = packet.header;"
        "header.round = slots_[job.slot_base + header.slot].round;",
    ),
}


@pytest.mark.parametrize("name", first_now(BUGS_SEEN_BY_COMPARISON))
def test_an_engine_that(name):
    library = build(BUGS_SEEN_BY_COMPARISON[name])
    with pytest.raises(CAUGHT):
        check_engine_with_parents(BuiltEngine(library, slots=64))


@pytest.mark.parametrize("name", first_now(BUGS_SEEN_IN_A_TREE))
def test_an_engine_in_a_tree_that(name):
    library = build(BUGS_SEEN_IN_A_TREE[name])
    with pytest.raises(CAUGHT):
        check_tree(make_engine=lambda: BuiltEngine(library))

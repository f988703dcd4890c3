"""Trees of golden engines: every result is that of one aggregator, to the bit.

`make test-long` runs each operation, and each kind of links, on every tree.
"""

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import Packet
from afflux_sim.golden.reductions import Tensor, all_reduce
from afflux_sim.golden.state import Job
from tests.scenarios.director import Build
from tests.scenarios.golden_device import GoldenDevice
from tests.scenarios.tree_network import Aggregator, Links, TreeNetwork
from tests.support.golden_tensors import DTYPES, KINDS, bits_of, draw, reductions

BUILD: Build = {"workers": 8, "lanes": 3, "jobs": 2, "slots": 4}
KIND_LINKS = Links()
UNKIND_LINKS = Links(loss=0.15, duplication=0.15)

LEAF = Aggregator(2)
TREES = {
    "one aggregator": Aggregator(3),
    "one child": Aggregator(children=(Aggregator(2),)),
    "two levels": Aggregator(children=(LEAF, Aggregator(3))),
    "leaves of one worker": Aggregator(children=(Aggregator(1),) * 3),
    "three levels": Aggregator(children=(Aggregator(children=(LEAF, LEAF)), LEAF)),
    "workers beside children": Aggregator(1, (Aggregator(2, (LEAF,)), Aggregator(1))),
    "a chain": Aggregator(children=(Aggregator(children=(Aggregator(children=(LEAF,)),)),)),
}
SOME_TREES = ("two levels", "three levels", "workers beside children")
OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]


def new_tree(
    tree: Aggregator, seed: int, links: Links, engine_class: type[GoldenEngine] = GoldenEngine
) -> TreeNetwork:
    return TreeNetwork(
        tree,
        partial(GoldenDevice, engine_class=engine_class, **BUILD),
        build=BUILD,
        lanes=3,
        slots=2,
        choose=random.Random(seed),
        links=links,
        multicast=seed % 2 == 1,
    )


def assert_all_equal(results: list[Tensor], tensors, dtype: str, reduction: str) -> None:
    expected = bits_of(all_reduce(tensors, dtype, reduction), dtype)
    for rank, result in enumerate(results):
        assert (bits_of(result, dtype) == expected).all(), f"worker {rank}"


@pytest.mark.parametrize("tree", TREES.values(), ids=list(TREES))
@pytest.mark.parametrize("multicast", [False, True])
def test_trees(tree: Aggregator, multicast: bool) -> None:
    rng = np.random.default_rng(3)
    with new_tree(tree, 2 + multicast, KIND_LINKS) as network:
        for count in (0, 9, 129, 1000):
            tensors = [draw(rng, "special", "float32", count) for _ in network.workers]
            assert_all_equal(network.run(tensors, "float32", "avg"), tensors, "float32", "avg")


@pytest.mark.parametrize(
    ("name", "dtype", "reduction"),
    [
        pytest.param(
            name,
            dtype,
            reduction,
            marks=pytest.mark.long if (at + operation) % len(SOME_TREES) else (),
        )
        for at, name in enumerate(SOME_TREES)
        for operation, (dtype, reduction) in enumerate(OPERATIONS)
    ],
)
def test_operations_over_unkind_links(name: str, dtype: str, reduction: str) -> None:
    """One operation after another; late frames of one arrive during the next."""
    seed = OPERATIONS.index((dtype, reduction))
    rng = np.random.default_rng(seed)
    with new_tree(TREES[name], seed, UNKIND_LINKS) as network:
        for kind in (KINDS * 2)[seed % len(KINDS) :][:3]:
            count = int(rng.integers(0, 700))
            tensors = [draw(rng, kind, dtype, count) for _ in network.workers]
            assert_all_equal(network.run(tensors, dtype, reduction), tensors, dtype, reduction)
        network.deliver_late()


@pytest.mark.parametrize(
    ("links", "name"),
    [
        pytest.param(links, name, marks=pytest.mark.long if (at + tree) % 3 else ())
        for at, links in enumerate((Links(loss=0.4), Links(duplication=0.5), Links(burst=8)))
        for tree, name in enumerate(TREES)
    ],
    ids=str,
)
def test_kinds_of_links(name: str, links: Links) -> None:
    rng = np.random.default_rng(1)
    with new_tree(TREES[name], 8, links) as network:
        for _ in range(2):
            tensors = [draw(rng, "dense", "float32", 1000) for _ in network.workers]
            assert_all_equal(network.run(tensors, "float32", "sum"), tensors, "float32", "sum")
        network.deliver_late()


def test_four_leaves_of_eight_workers() -> None:
    """Two per cent of the frames are lost on every link."""
    tree = Aggregator(children=(Aggregator(8),) * 4)
    rng = np.random.default_rng(5)
    with new_tree(tree, 5, Links(loss=0.02, duplication=0.01, burst=4)) as network:
        for dtype, reduction, kind in (
            ("float32", "sum", "dense"),
            ("float32", "avg", "special"),
            ("bfloat16", "sum", "sparse"),
        ):
            tensors = [draw(rng, kind, dtype, 1000) for _ in network.workers]
            assert_all_equal(network.run(tensors, dtype, reduction), tensors, dtype, reduction)
        network.deliver_late()


@pytest.mark.parametrize("name", SOME_TREES)
def test_workers_of_different_leaves_that_disagree_all_fail(name: str) -> None:
    for change in ("dtype", "size"):
        with new_tree(TREES[name], 4, UNKIND_LINKS) as network:
            count, dtype = (1000, "float16") if change == "dtype" else (999, "float32")
            for worker in network.workers[:-1]:
                worker.start(np.ones(1000, np.float32), "float32", "sum")
            other = draw(np.random.default_rng(0), "dense", dtype, count)
            network.workers[-1].start(other, dtype, "sum")
            network.settle()
            assert all(worker.error for worker in network.workers)


# Planted bugs.


class NeverSendsUpAgain(GoldenEngine):
    """A partial sum that is lost is lost."""

    def _data(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        counter, sent = super()._data(job, packet)
        up = job.parent is not None and job.slots[packet.slot].waiting
        return counter, [] if counter == "duplicates" and up else sent


class TakesAnyResult(GoldenEngine):
    """Does not look at the round of the parent's result."""

    def _parent_result(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        slot = job.slots[packet.slot]
        if slot.waiting:
            return super()._parent_result(job, replace(packet, round=slot.round))
        return super()._parent_result(job, packet)


class DoesNotWait(GoldenEngine):
    """Takes a round for complete when all are in."""

    def _add(self, job: Job, packet: Packet) -> list[bytes]:
        sent = super()._add(job, packet)
        slot = job.slots[packet.slot]
        if slot.waiting:
            sent += self._complete(job, packet.slot)
        return sent


class KeepsItsOwnWords(GoldenEngine):
    """Hands down the sums of the parent with its own look-ahead words."""

    def _parent_result(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        words = job.slots[packet.slot].versions[packet.round & 1].words
        return super()._parent_result(job, replace(packet, words=words))


class KeepsItsOwnPresent(GoldenEngine):
    """Hands down only the lanes in which its own workers had something."""

    def _parent_result(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        present = job.slots[packet.slot].versions[packet.round & 1].present
        blocks = {lane: block for lane, block in packet.blocks.items() if present >> lane & 1}
        return super()._parent_result(job, replace(packet, blocks=blocks))


def is_caught(engine_class: type[GoldenEngine]) -> bool:
    """Return whether an all-reduce through a tree of such engines fails, hangs or differs."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        with new_tree(TREES["two levels"], seed, UNKIND_LINKS, engine_class) as network:
            for _ in range(2):
                tensors = [draw(rng, "sparse", "float32", 1500) for _ in network.workers]
                try:
                    results = network.run(tensors, "float32", "sum", max_steps=10_000)
                    assert_all_equal(results, tensors, "float32", "sum")
                except (AssertionError, ValueError, IndexError, KeyError):
                    return True
    return False


def test_the_golden_engine_itself_is_not_caught() -> None:
    assert not is_caught(GoldenEngine)


@pytest.mark.parametrize(
    "engine_class",
    [NeverSendsUpAgain, TakesAnyResult, DoesNotWait, KeepsItsOwnWords, KeepsItsOwnPresent],
)
def test_planted_bugs_are_caught(engine_class: type[GoldenEngine]) -> None:
    assert is_caught(engine_class)

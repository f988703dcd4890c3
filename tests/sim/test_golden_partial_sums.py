"""Partial sums: in trees, too, sums are correctly rounded, whatever the way."""

import random
from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pytest

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import (
    CONFLICT,
    DATA,
    JOIN,
    NUMBER_MAX,
    NUMBER_SUM,
    Endpoint,
    Packet,
    as_block,
    build_frame,
    look_ahead,
    parse_packet,
)
from afflux_sim.golden.merge import Contribution, block_of_elements, elements_of_block, reduce_lane
from afflux_sim.golden.reductions import Tensor, reduce_numbers
from afflux_sim.golden.state import Job, Parent, Slot, SlotVersion
from tests.scenarios.director import Build
from tests.scenarios.golden_device import GoldenDevice
from tests.scenarios.tree_network import Aggregator, Links, TreeNetwork
from tests.support.golden_tensors import BITS, DTYPES, KINDS, bits_of, draw, reductions

BUILD: Build = {"workers": 8, "lanes": 3, "jobs": 2, "slots": 4}
KIND_LINKS = Links()
UNKIND_LINKS = Links(loss=0.1, duplication=0.1)
OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]

LEAF = Aggregator(2)
TREES = {
    "two levels": Aggregator(children=(LEAF, Aggregator(3))),
    "three levels": Aggregator(children=(Aggregator(children=(LEAF, LEAF)), Aggregator(1))),
    "workers beside children": Aggregator(1, (Aggregator(1, (LEAF,)),)),
    "hosts": Aggregator(2, worker_ranks=3),
    "hosts below a leaf": Aggregator(1, (Aggregator(2, worker_ranks=2), Aggregator(1))),
}


def new_tree(
    tree: Aggregator,
    seed: int,
    links: Links,
    *,
    widths: Sequence[int] = (64,),
    engine_class: type[GoldenEngine] = GoldenEngine,
) -> TreeNetwork:
    """Return a tree whose aggregators send up sums of these widths, one after the other."""
    width = cycle(widths)

    def open_engine() -> GoldenDevice:
        return GoldenDevice(engine_class=engine_class, partial_bits=next(width), **BUILD)

    return TreeNetwork(
        tree,
        open_engine,
        build=BUILD,
        lanes=3,
        slots=2,
        choose=random.Random(seed),
        links=links,
        multicast=seed % 2 == 1,
        partial_bits=widths[0],
    )


def assert_all_equal(results, tensors, dtype, reduction) -> None:
    if dtype == "int32":
        stacked = np.stack(tensors).astype(np.int64)
        whole = stacked.sum(axis=0) if reduction == "sum" else getattr(stacked, reduction)(axis=0)
        right = whole.astype(np.int32).view(np.uint32)
    else:
        columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
        right = np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])
    for worker, result in enumerate(results):
        wrong = bits_of(result, dtype) != right
        assert not wrong.any(), f"worker {worker}: {np.flatnonzero(wrong)[:10]}"


def check(network: TreeNetwork, tree: Aggregator, rng, kind, dtype, reduction, count) -> None:
    tensors = [draw(rng, kind, dtype, count) for _ in range(tree.ranks)]
    results = network.run(tensors, dtype, reduction)
    assert_all_equal(results, tensors, dtype, reduction)


@pytest.mark.parametrize(
    ("name", "kind"),
    # Each tree meets every other kind.
    [(name, kind) for i, name in enumerate(TREES) for kind in KINDS[i % 2 :: 2]],
)
def test_kinds_of_tensors(name: str, kind: str) -> None:
    """Leaves of all widths under one parent; small tensors, too, and one that fills no block."""
    rng = np.random.default_rng(KINDS.index(kind))
    with new_tree(TREES[name], KINDS.index(kind), KIND_LINKS, widths=(40, 48, 64)) as network:
        for dtype in ("float32", "float16", "bfloat16"):
            for reduction, count in (("sum", 200), ("avg", 20)):
                check(network, TREES[name], rng, kind, dtype, reduction, count)


@pytest.mark.parametrize("at", range(len(OPERATIONS)))
def test_operations_over_unkind_links(at: int) -> None:
    dtype, reduction = OPERATIONS[at]
    rng = np.random.default_rng(at)
    name = list(TREES)[at % len(TREES)]
    with new_tree(TREES[name], at, UNKIND_LINKS, widths=((40, 48, 64)[at % 3],)) as network:
        for count in (150, 260):
            check(network, TREES[name], rng, KINDS[at % len(KINDS)], dtype, reduction, count)
        network.deliver_late()


@pytest.mark.parametrize(("width", "operations"), [(40, 2), (48, 2), (64, 1)])
@pytest.mark.parametrize("name", ["two levels", "hosts"])
def test_bits_that_do_not_fit_are_brought_again(name: str, width: int, operations: int) -> None:
    """Of three blocks one has a bit 50 places below the greatest: 64 bits hold it, 48 do not."""
    tree = TREES[name]
    tensor = np.ones(192, np.float32)
    tensor[100] = 2.0**-50
    with new_tree(tree, 1, UNKIND_LINKS, widths=(width,)) as network:
        tensors = [tensor * (1 + rank) for rank in range(tree.ranks)]
        assert_all_equal(network.run(tensors, "float32", "sum"), tensors, "float32", "sum")
        assert {worker.operation.number for worker in network.workers if worker.operation} == {
            operations - 1
        }


def test_zeros_of_all_ranks_and_of_all_but_one() -> None:
    tree = TREES["hosts below a leaf"]
    with new_tree(tree, 2, KIND_LINKS) as network:
        for odd in range(tree.ranks):
            tensors = [np.full(200, -0.0, np.float32) for _ in range(tree.ranks)]
            tensors[odd][:150] = 0.0
            for result in network.run(tensors, "float32", "sum"):
                assert (np.signbit(result) == ([False] * 150 + [True] * 50)).all()


def test_a_narrow_parent_keeps_what_its_leaves_sent() -> None:
    """A partial sum of 64 elements is greater than any of them; that alone loses no bit."""
    largest = (2.0 - 2.0**-23) * np.ones(64, np.float32)
    given = [Contribution(1, {0: block_of_elements(largest.view(np.uint32).tolist(), 1)})] * 32
    leaf = reduce_lane(8, given, 0, workers=32, exponent=127, to=9, window=33)
    total = reduce_lane(
        8, [Contribution(9, {0: leaf})] * 2, 0, workers=2, exponent=127, to=1, window=33
    )
    assert elements_of_block(total, 1) == (largest * 64).view(np.uint32).tolist()


# A leaf with a worker at each of these, and its parent.
WORKERS = [Endpoint(bytes([2, 0, 0, 0, 9, w]), f"10.9.0.{1 + w}", 5000 + w) for w in range(2)]
ABOVE = Endpoint(bytes([2, 0, 0, 0, 8, 1]), "10.8.0.1", 4700)


def leaf_and_words() -> tuple[GoldenEngine, tuple[int, ...]]:
    """Return a leaf whose two workers have joined, and words for its second round."""
    leaf = GoldenEngine(mac=bytes([2, 0, 0, 0, 8, 2]), address="10.8.0.2", port=4700)
    leaf.create_job(
        0,
        key=7,
        workers=2,
        lanes=2,
        slot_base=0,
        slot_count=1,
        round=5,
        credit=1,
        parent=Parent(ABOVE, 3, 1, 99),
    )
    for worker, at in enumerate(WORKERS):
        leaf.receive(build_frame(at, leaf.endpoint, Packet(type=JOIN, worker=worker, key=7)))
    return leaf, (look_ahead(0, 127),) * 2 + (0xFFFFFFFF,) * 14


def contribute(leaf: GoldenEngine, worker: int, opcode: int, dtype: int) -> list[bytes]:
    block = as_block(np.ones(64, np.float32).view(np.int32))
    packet = Packet(
        type=DATA, opcode=opcode, dtype=dtype, worker=worker, round=5, key=7, blocks={1: block}
    )
    return leaf.receive(build_frame(WORKERS[worker], leaf.endpoint, packet))


@pytest.mark.parametrize(
    ("opcode", "dtype"), [(NUMBER_MAX, 1), (NUMBER_SUM + 1, 1), (NUMBER_SUM, 2), (0, 1)]
)
def test_a_conflict_goes_up_with_blocks_of_numbers(opcode: int, dtype: int) -> None:
    leaf, _ = leaf_and_words()
    assert contribute(leaf, 0, NUMBER_SUM, 1) == []
    (up,) = contribute(leaf, 1, opcode, dtype)
    packet = parse_packet(up)
    assert (packet.type, packet.dtype, packet.present) == (CONFLICT, 1, 2)
    # With its seal.
    assert len(up) == 128 + 256 + 4


def test_a_parent_that_does_not_round_is_not_believed() -> None:
    leaf, words = leaf_and_words()
    for worker in range(2):
        up = contribute(leaf, worker, NUMBER_SUM, 1)
    assert parse_packet(up[0]).dtype == 13
    for dtype, counter in ((13, "bad_type"), (1, "parent_results")):
        size = 128 if dtype == 13 else 64
        result = Packet(
            type=8, opcode=NUMBER_SUM, dtype=dtype, job=3, worker=1, round=5, key=99, words=words,
            blocks={1: np.ones(size, np.int32)},
        )  # fmt: skip
        there = Endpoint(leaf.endpoint.mac, leaf.endpoint.address, 4701)
        leaf.receive(build_frame(ABOVE, there, result))
        assert leaf.counters[counter] == 1


# Planted bugs.


class RoundsOnEachLevel(GoldenEngine):
    def _dtype_up(self, job: Job, version: SlotVersion) -> int:
        return version.dtype


class ForgetsTheAgreedExponent(GoldenEngine):
    """Reads the exponent in the words of the round itself, which name the next blocks."""

    def _reduce(self, job: Job, slot: Slot, version: SlotVersion) -> None:
        other = slot.versions[(slot.round - 1) & 1]
        kept, other.words = other.words, version.words
        super()._reduce(job, slot, version)
        other.words = kept


class CountsAbsentWorkersAsMinusZero(GoldenEngine):
    def _reduce(self, job: Job, slot: Slot, version: SlotVersion) -> None:
        workers, job.workers = job.workers, 0
        super()._reduce(job, slot, version)
        job.workers = workers


def is_caught(engine_class: type[GoldenEngine]) -> bool:
    """Return whether an all-reduce through a tree of such engines fails, hangs or differs."""
    tree = TREES["two levels"]
    rng = np.random.default_rng(1)
    for kind in ("dense", "zeros"):
        with new_tree(tree, 1, KIND_LINKS, engine_class=engine_class) as network:
            tensors = [draw(rng, kind, "float32", 640) for _ in range(tree.ranks)]
            if kind == "zeros":
                tensors[0][:] = 0
            # Blocks of different exponents, one after the other.
            powers = np.repeat(rng.integers(-9, 9, 10), 64)
            tensors = [np.ldexp(x, np.roll(powers, 64 * rank)) for rank, x in enumerate(tensors)]
            try:
                results = network.run(tensors, "float32", "sum", max_steps=10_000)
                assert_all_equal(results, tensors, "float32", "sum")
            except (AssertionError, ValueError):
                return True
    return False


def test_the_golden_engine_itself_is_not_caught() -> None:
    assert not is_caught(GoldenEngine)


@pytest.mark.parametrize(
    "engine_class", [RoundsOnEachLevel, ForgetsTheAgreedExponent, CountsAbsentWorkersAsMinusZero]
)
def test_planted_bugs_are_caught(engine_class: type[GoldenEngine]) -> None:
    assert is_caught(engine_class)


def test_every_tensor_of_a_host_counts() -> None:
    """Blocks that one rank of the host has, each of another one."""
    tree = TREES["hosts"]
    tensors: list[Tensor] = [np.zeros(64 * tree.ranks * 3, np.float32) for _ in range(tree.ranks)]
    for rank, tensor in enumerate(tensors):
        tensor[64 * rank * 3 : 64 * rank * 3 + 64] = 2.0**rank
    with new_tree(tree, 3, UNKIND_LINKS) as network:
        assert_all_equal(network.run(tensors, "float32", "sum"), tensors, "float32", "sum")

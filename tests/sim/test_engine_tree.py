"""Groups and parents on the RTL, in process: the cases, and whole trees of engines."""

import random
from functools import partial

import numpy as np
import pytest

from afflux_sim.golden.numbers import all_reduce
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import check_case
from tests.scenarios.director import LARGE
from tests.scenarios.job_frames import Job
from tests.scenarios.tree_cases import TREE_CASES
from tests.scenarios.tree_network import Aggregator, Links, TreeNetwork
from tests.support.golden_tensors import bits_of, draw

pytestmark = pytest.mark.slow

OPERATIONS = (
    ("int32", "sum", "sparse"),
    ("float32", "sum", "dense"),
    ("float16", "avg", "special"),
    ("bfloat16", "max", "mixed"),
)


SHAPES = [(1, 1, 1), (2, 1, 2), (3, 2, 2), (8, 2, 1)]
"""Workers, lanes, slots."""


@pytest.mark.parametrize(
    ("name", "bus_bits", "shape"),
    # Each case meets each shape, and every other of them at either width.
    [
        (name, (512, 32)[(case + at) % 2], shape)
        for case, name in enumerate(TREE_CASES)
        for at, shape in enumerate(SHAPES)
    ],
    ids=str,
)
def test_case(name: str, bus_bits: int, shape: tuple[int, int, int]) -> None:
    workers, lanes, slots = shape
    job = Job(number=0, workers=workers, lanes=lanes, slots=slots)
    with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
        check_case(engine, LARGE, job, TREE_CASES[name])


def reduce_in_tree(tree: Aggregator, seed: int, *, links: Links, bus_bits: int, count: int) -> None:
    """All-reduces of every encoding; every engine sends what its golden twin sends."""
    rng = np.random.default_rng(seed)
    network = TreeNetwork(
        tree,
        partial(VerilatedEngine, bus_bits=bus_bits, **LARGE),
        build=LARGE,
        lanes=2,
        slots=2,
        choose=random.Random(seed),
        links=links,
        checked=True,
        multicast=seed % 2 == 1,
    )
    with network:
        for dtype, reduction, kind in OPERATIONS:
            tensors = [draw(rng, kind, dtype, count) for _ in network.workers]
            results = network.run(tensors, dtype, reduction)
            expected = bits_of(all_reduce(tensors, dtype, reduction), dtype)
            for rank, result in enumerate(results):
                assert (bits_of(result, dtype) == expected).all(), f"worker {rank}"
        network.deliver_late()
        network.check()


TREES = {
    "two levels": Aggregator(children=(Aggregator(2), Aggregator(3))),
    "three levels": Aggregator(children=(Aggregator(children=(Aggregator(2),) * 2), Aggregator(1))),
    "workers beside children": Aggregator(1, (Aggregator(2, (Aggregator(2),)), Aggregator(1))),
}


@pytest.mark.parametrize(
    ("name", "links", "bus_bits"),
    [
        (name, links, (512, 32)[(tree + at) % 2])
        for tree, name in enumerate(TREES)
        for at, links in enumerate((Links(loss=0.15, duplication=0.15), Links(burst=8)))
    ],
    ids=str,
)
def test_trees(name: str, links: Links, bus_bits: int) -> None:
    for seed in range(2):
        reduce_in_tree(TREES[name], seed, links=links, bus_bits=bus_bits, count=400)


@pytest.mark.parametrize("bus_bits", [512, 32])
def test_four_leaves_of_eight_workers(bus_bits: int) -> None:
    """Two per cent of the frames are lost on every link."""
    tree = Aggregator(children=(Aggregator(8),) * 4)
    links = Links(loss=0.02, duplication=0.01, burst=4)
    reduce_in_tree(tree, 5, links=links, bus_bits=bus_bits, count=600)

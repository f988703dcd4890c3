"""Groups and parents on the RTL, in process: the cases, and whole trees of engines.

Sums of numbers go up unrounded there, and are rounded once. `make test-long` plays each case in
more shapes, and each tree with more seeds and at its full size.
"""

import random
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from afflux_sim.golden.reductions import all_reduce
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import check_case
from tests.scenarios.director import LARGE
from tests.scenarios.job_frames import Job
from tests.scenarios.tree_cases import TREE_CASES
from tests.scenarios.tree_network import Aggregator, Links, TreeNetwork
from tests.support.golden_tensors import DTYPES, KINDS, bits_of, draw, reductions

pytestmark = pytest.mark.slow

OPERATIONS = (
    ("int32", "sum", "sparse"),
    ("float32", "sum", "dense"),
    ("float16", "avg", "special"),
    ("bfloat16", "max", "mixed"),
    ("float32", "sum", "mixed"),
)
EVERY = [
    (dtype, reduction, kind)
    for dtype in DTYPES
    for reduction in reductions(dtype)
    for kind in KINDS
]


SHAPES = [(1, 1, 1), (2, 1, 2), (3, 2, 2), (8, 2, 1)]
"""Workers, lanes, slots."""


@pytest.mark.parametrize(
    ("name", "bus_bits", "shape"),
    # Each case meets each shape, and every other of them at either width; two of the shapes, one
    # at either width, without `make test-long`.
    [
        pytest.param(
            name,
            (512, 32)[(case + at) % 2],
            shape,
            marks=pytest.mark.long if (case // 2 + at // 2) % 2 else (),
        )
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


def reduce_in_tree(
    tree: Aggregator,
    seed: int,
    *,
    links: Links,
    bus_bits: int,
    count: int,
    register: int = 0,
    operations: Sequence[tuple[str, str, str]] = OPERATIONS,
) -> None:
    """All-reduces of every encoding; every engine sends what its golden twin sends."""
    rng = np.random.default_rng(seed)
    network = TreeNetwork(
        tree,
        partial(VerilatedEngine, bus_bits=bus_bits, ram_output_register=register, **LARGE),
        build=LARGE,
        lanes=2,
        slots=2,
        choose=random.Random(seed),
        links=links,
        checked=True,
        multicast=seed % 2 == 1,
    )
    with network:
        for dtype, reduction, kind in operations:
            tensors = [draw(rng, kind, dtype, count) for _ in range(tree.ranks)]
            results = network.run(tensors, dtype, reduction)
            expected = bits_of(all_reduce(tensors, dtype, reduction), dtype)
            for worker, result in enumerate(results):
                assert (bits_of(result, dtype) == expected).all(), f"worker {worker}"
        network.deliver_late()
        network.check()


TREES = {
    "two levels": Aggregator(children=(Aggregator(2), Aggregator(3))),
    "three levels": Aggregator(children=(Aggregator(children=(Aggregator(2),) * 2), Aggregator(1))),
    "workers beside children": Aggregator(1, (Aggregator(2, (Aggregator(2),)), Aggregator(1))),
    "hosts": Aggregator(1, (Aggregator(2, worker_ranks=2),), worker_ranks=3),
}


@pytest.mark.parametrize(
    ("name", "links", "bus_bits", "seed"),
    # An odd seed brings results by multicast. Links, widths and ways of results meet one another
    # without `make test-long`, too.
    [
        pytest.param(
            name,
            links,
            (512, 32)[(tree + at) % 2],
            seed,
            marks=pytest.mark.long if seed != tree // 2 else (),
        )
        for tree, name in enumerate(TREES)
        for at, links in enumerate((Links(loss=0.15, duplication=0.15), Links(burst=8)))
        for seed in range(2)
    ],
    ids=str,
)
def test_trees(name: str, links: Links, bus_bits: int, seed: int) -> None:
    reduce_in_tree(TREES[name], seed, links=links, bus_bits=bus_bits, count=400)


@pytest.mark.parametrize(
    ("bus_bits", "count", "operations"),
    [
        pytest.param(512, 150, OPERATIONS[1:2], id="512-150-one"),
        *(
            pytest.param(each, 400, OPERATIONS, id=f"{each}-400-all", marks=pytest.mark.long)
            for each in (32, 512)
        ),
    ],
)
def test_four_leaves_of_eight_workers(
    bus_bits: int, count: int, operations: Sequence[tuple[str, str, str]]
) -> None:
    """Two per cent of the frames are lost on every link."""
    tree = Aggregator(children=(Aggregator(8),) * 4)
    links = Links(loss=0.02, duplication=0.01, burst=4)
    reduce_in_tree(tree, 5, links=links, bus_bits=bus_bits, count=count, operations=operations)


@pytest.mark.long
@pytest.mark.parametrize(("bus_bits", "register"), [(32, 0), (512, 0), (512, 1)])
@pytest.mark.parametrize("name", TREES)
def test_every_operation_on_every_kind_of_tensor(name: str, bus_bits: int, register: int) -> None:
    for seed, links in enumerate((Links(), Links(loss=0.02, duplication=0.05, burst=8))):
        reduce_in_tree(
            TREES[name], seed, links=links, bus_bits=bus_bits, count=300,
            register=register, operations=EVERY,
        )  # fmt: skip

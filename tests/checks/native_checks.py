"""Checks for the C++ worker and the software engine; with a bug planted in them, one must fail.

The worker's checks need no arguments, so that a process of its own can run one
(`tests.support.drivers.built_worker`).
"""

from collections.abc import Callable, Sequence

import numpy as np

from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.worker.operation import Operation
from afflux_hdl.contract import wire
from tests.checks.golden_comparison import compare_engines, parents_of, tickets_of
from tests.support.drivers.golden_check import check_counters, check_operation
from tests.support.drivers.tensors import OPERATIONS, awkward
from tests.support.drivers.virtual_job import VirtualJob, VirtualNetwork, at_random, counters_of
from tests.support.drivers.virtual_tree import VirtualTree

MEMBERS = {
    "two leaves": [[0, 1], [2, 3, 4]],
    "mixed ranks": [[3, 0], [1], [4, 2]],
    "one leaf": [[1, 0]],
}
"""Ranks of each leaf of a tree."""


def check_operations_in_order() -> None:
    """Check a few reductions of awkward tensors in a perfect network, without overflows."""
    generator = np.random.default_rng(11)
    for workers in (2, 5):
        job = VirtualJob(workers, 3, 2)
        for dtype, reduction in OPERATIONS:
            for count in (9, 60, 1000):
                tensors = [awkward(generator, count, dtype, True) for _ in range(workers)]
                check_operation(job, tensors, dtype, reduction)
        check_counters(job)


def check_places() -> None:
    """Each rank of an odd number has a place of its own in the opening round."""
    job = VirtualJob(3, 3, 2)
    tensors = [np.full(9, 2.0**rank, np.float32) for rank in range(3)]
    check_operation(job, tensors, wire.Dtype.FLOAT32, Reduction.SUM)


def check_schedules(
    receive: Callable[..., bytes | None] = Operation.receive,
    make_engine: Callable[[], Engine] = SoftEngine,
) -> None:
    """Operations under loss, doubling and long delays."""
    for seed in range(4):
        generator = np.random.default_rng(seed)
        job = VirtualJob(3, 2, 2, make_engine())
        fates = at_random(seed, lose=0.1, double=0.2, delay=0.1)
        for _ in range(4):
            tensors = [generator.integers(-99, 99, 1500).astype(np.int32) for _ in range(3)]
            check_operation(
                job,
                tensors,
                wire.Dtype.INT32,
                Reduction.SUM,
                fates,
                patience_s=100.0,
                receive=receive,
            )
        check_counters(job)


def check_engine(engine: Engine | None = None) -> None:
    """Compare an engine, by default the software engine, with the golden model."""
    engine = engine or SoftEngine(slots=64)
    compare_engines(engine, tickets_of([(3, 4, 2, 6, 0xFFFF_FFFE)]), 5, 2500)


def check_operations(network: VirtualNetwork, seed: int, lossy: bool, count: int = 1500) -> None:
    """Every reduction, with the golden bits at every rank."""
    generator = np.random.default_rng(seed)
    fates = at_random(seed, lose=0.1, double=0.1, delay=0.1) if lossy else ()
    for dtype, reduction in OPERATIONS:
        for size in (5, count):
            tensors = [awkward(generator, size, dtype, True) for _ in network.sessions]
            check_operation(network, tensors, dtype, reduction, fates, patience_s=200.0)


def check_engine_with_parents(engine: Engine | None = None) -> None:
    """Compare an engine whose job has a parent with the golden model."""
    engine = engine or SoftEngine(slots=64)
    tickets = tickets_of([(3, 4, 2, 6, 0xFFFF_FFFE)])
    compare_engines(engine, tickets, 5, 1500, parents_of(tickets, {0}))


def check_tree(
    members: Sequence[Sequence[int]] = MEMBERS["two leaves"],
    lossy: bool = True,
    group: bool = False,
    seed: int = 1,
    make_engine: Callable[[], Engine] = SoftEngine,
) -> VirtualTree:
    """Every reduction in a tree of engines; returns the tree."""
    tree = VirtualTree(members, 3, 2, group, make_engine)
    check_operations(tree, seed, lossy)
    return tree


def check_group(workers: int = 3) -> None:
    """In a perfect network a job with a multicast group gets each result once."""
    job = VirtualJob(workers, 3, 2, group=True)
    check_operations(job, 3, lossy=False)
    counters = counters_of(job.engine)
    assert counters["frames_out"] == counters["joins"] + counters["rounds"]
    for session in job.sessions:
        statistics = session.statistics
        assert (statistics.retransmissions, statistics.probes, statistics.ignored) == (0, 0, 0)

"""Workers of the golden model, written in Python from the protocol alone, on the C++ engine."""

import random

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.control.tickets import JobTicket
from afflux_hdl.contract import wire
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.network import (
    deliver,
    join_all,
    make_workers,
    run_in_order,
    run_unkindly,
)
from afflux_sim.golden.reductions import all_reduce
from afflux_sim.golden.shared_columns import SharedColumns
from afflux_sim.golden.worker import GoldenWorker
from tests.support.drivers.virtual_job import (
    ENGINE_ADDRESS,
    ENGINE_MAC,
    FIRST_ROUND,
    KEY,
    configure,
    counters_of,
    create_job,
)
from tests.support.golden_tensors import DTYPES, bits_of, draw, reductions

OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]
LANES, SLOTS = 3, 2


def job_of(workers: int) -> tuple[SoftEngine, list[GoldenWorker]]:
    engine = SoftEngine()
    configure(engine)
    address = ".".join(map(str, ENGINE_ADDRESS.to_bytes(4, "big")))
    ticket = JobTicket(
        address, wire.PORT, 1, KEY, FIRST_ROUND, workers, LANES, SLOTS, SLOTS + 1, "soft"
    )
    create_job(engine, ticket)
    members = make_workers(
        workers,
        engine=Endpoint(ENGINE_MAC, address, wire.PORT),
        job=1,
        key=KEY,
        round=FIRST_ROUND,
        lanes=LANES,
        slots=SLOTS,
    )
    join_all(lambda frame: engine.play([frame]), members)
    return engine, members


def jobs_of(workers: int, aggregators: int) -> tuple[list[SoftEngine], list[list[GoldenWorker]]]:
    """Engines of the same address, each in a network of its own, and each worker's parts."""
    jobs = [job_of(workers) for _ in range(aggregators)]
    return [engine for engine, _ in jobs], [members for _, members in jobs]


def check(results: list, tensors: list, dtype: str, reduction: str) -> None:
    expected = bits_of(all_reduce(tensors, dtype, reduction), dtype)
    for result in results:
        assert np.array_equal(bits_of(result, dtype), expected)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_operation(workers: int) -> None:
    rng = np.random.default_rng(workers)
    engine, members = job_of(workers)
    for dtype, reduction in OPERATIONS:
        for kind, count in (("dense", 5), ("dense", 700), ("special", 1500)):
            tensors = [draw(rng, kind, dtype, count) for _ in members]
            results = run_in_order(
                lambda frame: engine.play([frame]), members, tensors, dtype, reduction
            )
            check(results, tensors, dtype, reduction)
    assert counters_of(engine)["duplicates"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_an_unkind_network(seed: int) -> None:
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    engine, members = job_of(3)
    for dtype, reduction in OPERATIONS[seed::3]:
        tensors = [draw(rng, "dense", dtype, 1500) for _ in members]
        results = run_unkindly(
            lambda frame: engine.play([frame]), members, tensors, dtype, reduction, choose=choose
        )
        check(results, tensors, dtype, reduction)
    assert counters_of(engine)["duplicates"] > 0


@pytest.mark.parametrize(
    "aggregators", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))]
)
def test_aggregators_share_columns(aggregators: int) -> None:
    rng = np.random.default_rng(aggregators)
    engines, members = jobs_of(2, aggregators)
    shared = [SharedColumns(parts) for parts in zip(*members, strict=True)]
    for dtype, reduction in OPERATIONS:
        for kind, count in (("dense", 5), ("dense", 700), ("special", 1500), ("special", 6000)):
            tensors = [draw(rng, kind, dtype, count) for _ in shared]
            for worker, tensor in zip(shared, tensors, strict=True):
                worker.start(tensor, dtype, reduction)
            for engine, own in zip(engines, members, strict=True):
                while frames := [frame for worker in own for frame in worker.frames_to_send()]:
                    for frame in frames:
                        deliver(engine.play([frame]), own)
            check([worker.result() for worker in shared], tensors, dtype, reduction)
    assert all(counters_of(engine)["rounds"] for engine in engines)

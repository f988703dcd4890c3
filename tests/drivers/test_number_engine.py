"""Golden workers on the C++ engine: correctly rounded sums, whatever the way."""

import random
from itertools import product

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.control.tickets import JobTicket
from afflux_hdl.contract import wire
from afflux_sim.golden.frames import Endpoint, Packet, build_frame, parse_packet
from afflux_sim.golden.network import (
    Receive,
    deliver,
    join_all,
    make_workers,
    run_in_order,
    run_unkindly,
)
from afflux_sim.golden.reductions import reduce_numbers
from afflux_sim.golden.shared_columns import SharedColumns
from afflux_sim.golden.worker import GoldenWorker
from tests.checks.golden_comparison import compare_engines, tickets_of
from tests.support.drivers.virtual_job import (
    ENGINE_ADDRESS,
    ENGINE_MAC,
    FIRST_ROUND,
    KEY,
    configure,
    counters_of,
    create_job,
)
from tests.support.golden_tensors import BITS, KINDS, bits_of, draw, reductions

FLOATS = ("float32", "float16", "bfloat16")
OPERATIONS = [(dtype, reduction) for dtype in FLOATS for reduction in reductions(dtype)]
LANES, SLOTS = 3, 2
LONG = [(5, kind) for kind in KINDS if kind not in ("sparse", "special")]
"""Of the most workers two kinds are looked at in every run."""


def job_of(workers: int, shares: int = 1) -> tuple[SoftEngine, list[GoldenWorker]]:
    engine = SoftEngine(shares=shares)
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
    join_all(receiving(engine), members)
    assert all(member.joined is not None and member.joined[8:9] == () for member in members)
    return engine, members


def receiving(engine: SoftEngine) -> Receive:
    return lambda frame: engine.play([frame])


def check(results: list, tensors: list, dtype: str, reduction: str) -> None:
    columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
    right = np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])
    for result in results:
        wrong = np.flatnonzero(bits_of(result, dtype) != right)
        assert not wrong.size, f"{wrong[:10]}: {bits_of(result, dtype)[wrong[:10]]}"


@pytest.mark.parametrize(
    ("workers", "kind"),
    [
        pytest.param(*each, marks=pytest.mark.long if each in LONG else ())
        for each in product((1, 2, 5), KINDS)
    ],
)
def test_every_operation(workers: int, kind: str) -> None:
    rng = np.random.default_rng(workers)
    engine, members = job_of(workers, shares=1 + workers % 2)
    for dtype, reduction in OPERATIONS:
        for count in (5, 700):
            tensors = [draw(rng, kind, dtype, count) for _ in members]
            results = run_in_order(receiving(engine), members, tensors, dtype, reduction)
            check(results, tensors, dtype, reduction)
    assert counters_of(engine)["duplicates"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_an_unkind_network(seed: int) -> None:
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    engine, members = job_of(3)
    for dtype, reduction in OPERATIONS[seed::3]:
        tensors = [draw(rng, "mixed", dtype, 1500) for _ in members]
        results = run_unkindly(receiving(engine), members, tensors, dtype, reduction, choose=choose)
        check(results, tensors, dtype, reduction)
    assert counters_of(engine)["duplicates"] > 0


def test_what_doubles_hold_is_not_asked_for_again() -> None:
    """Gradients take one operation, the whole range of exponents takes a second one."""
    rng = np.random.default_rng(3)
    for kind, operations in (("dense", 1), ("special", 1), ("mixed", 2)):
        engine, members = job_of(4)
        tensors = [draw(rng, kind, "float32", 3000) for _ in members]
        results = run_in_order(receiving(engine), members, tensors, "float32", "sum")
        check(results, tensors, "float32", "sum")
        assert {member.operation.number for member in members} == {operations - 1}, kind
        assert counters_of(engine)["conflicts"] == 0


@pytest.mark.parametrize(
    ("opcode", "dtype", "known"),
    [
        (opcode, dtype, 4 <= opcode <= 14 and opcode not in (6, 7) and 1 <= dtype <= 3)
        for opcode in range(4, 16)
        for dtype in range(8)
    ],
)
def test_opcodes(opcode: int, dtype: int, known: bool) -> None:
    engine, (member,) = job_of(1)
    packet = Packet(
        type=0,
        opcode=opcode,
        dtype=dtype,
        job=1,
        worker=0,
        round=FIRST_ROUND,
        key=KEY,
        blocks={0: np.zeros(64, np.int32)},
    )
    sent = engine.play([build_frame(member.endpoint, member.engine, packet)])
    assert counters_of(engine)["bad_type"] == (not known)
    assert [(p.opcode, p.dtype) for p in map(parse_packet, sent)] == (
        [(opcode, dtype)] if known else []
    )


ONE_JOB, TWO_JOBS = [(1, 1, 1, 5, 0)], [(3, 16, 2, 7, 9), (2, 5, 3, 9, 0xFFFF_FFFF)]


@pytest.mark.parametrize(
    ("seed", "jobs"),
    [
        pytest.param(0, ONE_JOB, marks=pytest.mark.long),
        pytest.param(0, TWO_JOBS, marks=pytest.mark.long),
        (1, ONE_JOB),
        (1, TWO_JOBS),
    ],
)
def test_equals_golden_on_random_frames(jobs: list, seed: int) -> None:
    engine = SoftEngine(slots=64, shares=1 + seed)
    compare_engines(engine, tickets_of(jobs, {0}), seed, 1500, numbers=True)


@pytest.mark.parametrize("aggregators", [2, pytest.param(3, marks=pytest.mark.long)])
def test_aggregators_share_columns(aggregators: int) -> None:
    """Engines of one address, each in a network of its own, and each worker's parts."""
    rng = np.random.default_rng(aggregators)
    jobs = [job_of(2) for _ in range(aggregators)]
    shared = [SharedColumns(parts) for parts in zip(*(own for _, own in jobs), strict=True)]
    for dtype, reduction in OPERATIONS:
        for kind, count in (("mixed", 5), ("dense", 700), ("mixed", 3000)):
            tensors = [draw(rng, kind, dtype, count) for _ in shared]
            for worker, tensor in zip(shared, tensors, strict=True):
                worker.start(tensor, dtype, reduction)
            going = True
            while going:
                for engine, own in jobs:
                    while frames := [frame for worker in own for frame in worker.frames_to_send()]:
                        for frame in frames:
                            deliver(engine.play([frame]), own)
                went_on = [worker.go_on() for worker in shared]
                going = any(went_on)
            check([worker.result() for worker in shared], tensors, dtype, reduction)
    assert all(counters_of(engine)["rounds"] for engine, _ in jobs)

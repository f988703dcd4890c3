"""Sums of numbers in the RTL: frame by frame as in the golden model, with the same slots."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from afflux_sim.golden.network import (
    run_unkindly,
)
from afflux_sim.rtl.stimulus import NOT_DRAINED
from afflux_sim.rtl.verilated import VerilatedEngine
from benchmarks.gateware.closed_loop import ClosedLoop
from benchmarks.gateware.traffic import DenseTraffic
from tests.checks.engine_checks import BUILDS
from tests.checks.sum_checks import Bench, check_jobs_side_by_side, check_operations, check_sums
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform
from tests.support.golden_tensors import draw
from tests.support.planted_engine import bug_is_found
from tests.support.planting import Bug


@pytest.fixture(
    params=[
        *((32, 0), (512, 0)),
        *(pytest.param((bus_bits, 1), marks=pytest.mark.long) for bus_bits in (32, 512)),
    ],
    ids=["32", "512", "32_output_register", "512_output_register"],
)
def built(request) -> Iterator[tuple[VerilatedEngine, int]]:
    bus_bits, register = request.param
    with VerilatedEngine(
        bus_bits=bus_bits, ram_output_register=register, **BUILDS[bus_bits]
    ) as engine:
        yield engine, bus_bits


@pytest.fixture
def bench(built) -> Callable[..., Bench]:
    return lambda **options: Bench(*built, **options)


def test_operations_and_kinds_of_tensor(bench):
    check_operations(bench())


def test_jobs_side_by_side(bench):
    check_jobs_side_by_side(bench(ready=1.0))


def test_bad_networks(bench):
    rng = np.random.default_rng(1)
    choose = random.Random(1)
    bench = bench(ready=0.5)
    for dtype, reduction in (("float32", "sum"), ("bfloat16", "avg"), ("float16", "max")):
        tensors = [draw(rng, "mixed", dtype, 500) for _ in bench.workers]
        run_unkindly(bench.receive, bench.workers, tensors, dtype, reduction, choose=choose)


def test_a_beat_in_every_cycle(built):
    """Results have a beat more than contributions, so it is the way out that is full."""
    engine, bus_bits = built
    loop = ClosedLoop(
        engine,
        bus_bits=bus_bits,
        clock_hz=250e6,
        workers=3,
        lanes=3,
        slots=8,
        traffic=DenseTraffic(3, [1, 3]),
    )
    loop.run(200)
    start = loop.passed()
    loop.run(200)
    passed = loop.passed(start)
    assert passed.receive_stalls == 0
    assert passed.beats_out == passed.cycles


@pytest.mark.parametrize("blocks, more", [(0, 0), (3, 48)])
def test_latency(bench, blocks: int, more: int) -> None:
    """The same for any blocks; at 32 bits, if there are some, `more` besides."""
    bench = bench(ready=1.0)
    job = Job(number=0, workers=1, lanes=3, slots=1)
    perform(bench.engine, bench.director.create(job))
    found = set()
    for step in range(4):
        if bench.engine.cycles % 2 == step % 2:
            bench.engine.run(1)
        frame = job.data(0, 0, step, {lane: [lane] * 64 for lane in range(blocks)})
        bench.engine.play([frame], NOT_DRAINED)
        before = bench.engine.statistics()
        while bench.engine.statistics().beats_out == before.beats_out:
            bench.engine.run(1)
        found.add(bench.engine.cycles - before.cycles)
        assert len(bench.engine.play([])) == 1
    expected = 35 + (more if bench.bus_bits == 32 else 0)
    assert max(found) <= expected + 2
    assert min(found) >= expected


BUGS = {
    "a lost bit is forgotten": (
        "engine/merge_blocks.py",
        "| ((before.lost | ~before.kept) & beat.any())",
        "",
    ),
    "a lane that one has not sent": (
        "engine/admit.py",
        "& Mux(opens, -1, now.held.in_all)",
        "",
    ),
    "the exponent of the own words": (
        "engine/merge_blocks.py",
        "Cat(beat, ~version,",
        "Cat(beat, version,",
    ),
    "the exponent of another lane": (
        "engine/merge_blocks.py",
        "Cat(beat, ~version,",
        "Cat(beat ^ 1, ~version,",
    ),
    "a note that comes too late": (
        "engine/merge.py",
        "return halfway | (begun & ~has_blocks)",
        "return begun",
    ),
    "the next order's format": (
        "engine/transmit.py",
        "delayed(m, value, 1 + p.ram_output_register) for value in known",
        "value for value in known",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs(name: str) -> None:
    """At 32 bits, whose model is compiled in a quarter of the time."""
    build = {**BUILDS[32]}
    with bug_is_found(f"sums {name}", Bug(*BUGS[name]), 32, build) as engine:
        check_sums(engine, 32)

"""The least clock at which an engine of 32 bits serves a gigabit port: the table of docs/cost.md.

It is computed here from the contract and from the cycles that the hardware guide states, and two
of its lines are played at such clocks: a port that brings all it can, and one that takes no more.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from math import ceil

import pytest

from afflux_drivers.aggregator.jobs import read_counters
from afflux_hdl.contract import wire
from afflux_hdl.contract.registers import address_of
from afflux_hdl.synthesis.ecp5 import PARAMETERS
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from benchmarks.gateware.closed_loop import WIRE_OVERHEAD_BYTES, ClosedLoop
from benchmarks.gateware.traffic import DenseTraffic
from tests.checks.engine_checks import BUILDS, open_engine
from tests.scenarios.director import Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform
from tests.support.checkout import ROOT

PORT = 1_000_000_000
CHECK_SEQUENCE = 4
TOLERANCE = Fraction(1, 10_000)
"""Of either end's clock (IEEE 802.3, 1000BASE-T: 125 MHz within 0.01 %)."""

LEAST, MOST = 60, 9018
"""Bytes of frames without check sequence: the least on Ethernet, and a tagged jumbo frame."""

SECTION = re.search(
    r"^### The clock that a gigabit port needs$(.*?)^##",
    (ROOT / "docs" / "cost.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
assert SECTION
TEXT = " ".join(SECTION[1].split())
ROWS = re.findall(
    r"^\| (in|out) \| .+? \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) "
    r"\| ([\d.]+) \| (\d+) % \| (\d+) % \|$",
    SECTION[1],
    re.MULTILINE,
)


def beats(size: int) -> int:
    """Return the beats of a frame: as many cycles does each end of the engine take for it."""
    return ceil(size / PARAMETERS.bus_bytes)


def merge_cycles(blocks: int) -> int:
    """Return those of a contribution in merge: taken, aligned, words, blocks."""
    return 2 + PARAMETERS.header_beats + blocks * PARAMETERS.block_beats


def least_clock(size: int) -> Fraction:
    """Return the hertz at which a frame is over when the next one of its size begins."""
    return Fraction(PORT * beats(size), 8 * (size + WIRE_OVERHEAD_BYTES))


def test_the_document_has_these_numbers() -> None:
    assert len(ROWS) == 11
    for _, *cells in ROWS:
        size, on_wire, cycles = (int(cell.replace(",", "")) for cell in cells[:3])
        clock = least_clock(size)
        assert on_wire == size + WIRE_OVERHEAD_BYTES
        assert cycles == beats(size)
        assert float(cells[3]) == round(float(clock) / 1e6, 2)
        assert [int(cell) for cell in cells[4:]] == [
            round(100 * float(clock) / hertz) for hertz in (50e6, 62.5e6)
        ]
    # Every size that a job of this build has, in both directions, is among them or between two.
    sizes = {
        way: {int(row[1].replace(",", "")) for row in ROWS if row[0] == way}
        for way in ("in", "out")
    }
    for blocks in (0, PARAMETERS.lanes):
        assert wire.frame_bytes(blocks) in sizes["in"]
        assert wire.frame_bytes(blocks) + wire.SEAL_BYTES in sizes["out"]
    assert {LEAST, MOST} <= sizes["in"]


def test_no_mixture_of_frames_needs_more_than_the_limit() -> None:
    limit = Fraction(PORT, 8 * PARAMETERS.bus_bytes)
    assert limit == 31_250_000 and "31.25 MHz" in TEXT
    # A mixture needs no more than the worst of its frames; the gaps are not even needed for that.
    for size in range(LEAST, MOST + 1):
        assert least_clock(size) < limit
        assert beats(size) * PARAMETERS.bus_bytes < size + CHECK_SEQUENCE
    fast_port = limit * (1 + TOLERANCE) / (1 - TOLERANCE)
    assert f"{ceil(fast_port / 1000) / 1000} MHz" in TEXT
    for hertz, times in ((50_000_000, "1.60"), (62_500_000, "2.00"), (94_580_000, "3.03")):
        assert f"{times} times" in TEXT
        assert float(times) == round(float(hertz / fast_port), 2)


def test_no_stage_takes_longer_than_a_frame() -> None:
    # Admit, deliveries and replicate take a frame in two cycles; the shortest has 15 beats.
    assert beats(LEAST) == 15 and "in 15 cycles" in TEXT
    for blocks in range(PARAMETERS.lanes + 1):
        arrives = beats(wire.frame_bytes(blocks))
        assert merge_cycles(blocks) == arrives - 14
        assert beats(wire.frame_bytes(blocks) + wire.SEAL_BYTES) == arrives + 1
    assert "18 + 64k cycles" in TEXT and merge_cycles(1) == 18 + 64
    assert "32 + 64k beats" in TEXT and beats(wire.frame_bytes(1)) == 32 + 64


@pytest.fixture(scope="module")
def engine() -> Iterator[VerilatedEngine]:
    with open_engine(32) as opened:
        yield opened


@pytest.mark.parametrize("clock_hz", [31.26e6, 50e6])
@pytest.mark.parametrize("blocks", [0, 3])
def test_a_full_port_loses_nothing(engine: VerilatedEngine, clock_hz: float, blocks: int) -> None:
    """Workers who fill a gigabit port get their results as fast as they contribute."""
    workers = 4
    before = read_counters(engine)
    loop = ClosedLoop(
        engine,
        bus_bits=32,
        clock_hz=clock_hz,
        workers=workers,
        lanes=BUILDS[32]["lanes"],
        slots=BUILDS[32]["slots"],
        traffic=DenseTraffic(workers, [blocks]),
        port_bits_per_s=PORT,
    )
    loop.run(40)
    start = loop.passed()
    loop.run(80)
    passed = loop.passed(start)
    assert passed.receive_stalls == passed.idle_cycles == 0
    port_frames = passed.cycles / clock_hz * PORT / 8 / (wire.frame_bytes(blocks) + 24)
    assert passed.frames_in == pytest.approx(port_frames, rel=0.02)
    assert passed.frames_out == pytest.approx(port_frames, rel=0.05)
    engine.play([])
    after = read_counters(engine)
    lost = ("receive_overflow", "results_dropped", "replays_dropped", "data_errors")
    assert {name: after[name] - before[name] for name in lost} == dict.fromkeys(lost, 0)


@pytest.mark.parametrize("share", [Fraction(5, 8), Fraction(1, 2)], ids=["50 MHz", "62.5 MHz"])
def test_a_port_that_takes_a_beat_now_and_then_never_waits_within_a_frame(
    engine: VerilatedEngine, share: Fraction
) -> None:
    """A gigabit port takes 31.25 M beats a second: once a frame has begun, each is there."""
    build = BUILDS[32]
    job = Job(workers=4, lanes=build["lanes"], slots=1)
    director = Director(**build)
    perform(engine, director.configure())
    perform(engine, director.create(job))
    held = Stimulus(ready_share=0, drain=False)
    for step, count in enumerate((0, 1, job.lanes)):
        blocks = {lane: [lane + 1] * 64 for lane in range(count)}
        for worker in range(job.workers):
            engine.play([job.data(worker, 0, step, blocks)], held)
        results: list[bytes] = []
        within, tick, most = False, 0, 10 * job.workers * beats(wire.frame_bytes(count) + 4)
        while len(results) < job.workers:
            tick += 1
            assert tick < most, f"{len(results)} results in {tick} cycles"
            if int(tick * share) == int((tick - 1) * share):
                # A write that changes nothing lets exactly one cycle pass with `tx_ready` low.
                engine.play([], held, writes=[(0, address_of("debug_slot"), 0)])
                continue
            beats_before = engine.statistics().beats_out
            done = engine.run(1)
            taken = engine.statistics().beats_out - beats_before
            assert taken or not within, f"{count} blocks: nothing in cycle {tick}, within a frame"
            within = bool(taken) and not done
            results += done
        assert {len(frame) for frame in results} == {wire.frame_bytes(count) + wire.SEAL_BYTES}

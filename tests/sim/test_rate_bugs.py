"""A slower engine, right in all that it sends, is seen by the measurement of its rate."""

import pytest
from amaranth.hdl import Module

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.transmit import Transmit
from afflux_hdl.engine.verilog import generate
from afflux_sim.rtl.verilated import VerilatedEngine
from benchmarks.gateware.closed_loop import ClosedLoop, Passed
from benchmarks.gateware.traffic import DenseTraffic
from tests.checks.engine_checks import BUILDS
from tests.support.overriding import engine_verilog_with

pytestmark = [pytest.mark.slow, pytest.mark.long]

# Without the bug it is the model that other tests have built.
BUILT = BUILDS[512]


def pause(m: Module, transmit: Transmit) -> None:
    """Take the next frame when the last one has gone, not with its last beat."""
    m.d.comb += transmit.taking.eq(~transmit.phase & ~transmit.active)


def measure(verilog: str) -> Passed:
    """Measure a window of rounds of two blocks, every sum checked."""
    with VerilatedEngine.from_verilog(verilog, 512) as engine:
        loop = ClosedLoop(
            engine,
            bus_bits=512,
            clock_hz=250e6,
            workers=4,
            lanes=2,
            slots=12,
            traffic=DenseTraffic(4, [2]),
        )
        loop.run(800)
        start = loop.passed()
        loop.run(800)
        return loop.passed(start)


def test_a_pause_between_frames_is_seen():
    right = measure(generate(Parameters(bus_bits=512, **BUILT)))
    # With its seal a result is eleven beats, a contribution ten.
    assert right.beats_out == right.cycles
    assert right.beats_in / right.cycles == pytest.approx(10 / 11, abs=0.02)
    slow = measure(engine_verilog_with(Transmit, pause, 512, BUILT))
    # Eleven beats in twelve cycles; workers wait for results, so less goes in too.
    assert slow.beats_out / slow.cycles == pytest.approx(11 / 12, abs=0.02)
    assert slow.beats_in / slow.cycles < 0.85
    assert slow.idle_cycles > 0
    assert slow.receive_stalls == 0

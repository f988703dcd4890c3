"""The management behind a MAC, at a wider bus than its own: what a reset leaves of its frames."""

from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module, ResetSignal, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.frame_boundary import WholeFrames
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.management.frame_ports import FrameWriter
from afflux_hdl.node.node import AXI_LITE
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port import verilog
from afflux_hdl.port.verilog import PortParameters
from tests.support.planting import names_with
from tests.support.stand_in_management import StandInManagement

WIDE_BITS = 128
PAIRS = 42
"""Of a frame: those of an answer of the management."""

PERIOD_S = 1e-8


class Talker(StandInManagement):
    """In place of the management: sends frames without end, numbered since the reset."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.writer = writer = FrameWriter()
        connect(m, writer.o, flipped(self.o))
        number, pair = Signal(16), Signal(range(PAIRS))
        m.d.comb += [
            writer.pair.eq(number),
            writer.put.eq(writer.ready),
            writer.last.eq(pair == PAIRS - 1),
        ]
        with m.If(writer.ready):
            m.d.sync += pair.eq(pair + 1)
            with m.If(writer.last):
                m.d.sync += [pair.eq(0), number.eq(number + 1)]
        return m


class HostSide(wiring.Component):
    """In place of the node behind a MAC: its side towards a host."""

    def __init__(self) -> None:
        beat = PacketBeat(WIDE_BITS)
        super().__init__(
            {
                "host_rx": Out(stream.Signature(beat)),
                "host_tx": In(stream.Signature(beat)),
                "axil": In(AXI_LITE),
                "frames": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.whole = whole = WholeFrames(bus_bits=WIDE_BITS)
        connect(m, flipped(self.host_tx), whole.i)
        connect(m, whole.o, flipped(self.frames))
        return m


def check_resets(port_top: Any = verilog.PortTop) -> None:
    """Reset in each cycle of a frame: the first frame after the reset is taken, and is whole."""
    engine = Parameters(bus_bits=WIDE_BITS, workers=1, lanes=1, jobs=1, slots=2)
    built = PortParameters(node=NodeParameters(engine=engine), mac_bits=WIDE_BITS)
    # No more of the top than what joins management and node.
    top = SimpleNamespace(
        _parameters=built, _management=Talker(), _pin=lambda name: Signal(name=name)
    )
    m = Module()
    m.submodules.side = side = HostSide()
    m.domains.sync = ClockDomain("sync")
    m.domains.pins = ClockDomain("pins", reset_less=True)
    reset = Signal()
    m.d.comb += [ResetSignal("sync").eq(reset), side.frames.ready.eq(1)]
    port_top._manage(top, m, side)
    simulator = Simulator(m)
    simulator.add_clock(PERIOD_S, domain="sync")
    simulator.add_clock(PERIOD_S, domain="pins")
    got: list[tuple[int, int, bool]] = []

    async def listen(ctx: Any) -> None:
        beats, first = 0, 0
        async for _, _, under_reset, valid, beat in ctx.tick("pins").sample(
            reset, side.frames.valid, side.frames.payload
        ):
            # Frames that a reset finds in the buffer after this are lost, and frames that are taken
            # meanwhile.
            if under_reset:
                beats = 0
            if under_reset or not valid:
                continue
            first = first if beats else beat.data & 0xFFFF
            beats += 1
            if beat.last:
                got.append((first, beats, bool(beat.error)))
                beats = 0

    async def play(ctx: Any) -> None:
        for cycle in range(120):
            ctx.set(reset, 0)
            await ctx.tick("pins").repeat(250 + cycle)
            ctx.set(reset, 1)
            await ctx.tick("pins").repeat(4)
            got.clear()
            ctx.set(reset, 0)
            await ctx.tick("pins").repeat(250)
            good = [(first, beats) for first, beats, error in got if not error]
            whole = -(-2 * PAIRS // (WIDE_BITS // 8))
            assert good[0] == (0, whole), f"reset in cycle {cycle}: {got[:3]}"
            assert good == [(n, whole) for n in range(len(good))]

    simulator.add_testbench(listen, background=True)
    simulator.add_testbench(play)
    simulator.run()


def test_the_first_frame_of_the_management_behind_a_reset_is_taken() -> None:
    check_resets()


def test_a_part_that_forgets_what_it_holds_is_noticed() -> None:
    planted = names_with(
        verilog,
        'narrow_bits=MANAGEMENT_BITS, wide_bits=bits, domain="pins"',
        "narrow_bits=MANAGEMENT_BITS, wide_bits=bits",
    )
    with pytest.raises(AssertionError, match="reset in cycle"):
        check_resets(planted["PortTop"])

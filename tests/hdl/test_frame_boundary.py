"""Frames that a reset cuts off, on the way in and on the way out; a link that takes nothing."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal
from amaranth.sim import Simulator

from afflux_hdl.lib import frame_boundary
from afflux_hdl.lib.frame_boundary import CutByReset, WholeFrames
from afflux_hdl.lib.link_watch import LinkWatch
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.node.egress import Egress
from tests.support.planting import names_with

BUS_BITS = 32
RESET_CYCLES = 3


def simulate(part: Any, reset: Signal, run: Callable[[Any], Any]) -> None:
    simulator = Simulator(ResetInserter(reset)(part))
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()


def test_only_whole_frames_come_in_after_a_reset() -> None:
    check_whole_frames(WholeFrames)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # As it was before there was this part.
        ("tail.eq(since_reset & tracker.inside)", "tail.eq(0)"),
        ("Signal(reset_less=True)", "Signal()"),
        ("tail.eq(since_reset & tracker.inside)", "tail.eq(since_reset)"),
    ],
)
def test_a_tail_that_comes_in_is_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_whole_frames(names_with(frame_boundary, right, wrong)["WholeFrames"])


def check_whole_frames(built: Any) -> None:
    """Random frames with gaps, resets at any time: what begins after a reset comes in, no tail."""
    choose = random.Random(1)
    part, reset = built(bus_bits=BUS_BITS), Signal()
    came: list[tuple[int, bool]] = []
    whole: list[int] = []
    tails: list[int] = []

    async def run(ctx: Any) -> None:
        ctx.set(part.i.payload.keep, 15)
        ctx.set(part.o.ready, 1)
        number, beat, beats, resetting, reset_within = 1, 0, 2, 0, False
        for _ in range(3000):
            if not resetting and choose.random() < 0.03:
                resetting = choose.randrange(1, 9)
            ctx.set(reset, resetting > 0)
            valid = choose.random() < 0.7
            last = beat == beats - 1
            ctx.set(part.i.valid, valid)
            ctx.set(part.i.payload.data, number)
            ctx.set(part.i.payload.last, last)
            # The part after this one sees nothing during the reset.
            if ctx.get(part.o.valid) and not resetting and ctx.get(part.o.payload.last):
                came.append((number, bool(ctx.get(part.o.payload.error))))
            reset_within |= resetting > 0 and (beat > 0 or valid)
            if valid and last and not resetting:
                (tails if reset_within else whole).append(number)
            if valid:
                number, beat = (number + 1, 0) if last else (number, beat + 1)
            if valid and last:
                beats, reset_within = choose.randrange(1, 6), False
            await ctx.tick()
            resetting = max(0, resetting - 1)

    simulate(part, reset, run)
    assert [number for number, error in came if not error] == whole
    assert [number for number, error in came if error] == tails
    assert len(tails) > 20


def test_a_last_beat_without_bytes_spoils_its_frame() -> None:
    part = WholeFrames(bus_bits=BUS_BITS)

    async def run(ctx: Any) -> None:
        ctx.set(part.i.valid, 1)
        for keep, last, error in ((15, 0, 0), (0, 1, 1), (15, 0, 0), (1, 1, 0), (0, 1, 1)):
            ctx.set(part.i.payload.keep, keep)
            ctx.set(part.i.payload.last, last)
            assert ctx.get(part.o.payload.error) == error
            await ctx.tick()

    simulate(part, Signal(), run)


class Leaving(Elaboratable):
    """A part, its output, and what notices that a reset cuts a frame off there."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.part, m.submodules.cut = part, cut = self.part, CutByReset()
        m.d.comb += [
            cut.taken.eq(part.o.valid & part.o.ready),
            cut.last.eq(part.o.payload.last),
            part.cut.eq(cut.cut),
        ]
        return m


PARTS: dict[str, Callable[[], Any]] = {
    "egress": lambda: Egress(bus_bits=BUS_BITS, sources=2, frame_beats_max=16),
    "fifo": lambda: PacketFifo(bus_bits=BUS_BITS, depth_bytes=64, lossy=True),
}
FRAME_BEATS = 3


@pytest.mark.parametrize("name", PARTS)
def test_what_a_reset_cuts_off_is_ended(name: str) -> None:
    """Frames of three beats, taken at any pace, resets at any time.

    Each frame that comes out is whole, or has been cut off and ends with an error.
    """
    choose = random.Random(2)
    part, reset = PARTS[name](), Signal()
    i, o = (part.i[0] if name == "egress" else part.i), part.o
    taken: list[tuple[int, int, int]] = []
    cuts: set[int] = set()

    async def run(ctx: Any) -> None:
        number, beat, waiting, resetting, share = 1, 0, None, 0, 1.0
        ctx.set(i.payload.keep, 15)
        for _ in range(2000):
            if not resetting and choose.random() < 0.02:
                resetting = RESET_CYCLES
                share = choose.choice((0.2, 0.5, 1.0))
            ctx.set(reset, resetting > 0)
            ctx.set(i.valid, not resetting)
            ctx.set(i.payload.data, number << 8 | beat)
            ctx.set(i.payload.last, beat == FRAME_BEATS - 1)
            ctx.set(o.ready, choose.random() < share)
            names = ("data", "keep", "last", "error")
            now = tuple(ctx.get(getattr(o.payload, each)) for each in names)
            valid = ctx.get(o.valid)
            assert waiting is None or (valid and waiting == now), "a beat changes while it waits"
            waiting = None
            if valid and ctx.get(o.ready):
                assert now[1] & 1, "a beat without bytes"
                taken.append((now[0], now[2], now[3]))
            elif valid and not resetting:
                waiting = now
            # Two resets may find the same frame cut off.
            if resetting == 1 and taken and not taken[-1][1]:
                cuts.add(len(taken))
            if not resetting and ctx.get(i.ready):
                number, beat = (number + 1, 0) if beat == FRAME_BEATS - 1 else (number, beat + 1)
            elif resetting:
                number, beat, waiting = number + (beat > 0), 0, None
            await ctx.tick()
            resetting = max(0, resetting - 1)

    simulate(Leaving(part), reset, run)
    errors, at = 0, 0
    while at + FRAME_BEATS < len(taken):
        frame = taken[at : at + FRAME_BEATS]
        ends = next(n for n, beat in enumerate(frame) if beat[1])
        if frame[ends][2]:
            errors += 1
            frame = frame[:ends]
        else:
            assert ends == FRAME_BEATS - 1
        assert len({data >> 8 for data, _, _ in frame}) == 1
        assert [data & 255 for data, _, _ in frame] == list(range(len(frame)))
        at += ends + 1
    assert len(cuts) > 5
    assert errors in (len(cuts), len(cuts) - 1)


def test_a_link_is_down_when_a_beat_waits_for_long() -> None:
    choose = random.Random(3)
    part = LinkWatch(cycles=5)
    downs = 0

    async def run(ctx: Any) -> None:
        nonlocal downs
        waited, share = 0, 0.5
        for cycle in range(1000):
            if cycle % 20 == 0:
                share = choose.choice((0.05, 0.5))
            valid = choose.random() < 0.9 or waited > 0
            ready = choose.random() < share
            ctx.set(part.valid, valid)
            ctx.set(part.ready, ready)
            assert ctx.get(part.down) == (waited >= 5)
            downs += waited == 5
            waited = waited + 1 if valid and not ready else 0
            await ctx.tick()

    simulate(part, Signal(), run)
    assert downs > 10

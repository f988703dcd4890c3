"""Whole frames between clocks: beats beside a list, no pause within a frame, long ones, resets."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module, ResetSignal, Signal
from amaranth.sim import Simulator

from afflux_hdl.lib import whole_frame_crossing
from afflux_hdl.lib.whole_frame_crossing import WholeFrameCrossing
from tests.support.planting import names_with

Beat = tuple[int, int, int]
"""Data, last, error."""

PERIODS_NS = [(6.4, 2.56), (4.0, 3.103), (3.1, 8.0), (8.0, 8.0004), (2.0, 20.0)]
"""Of writer and reader."""

DEPTH = 16


def drawn_frames(count: int, longest: int, seed: int) -> list[list[Beat]]:
    choose = random.Random(seed)
    made = []
    for number in range(count):
        beats = choose.choice([1, 1, 2, 3, longest])
        made.append([(number << 8 | n, int(n == beats - 1), 0) for n in range(beats)])
    return made


class Bench:
    """A crossing whose two ends each have a clock, and a mood."""

    def __init__(self, built: Callable[..., Any] = WholeFrameCrossing) -> None:
        self.part = built(bus_bits=32, depth=DEPTH, writer="writer", reader="reader")
        self.reset = Signal()
        self.came: list[Beat] = []
        self.cuts = 0
        self.pauses = 0
        self.early = 0

    def run(
        self,
        beats: list[Beat],
        periods_ns: tuple[float, float],
        *,
        offers: float = 1.0,
        takes: float = 1.0,
        expected: int | None = None,
        resets: bool = False,
    ) -> None:
        part, choose = self.part, random.Random(1)
        whole_frames_in = 0
        count = len(beats) if expected is None else expected

        async def write(ctx: Any) -> None:
            nonlocal whole_frames_in
            left, stuck = list(beats), 0
            while left and stuck < 2000:
                stuck += 1
                valid = offers >= 1 or choose.random() < offers
                ctx.set(part.i.valid, valid)
                if valid:
                    for name, value in zip(("data", "last", "error"), left[0], strict=True):
                        ctx.set(getattr(part.i.payload, name), value)
                    ctx.set(part.i.payload.keep, 0xF)
                    if ctx.get(part.i.ready):
                        stuck = 0
                        whole_frames_in += left.pop(0)[1] | ctx.get(part.cut)
                        self.cuts += ctx.get(part.cut)
                if resets:
                    ctx.set(self.reset, choose.random() < 0.1)
                await ctx.tick("writer")
            ctx.set(part.i.valid, 0)

        async def read(ctx: Any) -> None:
            inside, frames_out, idle = False, 0, 0
            while len(self.came) < count and idle < 3000:
                ready = takes >= 1 or choose.random() < takes
                ctx.set(part.o.ready, ready)
                valid = ctx.get(part.o.valid)
                self.pauses += inside and not valid
                self.early += valid and frames_out >= whole_frames_in
                idle = 0 if valid else idle + 1
                if valid and ready:
                    beat = part.o.payload
                    got = (ctx.get(beat.data), ctx.get(beat.last), ctx.get(beat.error))
                    self.came.append(got)
                    inside = not got[1]
                    frames_out += got[1]
                await ctx.tick("reader")

        m = Module()
        m.submodules.part = part
        m.domains += [ClockDomain("writer"), ClockDomain("reader")]
        m.d.comb += [ResetSignal("writer").eq(self.reset), ResetSignal("reader").eq(self.reset)]
        simulator = Simulator(m)
        for name, period in zip(("writer", "reader"), periods_ns, strict=True):
            simulator.add_clock(period * 1e-9, domain=name)
        simulator.add_testbench(write)
        simulator.add_testbench(read)
        simulator.run()


def sound(bench: Bench, beats: list[Beat]) -> bool:
    """Return whether all beats came, in order, in frames that were in before and never paused."""
    return bench.came == beats and bench.pauses == bench.early == bench.cuts == 0


PACES = [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5)]


@pytest.mark.parametrize(
    ("periods_ns", "offers", "takes"),
    [(periods, *PACES[at % len(PACES)]) for at, periods in enumerate(PERIODS_NS)],
)
def test_frames_cross_whole(periods_ns: tuple[float, float], offers: float, takes: float) -> None:
    beats = [beat for frame in drawn_frames(40, DEPTH, 3) for beat in frame]
    bench = Bench()
    bench.run(beats, periods_ns, offers=offers, takes=takes)
    assert sound(bench, beats)


def test_resets_of_either_end_do_nothing() -> None:
    beats = [beat for frame in drawn_frames(40, DEPTH, 4) for beat in frame]
    bench = Bench()
    bench.run(beats, (6.4, 2.56), resets=True)
    assert sound(bench, beats)


def test_a_frame_that_is_too_long_is_cut() -> None:
    check_long_frames(WholeFrameCrossing)


def check_long_frames(built: Callable[..., Any]) -> None:
    frames = [
        [(number << 8 | n, int(n == beats - 1), 0) for n in range(beats)]
        for number, beats in enumerate((3, DEPTH, DEPTH + 1, 2, 5 * DEPTH, 1))
    ]
    expected = []
    for frame in frames:
        kept = frame[:DEPTH]
        if len(frame) > DEPTH:
            kept[-1] = (kept[-1][0], 1, 1)
        expected += kept
    bench = Bench(built)
    beats = [beat for frame in frames for beat in frame]
    bench.run(beats, (4.0, 3.1), offers=0.5, expected=len(expected))
    assert bench.came == expected
    assert (bench.cuts, bench.pauses, bench.early) == (2, 0, 0)


def test_throughput_is_that_of_the_slower_clock() -> None:
    """Frames of 4 beats, without a gap between them at the reader once some are in."""
    beats = [(n, int(n % 4 == 3), 0) for n in range(400)]
    for periods_ns in ((6.4, 8.0), (8.0, 6.4)):
        bench = Bench()
        bench.run(beats, periods_ns)
        assert sound(bench, beats)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # A frame counts when its first beat is in.
        ("frames.advance.eq(stored & beat.last)", "frames.advance.eq(stored & (beats == 0))"),
        # Places are freed that hold beats.
        ("freed.advance.eq(taken)", "freed.advance.eq(self.o.ready)"),
        # A frame as long as the memory, and one more, waits for ever.
        ("self.cut.eq(stored & (beats == self._depth - 1) & ~last)", "self.cut.eq(0)"),
        # Of a frame that was cut the rest comes as another one.
        ("dropping.eq((dropping | self.cut) & ~last)", "dropping.eq(0)"),
        # The next frame is offered whether it is in or not.
        ("valid.eq(ended_next != frames)", "valid.eq(1)"),
        # The last beat of each frame is lost.
        ("stored.eq(self.i.valid & ~full & ~dropping)", "stored.eq(self.i.valid & ~full & ~last)"),
    ],
)
def test_planted_bugs_are_noticed(right: str, wrong: str) -> None:
    broken = names_with(whole_frame_crossing, right, wrong)["WholeFrameCrossing"]
    with pytest.raises(AssertionError):
        check_long_frames(broken)

"""Crossings between clocks: beats beside a list, overflow, resets, latency."""

import random
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, DomainRenamer, Module, ResetSignal, Signal
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from afflux_hdl.lib import clock_queue, crossing
from afflux_hdl.lib.crossing import Crossing
from afflux_hdl.lib.frame_boundary import WholeFrames
from tests.support.planting import names_with
from tests.support.refusals import refused

Beat = tuple[int, int, int, int]
"""Data, keep, last, error."""

PERIODS_NS = [(8.0, 20.0), (20.0, 8.0), (8.0, 8.0), (8.0, 8.0008), (8.0004, 8.0), (3.1, 16.0)]


def frames(count: int, size: int, seed: int) -> list[list[Beat]]:
    choose = random.Random(seed)
    made = []
    for number in range(count):
        beats = choose.choice([1, 1, 2, 3, 8, 30])
        made.append(
            [
                (number << 8 | n, (1 << size) - 1, 0, 0)
                if n < beats - 1
                else (number << 8 | n, (1 << choose.randint(1, size)) - 1, 1, choose.randrange(2))
                for n in range(beats)
            ]
        )
    return made


class Bench:
    """A crossing with a writer and a reader, each with its own clock and mood."""

    def __init__(self, built: Any, *, bus_bits: int = 32, depth: int = 8, lossy: bool = False):
        self.size = bus_bits // 8
        self.reset = Signal()
        self.read_reset = Signal()
        self.part = built(
            bus_bits=bus_bits, depth=depth, writer="writer", reader="reader", lossy=lossy
        )
        self.sent: list[Beat] = []
        self.came: list[Beat] = []
        self.cycles_to_write = 0
        self.overflows = 0

    def run(
        self,
        beats: list[Beat],
        periods_ns: tuple[float, float],
        *,
        offers: float = 1.0,
        takes: float = 1.0,
        phase: float = 0.3,
        during: Any = None,
        seed: int = 1,
    ) -> None:
        part, choose = self.part, random.Random(seed)
        done = False

        async def write(ctx: Any) -> None:
            nonlocal done
            left, cycle = list(beats), 0
            while left:
                if during is not None:
                    during(ctx, cycle)
                if offers < 1 and choose.random() >= offers:
                    ctx.set(part.i.valid, 0)
                else:
                    ctx.set(part.i.valid, 1)
                    for name, value in zip(("data", "keep", "last", "error"), left[0], strict=True):
                        ctx.set(getattr(part.i.payload, name), value)
                    if part.i.signature.always_ready or ctx.get(part.i.ready):
                        self.sent.append(left.pop(0))
                self.overflows += ctx.get(part.overflowed)
                await ctx.tick("writer")
                cycle += 1
            self.cycles_to_write = cycle
            ctx.set(part.i.valid, 0)
            await ctx.tick("reader").repeat(150)
            done = True

        async def read(ctx: Any) -> None:
            held = None
            while not done:
                ready = takes == 1 or choose.random() < takes
                ctx.set(part.o.ready, ready)
                if ctx.get(part.o.valid):
                    data, keep, last, error = (
                        int(ctx.get(getattr(part.o.payload, name)))
                        for name in ("data", "keep", "last", "error")
                    )
                    beat = data, keep, last, error
                    # A beat that was not taken is still the same.
                    assert held in (None, beat)
                    held = None if ready else beat
                    if ready:
                        self.came.append(beat)
                else:
                    assert held is None
                await ctx.tick("reader")

        m = Module()
        m.domains += [ClockDomain("writer"), ClockDomain("reader")]
        m.d.comb += [
            ResetSignal("writer").eq(self.reset),
            ResetSignal("reader").eq(self.read_reset),
        ]
        m.submodules.part = part
        simulator = Simulator(m)
        writer_s, reader_s = (1e-9 * period for period in periods_ns)
        simulator.add_clock(writer_s, domain="writer")
        simulator.add_clock(reader_s, phase=phase * reader_s, domain="reader")
        simulator.add_testbench(write)
        simulator.add_testbench(read)
        simulator.run()


def flat(made: list[list[Beat]]) -> list[Beat]:
    return [beat for frame in made for beat in frame]


def whole(beats: list[Beat]) -> list[list[Beat]]:
    """Cut a row of beats into frames; the last one may be without its end."""
    found: list[list[Beat]] = [[]]
    for beat in beats:
        found[-1].append(beat)
        if beat[2]:
            found.append([])
    return [frame for frame in found if frame]


def check_order(built: Any, periods_ns: tuple[float, float]) -> None:
    for offers, takes, phase in ((1, 1, 0.0), (0.6, 1, 0.7), (1, 0.5, 0.3)):
        bench = Bench(built)
        bench.run(flat(frames(12, 4, 1)), periods_ns, offers=offers, takes=takes, phase=phase)
        assert bench.came == bench.sent == flat(frames(12, 4, 1))


@pytest.mark.parametrize("periods_ns", PERIODS_NS)
def test_beats_cross_in_order(periods_ns: tuple[float, float]) -> None:
    check_order(Crossing, periods_ns)


@pytest.mark.parametrize("bus_bits", [8, 64, 512])
def test_any_width_crosses_with_any_number_of_bytes(bus_bits: int) -> None:
    size = bus_bits // 8
    beats = [(n, (1 << n) - 1, 1, n & 1) for n in range(1, size + 1)]
    bench = Bench(Crossing, bus_bits=bus_bits)
    bench.run(beats, (3.1, 4.0))
    assert bench.came == beats


def check_overflow(built: Any) -> None:
    """Read too slowly: what arrives is whole or ends with an error, and all is counted."""
    sent = frames(60, 4, 2)
    for seed in range(2):
        bench = Bench(built, lossy=True)
        bench.run(flat(sent), (8.0, 16.0), takes=0.7, offers=0.9, seed=seed)
        by_number = {frame[0][0] >> 8: frame for frame in sent}
        came = whole(bench.came)
        assert came[-1][-1][2]
        numbers, torn = [], 0
        for frame in came:
            number = frame[0][0] >> 8
            numbers.append(number)
            if frame != by_number[number]:
                torn += 1
                assert frame[:-1] == by_number[number][: len(frame) - 1]
                assert frame[-1][2:] == (1, 1)
        assert numbers == sorted(set(numbers))
        assert 0 < torn < bench.overflows
        assert bench.overflows == torn + len(sent) - len(came)


def test_a_crossing_that_overflows_drops_or_marks_whole_frames() -> None:
    check_overflow(Crossing)


def check_writer_reset(
    built: Any, periods_ns: tuple[float, float] = (8.0, 9.1), seeds: int = 4
) -> None:
    sent = flat(frames(30, 4, 3))
    lasts = round(4 * max(periods_ns) / periods_ns[0])
    for seed in range(seeds):
        choose = random.Random(seed)
        at = sorted(choose.sample(range(20, 200), 4))
        bench = Bench(built)

        def during(ctx: Any, cycle: int, bench: Bench = bench, at: list[int] = at) -> None:
            ctx.set(bench.reset, any(0 <= cycle - start < lasts for start in at))

        bench.run(sent, periods_ns, takes=(0.6, 0.12)[seed % 2], during=during, seed=seed)
        cut = 0
        by_number = {frame[0][0] >> 8: frame for frame in whole(sent)}
        came = whole(bench.came)
        assert came[-1][-1][2]
        for frame in came:
            right = by_number[frame[0][0] >> 8]
            if frame == right or frame == right[len(right) - len(frame) :]:
                continue  # a whole one, or a tail: a reset of the writer is the writer's business
            # No two frames ever run together: the end of the first is marked.
            cut += 1
            assert frame[-1][2:] == (1, 1)
            begin = right.index(frame[0])
            assert frame[:-1] == right[begin : begin + len(frame) - 1]
        assert cut <= len(at)


def test_a_reset_of_the_writer_ends_the_frame_that_it_cuts_off() -> None:
    check_writer_reset(Crossing)
    for periods_ns in ((3.1, 40.0), (40.0, 3.1)):
        check_writer_reset(Crossing, periods_ns, seeds=1)


def reset_reader(built: Any, sent: list[Beat], at: int, lasts: int = 8) -> list[Beat]:
    """Reset the reader alone in cycle `at`; return what has passed a node's input behind it."""
    part = built(bus_bits=32, depth=16, writer="writer", reader="reader", lossy=True)
    follow, reset = WholeFrames(bus_bits=32), Signal()
    m = Module()
    m.domains += [ClockDomain("writer"), ClockDomain("reader")]
    m.submodules.part = part
    m.submodules.follow = DomainRenamer("reader")(follow)
    connect(m, part.o, follow.i)
    m.d.comb += [ResetSignal("reader").eq(reset), follow.o.ready.eq(1)]
    came: list[Beat] = []

    async def write(ctx: Any) -> None:
        # As a gigabit MAC, a word in every fourth cycle.
        for beat in sent:
            for name, value in zip(("data", "keep", "last", "error"), beat, strict=True):
                ctx.set(part.i.payload[name], value)
            ctx.set(part.i.valid, 1)
            await ctx.tick("writer")
            ctx.set(part.i.valid, 0)
            await ctx.tick("writer").repeat(3)

    async def read(ctx: Any) -> None:
        async for _, _, under_reset, valid, beat in ctx.tick("reader").sample(
            reset, follow.o.valid, follow.o.payload
        ):
            if under_reset:
                # The part after this is reset too, and forgets frames whose end it has not.
                while came and not came[-1][2]:
                    came.pop()
            elif valid:
                came.append((beat.data, beat.keep, beat.last, beat.error))

    async def cut(ctx: Any) -> None:
        for cycle in range(at + lasts):
            ctx.set(reset, cycle >= at)
            await ctx.tick("reader")
        ctx.set(reset, 0)

    simulator = Simulator(m)
    simulator.add_clock(8e-9, domain="writer")
    simulator.add_clock(20.3e-9, domain="reader")
    simulator.add_testbench(write)
    simulator.add_testbench(cut)
    simulator.add_testbench(read, background=True)
    simulator.run()
    return came


def check_reader_reset(built: Any, step: int = 2) -> None:
    """Reset the reader alone amid frames: what follows it gets whole frames, and those marked."""
    sent = frames(60, 4, 5)
    right = {frame[0][0] >> 8: frame for frame in sent}
    for at in range(60, 120, step):
        came = reset_reader(built, flat(sent), at)
        good = [frame for frame in whole(came) if frame[-1][2:] == (1, 0)]
        for frame in good:
            number = frame[-1][0] >> 8
            assert frame == right[number], f"reset in cycle {at}: frame {number} is {frame}"
        # The one that it cuts off, and those of a beat or two that have gone by within it.
        assert sum(not frame[-1][3] for frame in sent) - len(good) <= 4, f"reset in cycle {at}"


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.long), 7])
def test_a_reset_of_the_reader_alone_makes_no_tail_a_frame(step: int) -> None:
    check_reader_reset(Crossing, step)


def check_latency(built: Any) -> None:
    """Compare with the docstring: 3 to 4 edges of the reader, at any phase."""
    edges = set()
    for phase in (0.05, 0.25, 0.5, 0.75, 0.95):
        part = built(bus_bits=32, depth=8, writer="writer", reader="reader")
        m = Module()
        m.domains += [ClockDomain("writer"), ClockDomain("reader")]
        m.submodules.part = part
        simulator = Simulator(m)

        async def run(ctx: Any, part: Any = part) -> None:
            await ctx.tick("writer").repeat(10)
            ctx.set(part.i.valid, 1)
            await ctx.tick("writer")
            ctx.set(part.i.valid, 0)
            count = 0
            while not ctx.get(part.o.valid):
                await ctx.tick("reader")
                count += 1
            edges.add(count)

        simulator.add_clock(8e-9, domain="writer")
        simulator.add_clock(8e-9, phase=phase * 8e-9, domain="reader")
        simulator.add_testbench(run)
        simulator.run()
    assert edges <= {3, 4}, edges


def test_the_latency_is_as_stated() -> None:
    check_latency(Crossing)


@pytest.mark.parametrize("depth", [8, 16, 32])
def test_the_slower_clock_is_used_in_full(depth: int) -> None:
    for periods_ns in ((8.0, 8.0), (20.0, 8.0), (8.0, 20.0)):
        bench = Bench(Crossing, depth=depth)
        beats = [(n, 15, 0, 0) for n in range(100)]
        bench.run(beats, periods_ns)
        assert bench.came == beats
        assert bench.cycles_to_write * periods_ns[0] <= 100 * max(periods_ns) * 1.02 + 60


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_overflow, "w += owed.eq(1)", "w += owed.eq(0)"),
        (check_overflow, "lost.eq(~passes & ~beat.last)", "lost.eq(0)"),
        (check_overflow, "~lost & ~owed & fifo.w_rdy", "~lost & fifo.w_rdy"),
        (check_writer_reset, "cut.eq((fifo.r_rst | emptied) & inside)", "cut.eq(0)"),
        pytest.param(
            check_writer_reset,
            "cut.eq((fifo.r_rst | emptied) & inside)",
            "cut.eq(fifo.r_rst & inside)",
            marks=pytest.mark.long,
        ),
        (check_reader_reset, " & ~resetting", ""),
        (lambda built: check_order(built, (8.0, 20.0)), "~self.o.valid | self.o.ready", "1"),
    ],
)
def test_planted_bugs_are_noticed(check: Any, right: str, wrong: str) -> None:
    names = names_with(crossing, right, wrong)
    with pytest.raises(AssertionError):
        check(names["Crossing"])


@pytest.mark.parametrize(
    ("depth", "right", "wrong"),
    [
        (8, "0b11 << bits - 2", "0b10 << bits - 2"),
        pytest.param(
            *(8, "consumed_gray != produced_there", "consumed_gray[1:] != produced_there[1:]"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *(8, "read.addr.eq(consumed)", "read.addr.eq(consumed_next)"),
            marks=pytest.mark.long,
        ),
        (32, "consumed + taken", "consumed"),
    ],
)
def test_planted_bugs_of_the_queue_are_noticed(
    depth: int, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a memory of LUTs and in one of block RAM, which are read in different ways."""

    def built(**sizes: Any) -> Crossing:
        return Crossing(**{**sizes, "depth": depth})

    check_order(built, (8.0, 20.0))
    names = names_with(clock_queue, right, wrong)
    monkeypatch.setattr(crossing, "ClockQueue", names["ClockQueue"])
    with pytest.raises(AssertionError):
        check_order(built, (8.0, 20.0))


@pytest.mark.parametrize("depth", [0, 3, 6])
def test_a_depth_that_does_not_fit_is_refused(depth: int) -> None:
    with refused(f"not {depth}"):
        Crossing(bus_bits=32, depth=depth, writer="a", reader="b")

"""Parts of the box alone: latencies, order, crossings at clocks of any ratio."""

import random
from typing import Any

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from afflux_hdl.lib import frame_arbiter, frame_split, request_crossing, skid_buffer
from afflux_hdl.lib.frame_arbiter import FrameArbiter
from afflux_hdl.lib.frame_split import FrameSplit
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.lib.request_crossing import RequestCrossing
from afflux_hdl.lib.skid_buffer import SkidBuffer
from afflux_hdl.opennic import outlet
from afflux_hdl.opennic.outlet import Outlet
from tests.support.part_player import at_once, pace, play
from tests.support.planting import names_with


def check_outlet(part: type[Outlet]) -> None:
    """Whole frames, without those that are bad, with their size from the first beat on."""
    choose = random.Random(1)
    frames = [
        (choose.randbytes(choose.choice((1, 60, 64, 65, 200))), n % 5 == 3) for n in range(30)
    ]
    for offers, takes in ((at_once, at_once), (pace(0.5, 1), pace(0.6, 2))):
        box = part(depth_bytes=2048, src=3, dst=64)
        played = play(box, frames, marks=["sent", "refused"], offers=offers, takes=takes)
        assert played.plain == [frame for frame, error in frames if not error]
        assert played.marks == {"sent": 24, "refused": 6}


def check_arbiter(part: type[FrameArbiter]) -> None:
    """Frames of three sources, none torn, each source's in their order, in turn."""
    sources = [[(bytes([n, k]) * (8 + k), False) for k in range(12)] for n in range(3)]
    for offers, takes in ((at_once, at_once), (pace(0.4, 1), pace(0.5, 2))):
        arbiter = part(PacketBeat(64), sources=3)
        played = play(arbiter, *sources, offers=offers, takes=takes)
        for n, source in enumerate(sources):
            assert [f for f in played.plain if f[0] == n] == [frame for frame, _ in source]
        if takes is at_once and offers is at_once:
            assert [frame[0] for frame in played.plain[:6]] == [1, 2, 0, 1, 2, 0]


def check_split(part: type[FrameSplit]) -> None:
    """Frames to one or several, resets before it: a receiver gets the end of what it began.

    As in a node, a reset takes the beat that waits away; if one of its frame's has been taken, an
    end with `error` comes later.
    """
    split, choose = part(bus_bits=512, ports=2), random.Random(3)
    came: list[list[list[tuple[int, bool]]]] = [[], []]
    sent: list[tuple[list[int], int, bool]] = []
    resets = 0

    async def run(ctx: Any) -> None:
        nonlocal resets
        partial: list[list[tuple[int, bool]]] = [[], []]
        beats, to, size, silent, ending = list[int](), 1, 3, 0, False
        taken = False
        for number in range(6000):
            offers = not silent
            silent -= bool(silent)
            if taken or not ctx.get(split.i.valid):
                ctx.set(split.i.payload.data, number)
            ctx.set(split.i.valid, offers)
            ctx.set(split.i.payload.keep, 1)
            ctx.set(split.i.payload.last, last := ending or len(beats) == size - 1)
            ctx.set(split.i.payload.error, ending)
            ctx.set(split.i.payload.net_ports, 0 if beats else to)
            for o in split.o:
                ctx.set(o.ready, choose.random() < 0.4)
            for n, o in enumerate(split.o):
                if ctx.get(o.valid) and ctx.get(o.ready):
                    error = bool(ctx.get(o.payload.error))
                    partial[n].append((ctx.get(o.payload.data), error))
                    if ctx.get(o.payload.last):
                        came[n].append(partial[n])
                        partial[n] = []
            taken = offers and ctx.get(split.i.ready)
            if taken:
                beats.append(ctx.get(split.i.payload.data))
                if last:
                    sent.append((beats, to, ending))
            reset = offers and not taken and not ending and choose.random() < 0.1
            if reset:
                silent, ending, resets = 3, bool(beats), resets + 1
            if (taken and last) or (reset and not beats):
                ending = False
                beats, to, size = [], choose.choice((1, 2, 3, 3)), choose.randrange(1, 5)
            await ctx.tick()

    simulator = Simulator(split)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()
    assert resets > 100
    for n in range(2):
        mine = [(beats, cut) for beats, to, cut in sent if to >> n & 1]
        assert [([data for data, _ in each], each[-1][1]) for each in came[n]] == mine


async def ticks(ctx: Any, domain: str, count: int) -> None:
    for _ in range(count):
        await ctx.tick(domain)


async def until(ctx: Any, domain: str, condition: Any, *values: Any, limit: int = 400) -> list[int]:
    """Wait for a clock edge at which `condition` holds, and return `values` as they are there."""
    for _ in range(limit):
        _, _, met, *found = await ctx.tick(domain).sample(condition, *values)
        if met:
            return found
    raise AssertionError("waited in vain")


def check_request_crossing(part: type[RequestCrossing]) -> None:
    """Each request is carried out once, and answered by its response, whatever the clocks."""
    for outer_ns, sync_ns, phase_ns in ((8, 4, 0), (8, 4, 1), (7, 4, 0), (4, 7, 3), (5, 5, 2)):
        top = part(16, 16, lost=0xDEAD)
        done: list[int] = []
        in_reset = Signal()

        async def ask(ctx: Any, top: Any = top, in_reset: Signal = in_reset) -> None:
            for number in range(40):
                if number % 10 == 9:
                    # The other end goes into reset, a little later than this one hears of it, and
                    # comes back; before, amid or behind a request.
                    ctx.set(top.i.payload, 999 + number)
                    ctx.set(top.i.valid, 1)
                    await until(ctx, "outer", top.i.ready)
                    ctx.set(top.i.valid, 0)
                    await ticks(ctx, "outer", number // 10 * 4)
                    ctx.set(top.away, 1)
                    await ticks(ctx, "sync", 5)
                    ctx.set(in_reset, 1)
                    ctx.set(top.o.ready, 1)
                    lost = await until(ctx, "outer", top.o.valid, top.o.payload)
                    assert lost[0] in (0xDEAD, (999 + number) ^ 0x55AA)
                    ctx.set(top.o.ready, 0)
                    await ticks(ctx, "outer", 30)
                    ctx.set(top.away, 0)
                    await ticks(ctx, "sync", 3)
                    ctx.set(in_reset, 0)
                    await ticks(ctx, "outer", 8)
                ctx.set(top.i.payload, number)
                ctx.set(top.refuse, number % 7 == 6)
                ctx.set(top.i.valid, 1)
                await until(ctx, "outer", top.i.ready)
                ctx.set(top.i.valid, 0)
                await ticks(ctx, "outer", number % 3 + 1)
                ctx.set(top.o.ready, 1)
                answer = await until(ctx, "outer", top.o.valid, top.o.payload)
                ctx.set(top.o.ready, 0)
                assert answer[0] == (0xDEAD if number % 7 == 6 else number ^ 0x55AA)

        async def serve(
            ctx: Any, top: Any = top, done: list[int] = done, in_reset: Signal = in_reset
        ) -> None:
            while True:
                await ticks(ctx, "sync", len(done) % 4 + 1)
                ctx.set(top.asked.ready, 1)
                there = top.asked.valid & ~in_reset
                (request,) = await until(ctx, "sync", there, top.asked.payload, limit=10**6)
                ctx.set(top.asked.ready, 0)
                done.append(request)
                await ticks(ctx, "sync", len(done) % 3 + 1)
                ctx.set(top.answered.payload, request ^ 0x55AA)
                ctx.set(top.answered.valid, 1)
                # In a reset this end forgets the request.
                await until(ctx, "sync", top.answered.ready | in_reset, limit=10**6)
                ctx.set(top.answered.valid, 0)

        simulator = Simulator(ResetInserter({"sync": in_reset})(top))
        simulator.add_clock(outer_ns * 1e-9, domain="outer")
        simulator.add_clock(sync_ns * 1e-9, phase=phase_ns * 1e-9, domain="sync")
        simulator.add_testbench(ask)
        simulator.add_testbench(serve, background=True)
        simulator.run()
        assert [each for each in done if each < 999] == [n for n in range(40) if n % 7 != 6]
        assert len(set(done)) == len(done), "a request was carried out twice"


def check_skid(part: type[SkidBuffer]) -> None:
    """Each beat once and in order, at full rate; the input stops a cycle behind the output."""
    frames = [bytes([n]) * (1 + n % 20) for n in range(60)]
    for offers, takes in (
        *((at_once, at_once), (pace(0.5, 1), at_once), (at_once, pace(0.5, 2))),
        (pace(0.6, 3), pace(0.6, 4)),
    ):
        marked = [(frame, n % 3 == 0) for n, frame in enumerate(frames)]
        played = play(part(PacketBeat(32)), marked, offers=offers, takes=takes)
        assert played.plain == frames
        assert played.errors == [error for _, error in marked]
        if offers is takes is at_once:
            assert played.cycles == list(range(len(played.cycles)))

    skid = part(8)

    async def run(ctx: Any) -> None:
        ctx.set(skid.i.valid, 1)
        for ready, accepted in ((0, 1), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0), (0, 1)):
            # Whatever the output does in this cycle.
            for either in (not ready, ready):
                ctx.set(skid.o.ready, either)
                await ctx.delay(1e-9)
                assert ctx.get(skid.i.ready) == accepted
            await ctx.tick()

    simulator = Simulator(skid)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()


def test_an_outlet_takes_five_cycles() -> None:
    for size in (1, 64, 65, 640):
        played = play(Outlet(depth_bytes=2048, src=1, dst=64), [(bytes(size), False)])
        assert played.cycles[0] - played.arrived == 5


CHECKS: dict[str, Any] = {
    "outlet": (outlet, "Outlet", check_outlet),
    "arbiter": (frame_arbiter, "FrameArbiter", check_arbiter),
    "split": (frame_split, "FrameSplit", check_split),
    "request crossing": (request_crossing, "RequestCrossing", check_request_crossing),
    "skid": (skid_buffer, "SkidBuffer", check_skid),
}


@pytest.mark.parametrize("name", CHECKS)
def test_part_as_it_is_passes(name: str) -> None:
    module, part, check = CHECKS[name]
    check(getattr(module, part))


BUGS = {
    "a bad frame leaves": (
        "outlet",
        "wiring.connect(m, skid.o, frames.i)",
        """
        wiring.connect(m, skid.o, frames.i)
        m.d.comb += frames.i.payload.error.eq(0)
    """,
    ),
    "a frame leaves without its size": (
        "outlet",
        "frames.o.valid & (sizes.o.valid | beat.error)",
        "frames.o.valid",
    ),
    "one output takes a beat before another": (
        "split",
        "self.i.valid & self.i.ready & to[n]",
        "self.i.valid & to[n]",
    ),
    "the end of a frame goes to nobody": (
        "split",
        "to.eq(Mux(inside, held, self.i.payload.net_ports))",
        "to.eq(self.i.payload.net_ports)",
    ),
    "a source is left within a frame": (
        "arbiter",
        "m.d.sync += [latest.eq(self.chosen), busy.eq(1)]",
        "m.d.sync += latest.eq(self.chosen)",
    ),
    "a source waits for ever": ("arbiter", "candidate = (n + distance)", "candidate = (distance)"),
    "the toggle goes back at once": (
        "request crossing",
        "m.If(self.away & away_for.all())",
        "m.If(self.away)",
    ),
    "the toggle does not go back": (
        "request crossing",
        "m.d.outer += asked.eq(0)",
        "m.d.outer += asked.eq(asked)",
    ),
    "a request is lost in a reset": (
        "request crossing",
        """with m.If(self.away):
            m.d.outer += self.o.payload.eq(self._lost)
            m.next = "ANSWER"
        with m.Elif""",
        "with m.If",
    ),
    "a beat that waits is overtaken": ("skid", "with m.If(~waits)", "with m.If(1)"),
    "a beat is taken while one waits": ("skid", "self.i.ready.eq(~waits)", "self.i.ready.eq(1)"),
    "the output stops the input at once": (
        "skid",
        "self.i.ready.eq(~waits)",
        "self.i.ready.eq(~waits & self.o.ready)",
    ),
    "an answer is taken too early": (
        "request crossing",
        "m.Elif(served_here == asked)",
        "m.Elif(1)",
    ),
}


FIRST = {part: bug for bug, (part, *_) in reversed(BUGS.items())}
"""A bug of each part, for every run."""


@pytest.mark.parametrize(
    "bug",
    [bug if bug in FIRST.values() else pytest.param(bug, marks=pytest.mark.long) for bug in BUGS],
)
def test_bug_is_caught(bug: str) -> None:
    name, right, wrong = BUGS[bug]
    module, part, check = CHECKS[name]
    with pytest.raises(AssertionError):
        check(names_with(module, right, wrong)[part])

"""The whole MAC in its three clock domains: bytes in, bytes out, whatever `sync` and phases are."""

import random
import zlib
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from afflux_hdl.mac import gigabit
from afflux_hdl.mac.gigabit import GigabitMac
from tests.support.planting import names_with

PERIOD_NS = 8.0


def as_beats(frame: bytes, error: bool) -> list[tuple[int, int, int, int]]:
    beats = []
    for at in range(0, len(frame), 4):
        part = frame[at : at + 4]
        last = at + 4 >= len(frame)
        beats.append(
            (int.from_bytes(part, "little"), (1 << len(part)) - 1, int(last), int(last and error))
        )
    return beats


def run(
    received: list[bytes],
    sent: list[tuple[bytes, bool]],
    *,
    built: Any = GigabitMac,
    sync_ns: float = 20.0,
    takes: float = 1.0,
    offers: float = 1.0,
    drift: float = 1.0,
    cycles: int = 1500,
) -> tuple[list[tuple[bytes, bool]], list[bytes], list[int], int]:
    """Return the frames on `o`, those on the wire with their gaps before, and overflows."""
    part = built()
    choose = random.Random(1)
    frames: list[tuple[bytes, bool]] = []
    wire: list[bytes] = []
    gaps: list[int] = []
    overflows = 0

    async def phy_in(ctx: Any) -> None:
        nonlocal overflows
        octets: list[tuple[int, int]] = []
        for frame in received:
            checked = frame + zlib.crc32(frame).to_bytes(4, "little")
            octets += [(octet, 1) for octet in b"\x55" * 7 + b"\xd5" + checked] + [(0, 0)] * 12
        for data, valid in [(0, 0), *octets, *[(0, 0)] * 60]:
            ctx.set(part.rx_data, data)
            ctx.set(part.rx_valid, valid)
            overflows += ctx.get(part.overflowed)
            await ctx.tick("rx")

    async def phy_out(ctx: Any) -> None:
        current, gap = b"", 0
        for _ in range(cycles):
            if ctx.get(part.tx_enable):
                if not current:
                    gaps.append(gap)
                current, gap = current + bytes([ctx.get(part.tx_data)]), 0
            else:
                if current:
                    wire.append(current)
                current, gap = b"", gap + 1
            await ctx.tick("tx")
        assert not current

    async def taker(ctx: Any) -> None:
        partial = b""
        for _ in range(int(cycles * PERIOD_NS / sync_ns)):
            ctx.set(part.o.ready, takes == 1 or choose.random() < takes)
            if ctx.get(part.o.valid) and ctx.get(part.o.ready):
                keep = ctx.get(part.o.payload.keep).bit_count()
                partial += ctx.get(part.o.payload.data).to_bytes(4, "little")[:keep]
                if ctx.get(part.o.payload.last):
                    frames.append((partial, bool(ctx.get(part.o.payload.error))))
                    partial = b""
            await ctx.tick()
        assert not partial

    async def giver(ctx: Any) -> None:
        for data, keep, last, error in (beat for one in sent for beat in as_beats(*one)):
            while offers < 1 and choose.random() >= offers:
                ctx.set(part.i.valid, 0)
                await ctx.tick()
            ctx.set(part.i.valid, 1)
            for name, value in (("data", data), ("keep", keep), ("last", last), ("error", error)):
                ctx.set(getattr(part.i.payload, name), value)
            await ctx.tick().until(part.i.ready)
        ctx.set(part.i.valid, 0)

    m = Module()
    m.domains += [ClockDomain("sync"), ClockDomain("rx"), ClockDomain("tx")]
    m.submodules.part = part
    simulator = Simulator(m)
    simulator.add_clock(sync_ns * 1e-9)
    simulator.add_clock(PERIOD_NS * 1e-9 * drift, phase=1.3e-9, domain="rx")
    simulator.add_clock(PERIOD_NS * 1e-9, phase=3.1e-9, domain="tx")
    for testbench in (phy_in, phy_out, taker, giver):
        simulator.add_testbench(testbench)
    simulator.run()
    return frames, wire, gaps, overflows


def random_frames(sizes: list[int]) -> list[bytes]:
    choose = random.Random(3)
    return [choose.randbytes(size) for size in sizes]


SIZES = [60, 61, 62, 63, 200, 60, 60, 97]


def check_both_ways(built: Any, **options: Any) -> None:
    frames = random_frames(SIZES)
    came, wire, gaps, overflows = run(
        frames, [(frame, False) for frame in frames], built=built, **options
    )
    assert came == [(frame, False) for frame in frames]
    assert overflows == 0
    right = [
        b"\x55" * 7 + b"\xd5" + frame + zlib.crc32(frame).to_bytes(4, "little") for frame in frames
    ]
    assert wire == right
    if options.get("offers", 1) == 1 and options.get("sync_ns", 20.0) <= 20.0:
        # Frames are ready in time: the least gap between all of them.
        assert gaps[1:] == [12] * (len(frames) - 1)


@pytest.mark.parametrize(("sync_ns", "drift"), [(20.0, 1.0002), (16.0, 0.9998), (31.0, 1.0)])
def test_gigabit_with_the_least_gap_passes_both_ways(sync_ns: float, drift: float) -> None:
    check_both_ways(GigabitMac, sync_ns=sync_ns, drift=drift)


def test_a_sender_that_pauses_in_mid_frame_sends_whole_frames() -> None:
    check_both_ways(GigabitMac, offers=0.3, cycles=3500)


def test_frames_that_end_with_an_error_are_not_sent() -> None:
    frames = random_frames([60, 100, 60])
    _, wire, _, _ = run([], list(zip(frames, (False, True, False), strict=True)))
    assert [one[8:-4] for one in wire] == [frames[0], frames[2]]


def test_a_node_that_takes_too_little_gets_whole_frames_or_errors() -> None:
    frames = random_frames([120] * 14)
    came, _, _, overflows = run(frames, [], takes=0.35, cycles=3500)
    assert came and overflows
    good = [frame for frame, error in came if not error]
    assert good == [frame for frame in frames if frame in good]
    torn = len(came) - len(good)
    assert overflows == torn + len(frames) - len(came)


def test_without_the_buffer_a_pause_is_noticed() -> None:
    unbuffered = names_with(
        gigabit,
        "connect(m, flipped(self.i), buffer.i) connect(m, buffer.o, crossing.i)",
        "connect(m, flipped(self.i), crossing.i)",
    )
    with pytest.raises(AssertionError):
        check_both_ways(unbuffered["GigabitMac"], offers=0.3, cycles=3500)

"""The streams of a MAC: errors, resets in the middle of frames, padding, no pause."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from afflux_hdl.port import mac_streams
from afflux_hdl.port.mac_streams import FromMac, PadFrames, ToMac
from tests.support.part_player import play
from tests.support.planting import names_with

BITS = 32
BYTES = BITS // 8


def simulate(part: Any, run: Callable[[Any], Any], domain: str) -> None:
    m = Module()
    m.submodules.part = part
    m.domains += ClockDomain(domain, reset_less=True)
    simulator = Simulator(m)
    simulator.add_clock(1e-8, domain=domain)
    simulator.add_testbench(run)
    simulator.run()


def check_from_mac(built: Callable[..., Any]) -> None:
    """Frames with gaps; resets at any time: whole frames, or an end marked as bad."""
    choose, part = random.Random(1), built(bits=BITS, domain="mac")
    came: list[tuple[list[int], bool]] = []
    sent: list[tuple[list[int], bool, bool]] = []

    async def run(ctx: Any) -> None:
        ctx.set(part.o.ready, 1)
        frame: list[int] = []
        size, bad, beats = 3, False, list[int]()
        for number in range(1, 4000):
            reset = choose.random() < 0.02
            valid = choose.random() < 0.8
            ctx.set(part.reset, reset)
            # While it is reset its outputs are anything.
            ctx.set(part.i.valid, choose.randrange(2) if reset else valid)
            ctx.set(part.i.data, number)
            ends = len(frame) == size - 1
            # A last beat without bytes is none of a MAC's, and must not become one with a byte.
            empty = ends and number % 5 == 0
            ctx.set(part.i.keep, 0 if empty else 15)
            ctx.set(part.i.last, choose.randrange(2) if reset else ends)
            # Means something only with `last`.
            ctx.set(part.i.user, bad if ends else choose.randrange(2))
            if ctx.get(part.o.valid):
                beats.append(ctx.get(part.o.payload.data))
                assert ctx.get(part.o.payload.last) or not ctx.get(part.o.payload.error)
                if ctx.get(part.o.payload.last):
                    came.append((beats, bool(ctx.get(part.o.payload.error))))
                    beats = []
            if reset:
                if frame:
                    sent.append((frame, True, True))
                frame = []
            elif valid:
                frame.append(number)
                if ends:
                    sent.append((frame, bad or empty, False))
                    frame, size, bad = [], choose.randrange(1, 6), choose.random() < 0.3
            await ctx.tick("mac")

    simulate(part, run, "mac")
    assert len(came) == len(sent) > 300
    for (beats, error), (frame, bad, cut) in zip(came, sent, strict=True):
        # The end of a frame that was cut off has no bytes of it.
        assert (beats[:-1] if cut else beats, error) == (frame, bad)
    assert sum(cut for *_, cut in sent) > 20


def test_from_mac() -> None:
    check_from_mac(FromMac)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param(
            *("self.i.last & (self.i.user | ~self.i.keep[0])", "0"), marks=pytest.mark.long
        ),
        ("self.i.last & (self.i.user | ~self.i.keep[0])", "self.i.user | ~self.i.keep[0]"),
        pytest.param(
            *("self.i.last & (self.i.user | ~self.i.keep[0])", "self.i.last & self.i.user"),
            marks=pytest.mark.long,
        ),
        ("self.o.valid.eq(inside)", "self.o.valid.eq(0)"),
    ],
)
def test_what_from_mac_must_not_do_is_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_from_mac(names_with(mac_streams, right, wrong)["FromMac"])


def check_to_mac(built: Callable[..., Any]) -> None:
    """Send whole frames to a MAC that is reset at any time: no frame pauses, no tail begins."""
    choose, part = random.Random(2), built(bits=BITS, domain="mac")
    frames = [
        [(number << 8 | n) for n in range(choose.choice([2, 2, 3, 9]))] for number in range(300)
    ]
    errors = [choose.random() < 0.2 for _ in frames]
    taken: list[tuple[list[int], bool]] = []
    resets = 0

    async def run(ctx: Any) -> None:
        nonlocal resets
        left = [
            (word, n == len(frame) - 1, bad)
            for frame, bad in zip(frames, errors, strict=True)
            for n, word in enumerate(frame)
        ]
        begun, inside = False, False
        got: list[int] = []
        for _ in range(6000):
            # As the crossing before it: it may wait before a frame, and never within one.
            offers = bool(left) and (begun or choose.random() < 0.7)
            ctx.set(part.i.valid, offers)
            if offers:
                word, last, bad = left[0]
                ctx.set(part.i.payload.data, word)
                ctx.set(part.i.payload.keep, 15)
                ctx.set(part.i.payload.last, last)
                ctx.set(part.i.payload.error, bad and last)
            ready = choose.random() < 0.8
            reset = choose.random() < 0.02
            ctx.set(part.o.ready, ready)
            ctx.set(part.reset, reset)
            if offers and ctx.get(part.i.ready):
                begun = not left.pop(0)[1]
            if reset:
                inside, got = False, []
                resets += 1
            else:
                assert ctx.get(part.paused) == (inside and not ctx.get(part.o.valid))
                assert not ctx.get(part.paused), "a pause within a frame"
                if ctx.get(part.o.valid) and ready:
                    got.append(ctx.get(part.o.data))
                    inside = not ctx.get(part.o.last)
                    assert ctx.get(part.o.last) or not ctx.get(part.o.user)
                    if not inside:
                        taken.append((got, bool(ctx.get(part.o.user))))
                        got = []
            await ctx.tick("mac")
        assert not left

    simulate(part, run, "mac")
    whole = iter(zip(frames, errors, strict=True))
    assert all(each in whole for each in taken), "not frames of those sent, in their order"
    assert resets > 50 and len(taken) > 150


def test_to_mac() -> None:
    check_to_mac(ToMac)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self.o.user.eq(beat.last & beat.error)", "self.o.user.eq(0)"),
        ("with m.If(entering & ~(taken & beat.last)):", "with m.If(0):"),
        ("self.o.last.eq(beat.last)", "self.o.last.eq(beat.last & ~beat.error)"),
        # It pauses within frames.
        (
            "self.o.valid.eq(taken & ~dropping)",
            "self.o.valid.eq(taken & ~dropping & ~self.o.valid)",
        ),
    ],
)
def test_what_to_mac_must_not_do_is_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_to_mac(names_with(mac_streams, right, wrong)["ToMac"])


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_short_frames_are_filled_with_zeros(bus_bits: int) -> None:
    size = bus_bits // 8
    frames = [bytes([n]) * n for n in (1, 7, 8, 9, 31, 32, 33, 59, 60, 61, 64, 65, 130)]
    played = play(PadFrames(bus_bits=bus_bits), [(frame, n == 2) for n, frame in enumerate(frames)])
    assert played.plain == [frame.ljust(min(size, 60), b"\0") for frame in frames]
    assert played.errors == [n == 2 for n in range(len(frames))]

"""The receiver's output for bytes from a PHY; check sequences are zlib's and scapy's, not ours."""

import random
import zlib
from dataclasses import dataclass
from typing import Any

import pytest
from amaranth.sim import Simulator
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.mac import receive
from afflux_hdl.mac.receive import Receive
from tests.support.planting import names_with

BYTES_MAX = 120
"""Giants of the tests are small, too."""

Octet = tuple[int, int, int]
"""RXD, RX_DV, RX_ER of a cycle."""


def sealed(frame: bytes) -> bytes:
    """Append the frame check sequence."""
    return frame + zlib.crc32(frame).to_bytes(4, "little")


def on_wire(frame: bytes, *, preamble: int = 7, gap: int = 12, errors: tuple[int, ...] = ()) -> Any:
    """Return a frame's cycles, check sequence as given, and the gap behind it."""
    octets = b"\x55" * preamble + b"\xd5" + frame
    cycles = [(octet, 1, int(n in errors)) for n, octet in enumerate(octets)]
    return cycles + [(0xDD, 0, 0)] * gap


@dataclass
class Came:
    frame: bytes
    error: bool
    cycle: int


def play(part: Any, cycles: list[Octet]) -> list[Came]:
    came: list[Came] = []

    async def run(ctx: Any) -> None:
        partial = b""
        for cycle, (data, valid, error) in enumerate([(0, 0, 0), *cycles, *[(0, 0, 0)] * 12]):
            ctx.set(part.data, data)
            ctx.set(part.valid, valid)
            ctx.set(part.error, error)
            if ctx.get(part.o.valid):
                assert ctx.get(part.o.payload.keep) == 1
                partial += bytes([ctx.get(part.o.payload.data)])
                if ctx.get(part.o.payload.last):
                    came.append(Came(partial, bool(ctx.get(part.o.payload.error)), cycle))
                    partial = b""
                else:
                    assert not ctx.get(part.o.payload.error)
            await ctx.tick()
        assert not partial

    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(run)
    simulator.run()
    return came


def a_frame(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def check_good(built: Any) -> None:
    """Receive frames of all kinds of sizes, with the least gap and shortened preambles."""
    frames = [a_frame(size, size) for size in (60, 61, 62, 63, 116, 60, 99)]
    cycles: list[Octet] = []
    for n, frame in enumerate(frames):
        cycles += on_wire(sealed(frame), preamble=(7, 6, 3, 1, 0, 7, 7)[n], gap=(12, 5, 1)[n % 3])
    came = play(built(bytes_max=BYTES_MAX), cycles)
    assert [one.frame for one in came] == frames
    assert not any(one.error for one in came)


def check_bad(built: Any) -> None:
    """Receive one bad frame of each kind between good ones, which stay good."""
    good = sealed(a_frame(70))
    flipped = bytearray(good)
    flipped[20] ^= 4
    bad: list[tuple[bytes, dict[str, Any]]] = [
        (bytes(flipped), {}),
        (good[:-4] + bytes(4), {}),
        (good[:-1], {}),
        (good, {"errors": (30,)}),
        (good, {"errors": (2,)}),
        (good, {"errors": (7 + len(good),)}),
        (sealed(a_frame(59)), {}),
        (sealed(a_frame(1)), {}),
        (sealed(a_frame(BYTES_MAX - 3)), {}),
        (sealed(a_frame(BYTES_MAX + 40)), {}),
        (sealed(a_frame(BYTES_MAX - 4)) + b"and more", {}),
    ]
    cycles = on_wire(good)
    for frame, options in bad:
        cycles += on_wire(frame, **options) + on_wire(good)
    came = play(built(bytes_max=BYTES_MAX), cycles)
    assert len(came) == 2 * len(bad) + 1
    for n, one in enumerate(came):
        assert one.error == bool(n % 2)
        if not n % 2:
            assert one.frame == good[:-4]
        else:
            sent = bad[n // 2][0]
            assert one.frame == sent[: min(len(sent), BYTES_MAX) - 4]


def check_nothing(built: Any) -> None:
    """Receive what is not a frame: fragments, a false carrier, status, no start delimiter."""
    good = sealed(a_frame(64))
    cycles = on_wire(good)
    for fragment in (b"", b"\1", b"\1\2\3\4"):
        cycles += on_wire(fragment, gap=3)
    cycles += [(0x0E, 0, 1)] * 5 + [(0x0D, 0, 0)] * 7
    cycles += [(0x55, 1, 0)] * 80 + [(0, 0, 0)] * 2
    cycles += on_wire(good)
    came = play(built(bytes_max=BYTES_MAX), cycles)
    assert [(one.frame, one.error) for one in came] == [(good[:-4], False)] * 2


def test_frames_come_whole_with_the_least_gap_and_short_preambles() -> None:
    check_good(Receive)


def test_each_kind_of_bad_frame_is_marked() -> None:
    check_bad(Receive)


def test_what_is_not_a_frame_leaves_no_trace() -> None:
    check_nothing(Receive)


def check_payload(built: Any) -> None:
    """Receive frames whose payload has a frame in it, which is all that noise has left of them."""
    good, inner = sealed(a_frame(64)), sealed(a_frame(70))
    carrier = a_frame(50)
    whole = b"\x55" * 7 + b"\xd5" + carrier + b"\x55" * 7 + b"\xd5" + inner
    came = []
    # The delimiter is spoilt; a byte of the preamble is; or the beginning is not seen at all.
    for noise in (7, 3, 0):
        octets = bytearray(whole)
        octets[noise] ^= 0x10
        cycles = [(octet, 1, 0) for octet in octets] + [(0, 0, 0)]
        came += play(built(bytes_max=200), cycles + on_wire(good))
    assert [(one.frame, one.error) for one in came] == [(good[:-4], False)] * 3


def check_beginning(built: Any) -> None:
    """Begin within a frame, as after a reset: its payload is not taken for one."""
    good, inner = sealed(a_frame(64)), sealed(a_frame(70))
    part = built(bytes_max=200)
    came: list[bytes] = []

    async def run(ctx: Any) -> None:
        for data, valid, _ in on_wire(inner) + on_wire(good):
            ctx.set(part.data, data)
            ctx.set(part.valid, valid)
            if ctx.get(part.o.valid) and ctx.get(part.o.payload.last):
                came.append(bytes([ctx.get(part.o.payload.data)]))
            await ctx.tick()

    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(run)
    simulator.run()
    assert came == [good[-5:-4]]


def test_a_frame_in_the_payload_of_a_spoilt_one_is_none() -> None:
    check_payload(Receive)
    check_beginning(Receive)


def test_a_frame_by_scapy_is_good() -> None:
    frame = raw(Ether(src="02:00:00:00:00:01") / IP(dst="10.0.0.9") / UDP(dport=4700) / bytes(90))
    came = play(Receive(), on_wire(sealed(frame)))
    assert [(one.frame, one.error) for one in came] == [(frame, False)]


def test_the_last_beat_comes_two_cycles_after_valid_has_fallen() -> None:
    frame = sealed(a_frame(60))
    came = play(Receive(), on_wire(frame))
    falls = 1 + 8 + len(frame)
    assert came[0].cycle == falls + 1


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_bad, "~crc.match_detected", "0"),
        *(
            pytest.param(check_bad, right, wrong, marks=pytest.mark.long)
            for right, wrong in (
                ("~long_enough", "0"),
                ("(too_long & self.valid)", "0"),
                ("bytes_ == self._bytes_max - 1", "bytes_ == self._bytes_max"),
                ("over.eq(too_long)", "over.eq(0)"),
            )
        ),
        (check_bad, "| reported", "| 0"),
        (check_bad, "bytes_ == FRAME_BYTES_MIN - 1", "bytes_ == FRAME_BYTES_MIN - 2"),
        (check_good, "crc.start.eq(~inside)", "crc.start.eq(0)"),
        (check_good, "bytes_ == self._bytes_max - 1", "bytes_ == self._bytes_max - 2"),
        (check_good, "bytes_ == FRAME_BYTES_MIN - 1", "bytes_ == FRAME_BYTES_MIN"),
        (check_nothing, "filled.eq(0)", "filled.eq(filled)"),
        (check_payload, "hunting & (self.data == START)", "self.data == START"),
        (check_payload, "hunting.eq(0)", "hunting.eq(hunting)"),
        (
            check_beginning,
            "hunting, inside, over = Signal(), S",
            "hunting, inside, over = Signal(init=1), S",
        ),
    ],
)
def test_planted_bugs_are_noticed(check: Any, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(receive, right, wrong)["Receive"])

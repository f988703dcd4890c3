"""The transmitter's output on the wire; check sequences are zlib's."""

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.sim import Simulator

from afflux_hdl.mac import transmit
from afflux_hdl.mac.transmit import Transmit
from tests.support.planting import names_with


def play(
    part: Any,
    frames: list[tuple[bytes, bool]],
    offers: Callable[[int, int], bool] = lambda number, byte: True,
    cycles: int = 1200,
) -> tuple[list[bytes], list[int]]:
    """Return what was sent between gaps, preamble and all, and the gaps before."""
    sent: list[bytes] = []
    gaps: list[int] = []

    async def run(ctx: Any) -> None:
        left = [
            (number, n, byte, n == len(frame) - 1, error and n == len(frame) - 1)
            for number, (frame, error) in enumerate(frames)
            for n, byte in enumerate(frame)
        ]
        current, gap, waited = b"", 0, False
        for _ in range(cycles):
            valid = bool(left) and (waited or offers(*left[0][:2]))
            ctx.set(part.i.valid, valid)
            if valid:
                ctx.set(part.i.payload.data, left[0][2])
                ctx.set(part.i.payload.last, left[0][3])
                ctx.set(part.i.payload.error, left[0][4])
                waited = True
                if ctx.get(part.i.ready):
                    left.pop(0)
                    waited = False
            assert not ctx.get(part.error)
            if ctx.get(part.enable):
                if not current:
                    gaps.append(gap)
                current += bytes([ctx.get(part.data)])
                gap = 0
            else:
                if current:
                    sent.append(current)
                current, gap = b"", gap + 1
            await ctx.tick()
        assert not left and not current

    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(run)
    simulator.run()
    return sent, gaps


def good(sent: bytes) -> bytes | None:
    """Return the frame if preamble and check sequence are right."""
    assert sent[:8] == b"\x55" * 7 + b"\xd5"
    frame, check = sent[8:-4], sent[-4:]
    assert len(frame) >= 60
    return frame if zlib.crc32(frame).to_bytes(4, "little") == check else None


def check_frames(built: Any) -> None:
    choose = random.Random(1)
    frames = [choose.randbytes(size) for size in (60, 1, 59, 61, 14, 120, 60)]
    sent, gaps = play(built(), [(frame, False) for frame in frames])
    assert [good(one) for one in sent] == [frame.ljust(60, b"\0") for frame in frames]
    # The least gap, exactly, while frames wait.
    assert gaps[1:] == [12] * (len(frames) - 1)


def check_spoilt(built: Any) -> None:
    """Send frames that are marked, or that pause, between good ones: none of these is right."""
    choose = random.Random(2)
    frames = [(choose.randbytes(80), n in (1, 3)) for n in range(6)]
    frames[3] = choose.randbytes(20), True
    pauses = {(4, 33): 5, (5, 70): 3}

    def offers(number: int, byte: int) -> bool:
        if pauses.get((number, byte)):
            pauses[number, byte] -= 1
            return False
        return True

    sent, _ = play(built(), [*frames, (frames[0][0], False)], offers)
    right = [frames[0][0], None, frames[2][0], None, None, None, frames[0][0]]
    assert [good(one) for one in sent] == right


def check_held(built: Any) -> None:
    """Hold the transmitter at every cycle: frames leave whole, and none begins meanwhile."""
    frame = random.Random(3).randbytes(60)
    for begins in range(1, 100, 7):
        part = built()
        sent: list[tuple[int, int]] = []
        cycles = 0

        async def run(ctx: Any, part: Any = part, begins: int = begins, sent: Any = sent) -> None:
            taken = 0
            for cycle in range(400):
                ctx.set(part.hold, begins <= cycle < begins + 150)
                ctx.set(part.i.valid, taken < 2 * len(frame))
                ctx.set(part.i.payload.data, frame[taken % len(frame)])
                ctx.set(part.i.payload.last, taken % len(frame) == len(frame) - 1)
                taken += ctx.get(part.i.valid) & ctx.get(part.i.ready)
                sent.append((ctx.get(part.enable), ctx.get(part.data)))
                await ctx.tick()

        simulator = Simulator(part)
        simulator.add_clock(8e-9)
        simulator.add_testbench(run)
        simulator.run()
        rises = [n for n in range(1, 400) if sent[n][0] > sent[n - 1][0]]
        assert len(rises) == 2
        for rise in rises:
            assert not begins + 3 <= rise < begins + 150
            assert good(bytes(data for _, data in sent[rise : rise + 72])) == frame
            cycles += 72
        assert sum(enable for enable, _ in sent) == cycles


def test_no_frame_begins_while_it_is_held() -> None:
    check_held(Transmit)


def test_frames_get_preamble_padding_check_sequence_and_gap() -> None:
    check_frames(Transmit)


def test_a_frame_that_is_cut_off_or_pauses_leaves_with_a_wrong_check_sequence() -> None:
    check_spoilt(Transmit)


def test_the_preamble_begins_two_cycles_after_the_offer() -> None:
    part = Transmit()
    seen = []

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(5)
        ctx.set(part.i.valid, 1)
        for _ in range(12):
            seen.append((ctx.get(part.enable), ctx.get(part.data)))
            await ctx.tick()

    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(run)
    simulator.run()
    assert next(n for n, (enable, _) in enumerate(seen) if enable) == 2
    assert seen[9] == (1, 0xD5)


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_frames, "count == GAP_BYTES - 2", "count == GAP_BYTES - 3"),
        (check_frames, "count == GAP_BYTES - 2", "count == GAP_BYTES - 1"),
        (check_frames, "crc.start.eq(1)", "crc.start.eq(0)"),
        (check_frames, "m.d.comb += [sends.eq(1), crc.valid.eq(1)]", "m.d.comb += sends.eq(1)"),
        (check_frames, "FRAME_BYTES_MIN - FCS_BYTES", "FRAME_BYTES_MIN - FCS_BYTES - 1"),
        (check_spoilt, "spoilt.eq(missing | beat.error)", "spoilt.eq(missing)"),
        (check_spoilt, "spoilt.eq(missing | beat.error)", "spoilt.eq(beat.error)"),
        (check_spoilt, "stray.eq(missing)", "stray.eq(0)"),
        (check_spoilt, "self.i.valid & ~stray & ~self.hold", "self.i.valid & ~self.hold"),
        (check_held, "self.i.valid & ~stray & ~self.hold", "self.i.valid & ~stray"),
    ],
)
def test_planted_bugs_are_noticed(check: Any, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(transmit, right, wrong)["Transmit"])

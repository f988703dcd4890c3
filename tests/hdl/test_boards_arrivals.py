"""Frames that wait for their turn: whole, in order, and the bad ones still marked as bad."""

import random

import pytest

from afflux_hdl.boards import arrivals
from afflux_hdl.boards.arrivals import Arrivals
from tests.support.part_player import at_once, pace, play
from tests.support.planting import names_with

DEPTH_BYTES = 2048


def check_arrivals(part: type[Arrivals]) -> None:
    choose = random.Random(3)
    # Each length of a last beat, good and bad.
    frames = [(choose.randbytes(60 + n // 2 % 4), n % 2 == 1) for n in range(16)]
    frames += [(choose.randbytes(choose.randrange(1, 300)), n % 3 == 0) for n in range(40)]
    for offers, takes in ((at_once, at_once), (pace(0.5, 1), pace(0.8, 2))):
        played = play(
            part(depth_bytes=DEPTH_BYTES), frames, marks=["dropped"], offers=offers, takes=takes
        )
        assert list(zip(played.plain, played.errors, strict=True)) == frames
        assert played.marks == {"dropped": 0}
    # A good one goes on no sooner than it is in.
    played = play(part(depth_bytes=DEPTH_BYTES), [(bytes(400), False)])
    assert played.cycles == list(range(played.arrived + 2, played.arrived + 102))
    # Nobody takes them: those that fit stay, and each of the others is counted, good or bad.
    frames = [(bytes([n]) * 500, n % 2 == 0) for n in range(9)]
    late = play(
        part(depth_bytes=DEPTH_BYTES), frames, marks=["dropped"], takes=lambda cycle: cycle > 1200,
        cycles_after=1000,
    )  # fmt: skip
    assert list(zip(late.plain, late.errors, strict=True)) == frames[:4]
    assert late.marks == {"dropped": 5}


def test_frames_come_out_as_they_came() -> None:
    check_arrivals(Arrivals)


BUGS = [
    ("MARK = 0b101", "MARK = 0b010"),
    pytest.param("MARK = 0b101", "MARK = 0b100", marks=pytest.mark.long),
    pytest.param(
        *("self.i.payload.last & self.i.payload.error", "self.i.payload.error & 0"),
        marks=pytest.mark.long,
    ),
    ("frames.i.payload.error.eq(0)", "frames.i.payload.error.eq(self.i.payload.error)"),
    pytest.param(
        *("~came.keep[1], came.keep[3]", "came.keep[3], ~came.keep[1]"), marks=pytest.mark.long
    ),
    ("[self.o.payload.keep.eq(_marked(came.keep)), ", "["),
    pytest.param("lossy=True", "lossy=False", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("right", "wrong"), BUGS)
def test_a_planted_bug_is_found(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_arrivals(names_with(arrivals, right, wrong)["Arrivals"])

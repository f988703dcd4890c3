"""Width converters beside plain lists of bytes; latency, throughput, planted bugs."""

import random
from typing import Any

import pytest

from afflux_hdl.lib import width
from afflux_hdl.lib.width import Narrow, Widen
from tests.support.part_player import at_once, pace, play
from tests.support.planting import names_with
from tests.support.refusals import refused

WIDTHS = [(8, 32), (32, 64), (64, 512)]


def frames(seed: int, count: int = 12) -> list[tuple[bytes, bool]]:
    choose = random.Random(seed)
    return [
        (choose.randbytes(choose.choice([1, 2, 3, 4, 5, 31, 32, 33, 64])), choose.random() < 0.3)
        for _ in range(count)
    ]


def check(part: Any, widths: tuple[int, int]) -> None:
    sent = frames(1)
    narrow_bits, wide_bits = widths
    for offers, takes in ((at_once, at_once), (pace(0.5, 1), at_once), (at_once, pace(0.4, 2))):
        built = part(narrow_bits=narrow_bits, wide_bits=wide_bits)
        played = play(built, sent, offers=offers, takes=takes)
        assert played.plain == [frame for frame, _ in sent]
        assert played.errors == [error for _, error in sent]
        size = len(built.o.payload.keep)
        assert len(played.cycles) == sum(-(-len(frame) // size) for frame, _ in sent)


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("part", [Widen, Narrow])
def test_frames_pass_unchanged(part: Any, widths: tuple[int, int]) -> None:
    check(part, widths)


def test_a_narrow_beat_moves_in_each_cycle() -> None:
    sent = frames(2)
    narrow_beats = sum(len(frame) for frame, _ in sent)
    widened = play(Widen(narrow_bits=8, wide_bits=32), sent)
    # The beat behind a wide one does not wait for it.
    assert widened.arrived == narrow_beats - 1
    assert widened.cycles[-1] == widened.arrived + 1
    narrowed = play(Narrow(narrow_bits=8, wide_bits=32), sent)
    assert narrowed.cycles == list(range(1, narrow_beats + 1))


@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ("Widen", "self.i.ready.eq(~self.o.valid | self.o.ready)", "self.i.ready.eq(1)"),
        ("Widen", "place.eq(Mux(beat.last, 1, place.rotate_left(1)))", "place.eq(1)"),
        ("Widen", "out.keep[keeps * n :]", "out.keep[keeps * n : keeps * (n + 1)]"),
        ("Widen", "out.error.eq(beat.error)", "out.error.eq(out.error | beat.error)"),
        ("Narrow", "held.last & final", "held.last"),
        ("Narrow", "self.o.ready & final", "final"),
        ("Narrow", "~Cat(held.keep, 0)[2 * keeps]", "~held.keep[keeps]"),
        ("Narrow", "final.eq(~beat.keep[keeps])", "final.eq(0)"),
    ],
)
def test_planted_bugs_are_noticed(part: str, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(width, right, wrong)[part], (8, 32))


@pytest.mark.parametrize("widths", [(8, 8), (8, 24), (12, 48), (32, 8)])
@pytest.mark.parametrize("part", [Widen, Narrow])
def test_widths_that_do_not_go_together_are_refused(part: Any, widths: tuple[int, int]) -> None:
    with refused(f"not {widths[1]} and {widths[0]}"):
        part(narrow_bits=widths[0], wide_bits=widths[1])

"""The requirement of 25 Gbit/s on the node's clock: the table of `docs/boards.md`, computed."""

from math import ceil
from pathlib import Path

from afflux_hdl.vivado.as02mc04 import BUS_BITS, CLOCK_HZ, LINE_GBIT, MAC_BITS, MAC_CLOCK_HZ

BOARDS = Path(__file__).parents[2] / "docs" / "boards.md"

AROUND = 24
"""Bytes of the wire beside a frame: preamble 8, check sequence 4, gap 12."""

SIZES = (60, 64, 65, 75, 97, 128, 129, 384, 4224, 4228)


def beats(size: int) -> int:
    """Return the beats of the node's bus that a frame without check sequence takes."""
    return ceil(size * 8 / BUS_BITS)


def cycles_between(size: int) -> float:
    """Return the cycles of the node from such a frame to the next at the wire's rate."""
    return (size + AROUND) * 8 / LINE_GBIT * CLOCK_HZ / 1e9


def test_the_node_takes_frames_of_every_size_at_the_wire_s_rate() -> None:
    """With the part in a thousand that two oscillators of 100 ppm differ by, many times over."""
    share = {size: beats(size) / cycles_between(size) for size in range(60, 9601)}
    worst = max(share, key=lambda size: share[size])
    assert worst == 65
    assert 0.674 < share[worst] < 0.675


def test_the_node_gives_frames_faster_than_the_wire_takes_them() -> None:
    assert BUS_BITS * CLOCK_HZ > MAC_BITS * MAC_CLOCK_HZ
    assert MAC_BITS * MAC_CLOCK_HZ == LINE_GBIT * 1e9


def test_the_table_is_right() -> None:
    rows = [
        f"| {size} | {size + 4} | {beats(size)} | {cycles_between(size):.2f} | "
        f"{beats(size) / cycles_between(size) * CLOCK_HZ / 1e6:.1f} |"
        for size in SIZES
    ]
    text = BOARDS.read_text(encoding="utf-8")
    assert [row for row in rows if f"\n{row}" not in text] == []

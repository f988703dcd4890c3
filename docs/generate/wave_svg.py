"""Wave diagrams as SVG: what signals were, cycle by cycle.

Our own, because a picture that a test compares byte for byte must depend on no other package's
version, and because two kinds of track are all that is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

__all__ = ["Track", "render"]

_CYCLE = 10
_LEFT = 12
# With the margins as wide as the other pictures: a phone shows it without making it smaller.
_WIDTH = 374
_STRIP_CYCLES = (_WIDTH - 2 * _LEFT) // _CYCLE
_HEIGHT = 17
_STEP = 38
_LINE = 16
_CHARACTER = 5
_COLOURS = ("#dce9f7", "#fbe6d0", "#e0f0dc", "#eee0f2")
_STYLE = (
    "text{font:10px sans-serif;fill:#222}.n{font-size:11px;font-weight:bold}.m{text-anchor:middle}"
    ".g{stroke:#ddd;stroke-width:.6}.w{fill:none;stroke:#234;stroke-width:1.1}"
    ".b{stroke:#234;stroke-width:.8}.t{font-size:12px;font-weight:bold}"
)


@dataclass(frozen=True)
class Track:
    """One line of the diagram.

    Attributes:
        name: Above it.
        values: One for each cycle: booleans make a wave; texts, boxes, and "" nothing. Equal texts
            side by side are one box; the part after a "|" in a text keeps boxes apart and is not
            shown. A text that does not fit stands behind its box if there is room, else its first
            letter is shown.
        colours: For each text's last word, a number that picks the box's colour.
    """

    name: str
    values: Sequence[bool | str]
    colours: dict[str, int]


def _wave(track: Track, top: int) -> list[str]:
    points = []
    for cycle, value in enumerate(track.values):
        y = top if value else top + _HEIGHT
        points += [
            f"{_LEFT + cycle * _CYCLE},{y}",
            f"{_LEFT + (cycle + 1) * _CYCLE},{y}",
        ]
    return [f'<polyline class="w" points="{" ".join(points)}"/>']


def _boxes(track: Track, top: int) -> list[str]:
    parts = []
    runs = [(str(value), len(list(group))) for value, group in groupby(track.values)]
    cycle = 0
    for number, (value, count) in enumerate(runs):
        text = value.partition("|")[0]
        x, width = _LEFT + cycle * _CYCLE, count * _CYCLE
        cycle += count
        if not text:
            continue
        colour = _COLOURS[track.colours.get(text.split()[-1], 0)]
        needed = len(text) * _CHARACTER
        after, room = runs[number + 1] if number + 1 < len(runs) else ("", 0)
        place, shown = f'class="m" x="{x + width / 2}"', text
        if needed > width:
            if after == "" and room * _CYCLE > needed + 4:
                place = f'x="{x + width + 3}"'
            else:
                shown = text[0]
        parts.append(
            f'<g><title>{escape(text)}</title><rect class="b" x="{x}" y="{top}" width="{width}" '
            f'height="{_HEIGHT}" fill="{colour}"/><text {place} y="{top + 12}">{escape(shown)}'
            "</text></g>"
        )
    return parts


def _changes(values: Sequence[bool | str]) -> bool:
    return any(value != values[0] for value in values)


def _strip(first_cycle: int, tracks: Sequence[Track], top: int) -> tuple[list[str], int]:
    """Return what is drawn of some cycles from `top` on, and where it ends."""
    cycles = len(tracks[0].values)
    bottom = top + _LINE + len(tracks) * _STEP
    parts = []
    for cycle in range(cycles + 1):
        x = _LEFT + cycle * _CYCLE
        if (first_cycle + cycle) % 5 == 0:
            parts.append(
                f'<line class="g" x1="{x}" x2="{x}" y1="{top + 3}" y2="{bottom}"/>'
                f'<text class="m" x="{x}" y="{top}">{first_cycle + cycle}</text>'
            )
    for number, track in enumerate(tracks):
        at = top + _LINE + number * _STEP
        parts.append(f'<text class="n" x="{_LEFT}" y="{at + 9}">{escape(track.name)}</text>')
        draw = _wave if all(isinstance(value, bool) for value in track.values) else _boxes
        parts += draw(track, at + 14)
    return parts, bottom


def render(title: Sequence[str], first_cycle: int, tracks: Sequence[Track]) -> str:
    """Return the diagram: strips of cycles, one below the other, of what changes in them.

    Args:
        title: Lines above it.
        first_cycle: Number of the first cycle, for the scale; every fifth is marked.
        tracks: Of the same length.

    Raises:
        ValueError: If lengths differ.
    """
    cycles = len(tracks[0].values)
    if any(len(track.values) != cycles for track in tracks):
        raise ValueError("tracks of different lengths")
    drawn, bottom = [], 18 + len(title) * _LINE
    for first in range(0, cycles, _STRIP_CYCLES):
        part = slice(first, first + _STRIP_CYCLES)
        shown = [
            Track(track.name, track.values[part], track.colours)
            for track in tracks
            if _changes(track.values[part])
        ]
        lines, end = _strip(first_cycle + first, shown, bottom + 14)
        drawn += [f'<text x="{_LEFT}" y="{bottom}">cycle</text>', *lines]
        bottom = end + 26
    height = bottom - 18
    headed = [
        f'<text class="{"" if number else "t"}" x="{_LEFT}" y="{18 + number * _LINE}">'
        f"{escape(line)}</text>"
        for number, line in enumerate(title)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}">',
            f"<title>{escape(' '.join(title))}</title>",
            f"<style>{_STYLE}</style>",
            # Of its own, as a page may be dark.
            f'<path d="M0 0H{_WIDTH}V{height}H0z" style="fill: #ffffff"/>',
            *headed,
            *drawn,
            "</svg>",
            "",
        ]
    )

"""Wave diagrams as SVG: what signals were, cycle by cycle.

Our own, because a picture that a test compares byte for byte must depend on no other package's
version, and because two kinds of track are all that is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

__all__ = ["Track", "render"]

_CYCLE = 15
_NAME_WIDTH = 190
_HEIGHT = 17
_STEP = 26
_TOP = 44
_CHARACTER = 5.6
_COLOURS = ("#dce9f7", "#fbe6d0", "#e0f0dc", "#eee0f2")
_STYLE = (
    "text{font:10px sans-serif;fill:#222}.n{text-anchor:end;font-size:11px}.m{text-anchor:middle}"
    ".g{stroke:#ddd;stroke-width:.6}.w{fill:none;stroke:#234;stroke-width:1.1}"
    ".b{stroke:#234;stroke-width:.8}.t{font-size:12px;font-weight:bold}"
)


@dataclass(frozen=True)
class Track:
    """One line of the diagram.

    Attributes:
        name: Left of it.
        values: One for each cycle: booleans make a wave; texts, boxes, and "" nothing. Equal texts
            side by side are one box; the part after a "|" in a text keeps boxes apart and is not
            shown. A text that does not fit stands behind its box if there is room, else its first
            letter is shown.
        colours: For each text's last word, a number that picks the box's colour.
    """

    name: str
    values: Sequence[bool | str]
    colours: dict[str, int]


def _wave(values: Sequence[bool | str], top: int) -> str:
    points = []
    for cycle, value in enumerate(values):
        y = top if value else top + _HEIGHT
        points += [
            f"{_NAME_WIDTH + cycle * _CYCLE},{y}",
            f"{_NAME_WIDTH + (cycle + 1) * _CYCLE},{y}",
        ]
    return f'<polyline class="w" points="{" ".join(points)}"/>'


def _boxes(track: Track, top: int) -> list[str]:
    parts = []
    runs = [(str(value), len(list(group))) for value, group in groupby(track.values)]
    cycle = 0
    for number, (value, count) in enumerate(runs):
        text = value.partition("|")[0]
        x, width = _NAME_WIDTH + cycle * _CYCLE, count * _CYCLE
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


def render(title: str, first_cycle: int, tracks: Sequence[Track]) -> str:
    """Return the diagram.

    Args:
        title: Above it.
        first_cycle: Number of the first cycle, for the scale; every fifth is marked.
        tracks: Of the same length.

    Raises:
        ValueError: If lengths differ.
    """
    cycles = len(tracks[0].values)
    if any(len(track.values) != cycles for track in tracks):
        raise ValueError("tracks of different lengths")
    width, height = _NAME_WIDTH + cycles * _CYCLE + 10, _TOP + len(tracks) * _STEP + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text class="t" x="8" y="16">{escape(title)}</text>',
        f'<text class="n" x="{_NAME_WIDTH - 8}" y="36">cycle</text>',
    ]
    for cycle in range(cycles + 1):
        x = _NAME_WIDTH + cycle * _CYCLE
        if (first_cycle + cycle) % 5 == 0:
            lines.append(f'<line class="g" x1="{x}" x2="{x}" y1="40" y2="{height - 4}"/>')
            if cycle < cycles:
                lines.append(f'<text x="{x + 2}" y="36">{first_cycle + cycle}</text>')
    for number, track in enumerate(tracks):
        top = _TOP + number * _STEP + 3
        lines.append(
            f'<text class="n" x="{_NAME_WIDTH - 8}" y="{top + 13}">{escape(track.name)}</text>'
        )
        if all(isinstance(value, bool) for value in track.values):
            lines.append(_wave(track.values, top))
        else:
            lines += _boxes(track, top)
    return "\n".join([*lines, "</svg>", ""])

"""How all plots look, the documents' too: one style sheet, titles that say what is measured.

A plot has its labels beside its data. A legend would send the eye to and fro, and on a phone it
would take half of the width.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "SHADES",
    "End",
    "compact",
    "end_labels",
    "key",
    "page",
    "percent_axis",
    "ratio_axis",
    "row_names",
    "sheet",
]

BLUE, ORANGE, GREEN, PURPLE, GREY = "#1f6fb4", "#c65102", "#1b8a6b", "#7a5ab5", "#6b7280"
SHADES = ("#7fb3df", BLUE, "#0b3c6f")
"""Light to dark, for a quantity of three steps."""

WIDTH_INCHES = 5.2
_LINE_INCHES = 0.185
_SMALL = 8.5
_RATIOS = (0.5, 1, 2, 5, 10, 20, 50, 100)

End = tuple[float, float, str, str]
"""A curve's end: x, y, the text that names the curve, its colour."""


@contextmanager
def sheet() -> Iterator[None]:
    """Draw in this look, whatever the user's settings are. Needs matplotlib, the extra "plot"."""
    import matplotlib as mpl
    from matplotlib import style

    with mpl.rc_context():
        mpl.rcdefaults()
        style.use(Path(__file__).with_suffix(".mplstyle"))
        yield


def page(title: str, about: str, inches: float, **grid: Any) -> tuple[Any, Any]:
    """Return a figure and its axes, below a title.

    Args:
        title: One line, the message.
        about: The measurement, its link and ranks; one line or several.
        inches: Height of all.
        grid: For `Figure.subplots`.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, inches), layout="constrained")
    # The canvas measures texts, as they will be drawn.
    FigureCanvasSVG(figure)
    lines = about.split("\n")
    left = 0.09 / WIDTH_INCHES
    figure.text(left, 1 - 0.25 / inches, title, size=11, weight="bold")
    for at, line in enumerate(lines):
        figure.text(left, 1 - (0.45 + at * _LINE_INCHES) / inches, line, size=9, color="#3b424c")
    _below(figure, 1.0)
    return figure, figure.subplots(**grid)


def key(figure: Any, words: Sequence[tuple[str, str, str]]) -> None:
    """Name colours in a line under the title, where the data are too dense for labels.

    Args:
        figure: From `page`.
        words: Mark, text and colour of each.
    """
    y = min(text.get_position()[1] for text in figure.texts) - _LINE_INCHES / figure.get_figheight()
    x = 0.09
    for mark, text, colour in words:
        word = figure.text(
            *(x / WIDTH_INCHES, y, f"{mark} {text}"), size=9, weight="bold", color=colour
        )
        figure.draw_without_rendering()
        x += word.get_window_extent().width / figure.dpi + 0.18
    _below(figure, 0.9)


def _below(figure: Any, lines: float) -> None:
    """Lay the axes out below the texts, so many lines from the last one."""
    least = min(text.get_position()[1] for text in figure.texts)
    top = least - (lines - 0.5) * _LINE_INCHES / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0, 1, top))


def ratio_axis(axis: Any, low: float, high: float, suffix: str = "×") -> None:
    """Make an axis one of ratios, logarithmic."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    shown = [each for each in _RATIOS if low <= each <= high]
    axis.set_ticks(shown, [f"{each:g}{suffix}" for each in shown])
    axis.set_ticks([], minor=True)


def percent_axis(axis: Any, shares: Sequence[float]) -> None:
    """Make an axis one of shares, logarithmic, with these ticks in percent."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(shares, [f"{100 * each:g} %" for each in shares])
    axis.set_ticks([], minor=True)


def row_names(axes: Any, names: Sequence[str]) -> None:
    """Name the rows of dots, the first on top; a name that ends with a colon heads a group."""
    axes.set_yticks(range(len(names)), [name.removesuffix(":") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    for label, name in zip(axes.get_yticklabels(), names, strict=False):
        if name.endswith(":"):
            label.set_weight("bold")


def end_labels(axes: Any, ends: Sequence[End], side: str = "right", size: float = _SMALL) -> None:
    """Name curves at their ends, moved apart as far as they have to be.

    The axes' limits leave room for the texts. From here on the figure's layout stays as it is.

    Args:
        axes: Where the curves are.
        ends: Of each curve.
        side: Of the curves, "left" or "right".
        size: Of the letters, in points.
    """
    figure = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    points = 72 / figure.dpi
    at = [points * axes.transData.transform((x, y))[1] for x, y, *_ in ends]
    low, high = (points * axes.transAxes.transform((0, share))[1] for share in (0, 1))
    placed = _apart(at, 1.22 * size, low + size / 2, high - size / 2)
    out = 1 if side == "right" else -1
    for (x, y, text, colour), wish, got in zip(ends, at, placed, strict=True):
        axes.annotate(
            text,
            (x, y),
            (11 * out, got - wish),
            textcoords="offset points",
            size=size,
            color=colour,
            ha="left" if out > 0 else "right",
            va="center_baseline",
            arrowprops={
                **{"arrowstyle": "-", "color": colour, "linewidth": 0.7},
                **{"shrinkA": 1, "shrinkB": 4, "relpos": (0 if out > 0 else 1, 0.5)},
            },
        )


def _apart(wishes: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places in the order of the wishes, near them, at least a gap apart."""
    order = sorted(range(len(wishes)), key=lambda each: wishes[each])
    groups: list[list[int]] = []
    for each in order:
        groups.append([each])
        # Groups that overlap become one, around the middle of their wishes.
        while len(groups) > 1 and _first(groups[-1], wishes, gap, low, high) < gap + (
            _first(groups[-2], wishes, gap, low, high) + gap * (len(groups[-2]) - 1)
        ):
            last = groups.pop()
            groups[-1] += last
    placed = [0.0] * len(wishes)
    for group in groups:
        for number, each in enumerate(group):
            placed[each] = _first(group, wishes, gap, low, high) + gap * number
    return placed


def _first(
    group: Sequence[int], wishes: Sequence[float], gap: float, low: float, high: float
) -> float:
    height = gap * (len(group) - 1)
    middle = sum(wishes[each] for each in group) / len(group)
    return min(max(middle - height / 2, low), max(low, high - height))


def compact(figure: Any) -> str:
    """Return a figure as SVG: text as text, coordinates of a hundredth of a point, nothing else."""
    written = io.StringIO()
    figure.savefig(
        written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
    )
    text = written.getvalue()
    text = text[text.index("<svg") :]
    for noise in (r"<!--.*?-->", r"<metadata>.*?</metadata>", r"<clipPath.*?</clipPath>"):
        text = re.sub(noise, "", text, flags=re.DOTALL)
    text = re.sub(r' clip-path="[^"]*"| id="(?!m[0-9a-f]{6})[^"]*"|<defs>\s*</defs>', "", text)
    text = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text)
    text = re.sub(r"(\.\d*?)0+(?=[^\d.])", lambda found: found[1].rstrip("."), text)
    for _ in range(3):
        text = re.sub(r"<g>\s*</g>\s*", "", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    # Lines of a path become one, so that an element is a line.
    text = re.sub(r"\n(?=[A-Za-z\"])", " ", text)
    text = re.sub(r"<g>\n((?:(?!</?g).*\n)?)</g>\n", r"\1", text)
    named = [each.get_text() for each in figure.texts if each.get_text()]
    title = f"<title>{escape('. '.join(named))}</title>"
    return re.sub(r"(<svg[^>]*>)", rf"\1\n{title}", text, count=1)

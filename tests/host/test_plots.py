"""The documents' plots: they are what the tables say, small, and readable on a phone."""

import io
import json
import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from afflux.commands.bench import plot_style as style
from afflux.commands.bench import size_plot
from benchmarks.training import curves
from docs.generate.plots.__main__ import PLOTS, draw, main
from docs.generate.plots.beside_gloo import CASES
from docs.generate.plots.tables import Documents, milliseconds, number
from tests.support.checkout import ROOT

matplotlib = pytest.importorskip("matplotlib")

DOCS = ROOT / "docs"
FOLDER = DOCS / "plots"
MOST_BYTES = 30_000
PHONE_PIXELS = 390
LEAST_LETTERS = 8.5
OTHERS = ("slot_life",)
"""Plots that the engine draws."""

Box = tuple[float, float, float, float]


def documents() -> Documents:
    return Documents(DOCS)


def pinned_matplotlib() -> str:
    """Return the version that the documents' plots are of."""
    return re.search(r"^matplotlib==(\S+)", (ROOT / "constraints.txt").read_text(), re.M)[1]


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_drawn_from_the_documents_tables(name):
    if matplotlib.__version__ != pinned_matplotlib():
        pytest.skip("another version of matplotlib places texts otherwise")
    drawn = draw(name, documents())
    assert drawn == (FOLDER / f"{name}.svg").read_text(encoding="utf-8"), "make docs draws it again"


def test_every_plot_is_drawn_and_shown():
    drawn = {path.stem for path in FOLDER.glob("*.svg")}
    assert drawn == {*PLOTS, *OTHERS}
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    assert [name for name in drawn if f"plots/{name}.svg" not in pages] == []


def faults_of(text: str) -> list[str]:
    """Return what a reader of a phone, or of a dark page, would miss in an SVG."""
    picture = ElementTree.fromstring(text)
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    background = next(each for each in picture.iter() if each.tag.endswith("}path"))
    corners = {float(word) for word in re.findall(r"[\d.]+", background.attrib["d"])}
    letters = [float(size) for size in re.findall(r"font: ?(?:bold )?([\d.]+)px", text)]
    letters += [float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)]
    return [
        fault
        for fault, found in {
            "is too large": len(text.encode()) > MOST_BYTES,
            "has no title": not text.partition("<title>")[2].partition("</title>")[0],
            "is wider than a phone": width > PHONE_PIXELS,
            "has small letters": not letters or min(letters) < LEAST_LETTERS,
            "has letters of paths": "<tspan" not in text and "<text" not in text,
            "has no light background": "fill: #ffffff" not in background.attrib.get("style", "")
            or corners != {0, width, height},
            "clips": "clip" in text,
        }.items()
        if found
    ]


@pytest.mark.parametrize("name", [*PLOTS, *OTHERS])
def test_a_plot_is_small_and_readable_anywhere(name):
    assert faults_of((FOLDER / f"{name}.svg").read_text(encoding="utf-8")) == []


def test_a_plot_that_is_not_readable_is_seen():
    good = (FOLDER / "where_it_wins.svg").read_text(encoding="utf-8")
    for word, other, fault in (
        ("font-size: 9px", "font-size: 6px", "has small letters"),
        ('viewBox="0 0 374.4 ', 'viewBox="0 0 648 ', "is wider than a phone"),
        ("fill: #ffffff", "fill: none", "has no light background"),
        ("<title>Where", "<title></title><title>Where", "has no title"),
        ("</svg>", " " * MOST_BYTES + "</svg>", "is too large"),
    ):
        assert word in good
        assert fault in faults_of(good.replace(word, other))


def boxes_of(figure) -> dict[str, Box]:
    """Return where each text of a figure is, in its pixels, without the lines that lead to it."""
    figure.savefig(io.BytesIO(), format="svg")
    renderer = figure._get_renderer()
    texts = [each for each in figure.findobj(matplotlib.text.Text) if each.get_visible()]
    return {
        f"{at}: {each.get_text()}": matplotlib.text.Text.get_window_extent(each, renderer).extents
        for at, each in enumerate(texts)
        if each.get_text().strip()
    }


def overlapping(figure) -> list[str]:
    """Return texts that cover one another, or leave the page."""
    boxes = boxes_of(figure)
    width, height = figure.bbox.width, figure.bbox.height
    outside = [
        name for name, (a, b, c, d) in boxes.items() if a < 0 or b < 0 or c > width or d > height
    ]
    covered = [
        f"{one} / {other}"
        for (one, a), (other, b) in combinations(boxes.items(), 2)
        if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 2
    ]
    return outside + covered


@pytest.mark.parametrize("name", PLOTS)
def test_no_text_covers_another_or_leaves_the_page(name):
    with style.sheet():
        assert overlapping(PLOTS[name](documents())) == []


def test_texts_that_cover_one_another_are_seen():
    with style.sheet():
        figure, axes = style.page("A title", "four hosts", 2.0)
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "one label")
        assert overlapping(figure) == []
        axes.text(0.52, 0.5, "another label")
        axes.text(0.95, 0.2, "a label that leaves the page").set_in_layout(False)
        assert len(overlapping(figure)) == 2


def test_labels_at_ends_stay_apart_and_in_the_axes():
    with style.sheet():
        figure, axes = style.page("A title", "four hosts", 2.5)
        axes.set(xlim=(0, 2), ylim=(0, 1), xticks=[], yticks=[])
        style.end_labels(axes, [(1, 0.5 + at / 1000, f"curve {at}", "black") for at in range(7)])
        assert overlapping(figure) == []
        heights = [box[1] for name, box in boxes_of(figure).items() if "curve" in name]
        assert heights == sorted(heights)


def test_the_chart_of_wins_and_losses_has_the_documents_figures():
    pages = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    drawn = re.findall(r"<text ([^>]*)>([^<]*)</text>", (FOLDER / "where_it_wins.svg").read_text())
    titles = [text for _, text in drawn]
    # The axis has ratios too, in other letters.
    shown = [text for look, text in drawn if text.endswith("×") and "font-weight: 700" in look]
    cases = [case for group in CASES.values() for case in group]
    for case in cases:
        table = pages.partition(f"<!-- {case.table} -->\n")[2].partition("<!-- end")[0]
        (line,) = (
            row for row in table.splitlines() if row.startswith(f"| {case.what} | {case.other} |")
        )
        at = [cell.strip("| ") for cell in table.splitlines()[0].split(" | ")].index(
            "times as fast"
        )
        ratio = float(line.strip("| ").split(" | ")[at])
        assert (f"{ratio:.3g}×" if ratio >= 1 else f"{round(ratio, 2):g}×") in shown
        assert case.title in titles
    # Both sides are there, and nothing that no table says.
    assert len(shown) == len(cases)
    assert sum(1 for text in shown if float(text[:-1]) < 1) >= 5


def test_cells_are_read_as_they_are_written():
    assert milliseconds("37.0 µs") == pytest.approx(0.037)
    assert milliseconds("1439.1 ms") == pytest.approx(1439.1)
    assert number("1,638,405") == 1_638_405
    assert number("5.519 (5.5–5.534)") == pytest.approx(5.519)
    with pytest.raises(ValueError, match="does not begin with a number"):
        number("–")
    with pytest.raises(KeyError, match="has no table"):
        documents().table("benchmarks.md", "host figures: nothing")
    titles = documents().table("benchmarks.md", "figures: zero_skip")[0]
    assert {"of dense", "of dense 2"} <= set(titles)


def test_the_command_draws_what_is_named(tmp_path: Path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "benchmarks.md").write_text((DOCS / "benchmarks.md").read_text())
    assert main([str(tmp_path), "wire_bytes"]) == 0
    assert sorted(path.stem for path in (tmp_path / "plots").iterdir()) == [
        "wire_bytes",
    ]


def test_losses_are_kept_of_every_tenth_step(tmp_path: Path):
    losses = [float(step) for step in range(1, 41)]
    rows = [
        {"bench": "convergence", "task": "digits", "scheme": scheme, "losses": losses}
        for scheme in ("", "", "int8", "int8", "unknown")
    ]
    figures, path = tmp_path / "convergence.json", tmp_path / "losses.json"
    figures.write_text(json.dumps({"schema": 1, "rows": rows}))
    assert curves.main([str(figures), str(path)]) == 0
    digits = json.loads(path.read_text())["digits"]
    # The mean of steps 1 to 20, of 11 to 30 and of 21 to 40.
    assert digits["losses"] == {"": [[10.5, 20.5, 30.5]] * 2, "int8": [[10.5, 20.5, 30.5]]}
    assert (digits["first_step"], digits["every"]) == (20, 10)
    assert json.loads((FOLDER / "losses.json").read_text()).keys() == {
        "digits",
        "lstm",
        "bag_dense",
    }


@pytest.mark.parametrize("sizes", [(1 << 10, 1 << 20), (5000,)])
def test_the_plot_of_the_command_is_in_the_documents_style(sizes, tmp_path: Path):
    about = {"what": "all_reduce", "dtype": "float", "op": "sum", "ranks": 4, "density": 1}
    times = {"afflux_s": 0.02, "gloo_s": 0.08, "floor_s": 0.01, "read_floor_s": 0.005}
    rows = [{**times, **about, "engine": "shm", "bytes": size} for size in sizes]
    size_plot.draw(rows, tmp_path / "sizes.svg")
    drawn = (tmp_path / "sizes.svg").read_text(encoding="utf-8")
    assert faults_of(drawn) == []
    assert drawn.count(">Afflux</text>") == 2
    with style.sheet():
        assert overlapping(size_plot.figure_of(rows)) == []

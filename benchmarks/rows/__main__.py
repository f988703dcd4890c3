"""`python -m benchmarks.rows`: where blocks of sparse sums go and what indices take, as tables.

Nothing is sent: rows are drawn by rules, and blocks and bytes are counted. With the name of a
folder, the tables of the documents there are renewed.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.report.drawn_rows import ELEMENTS, PATTERNS, ZEN, random_rows, zipf_rows
from benchmarks.rows.formats import ENCODED, entropy_bytes
from benchmarks.rows.placement import PLACEMENTS, Grid, balance, contiguous_share

__all__ = ["DENSITIES", "TABLES", "format_sizes", "main", "render"]

_WIDTH = 512
"""Elements of a row."""

_GRIDS = (Grid(4), Grid(8, lanes=16), Grid(4, slots=512, lanes=16))

_PARTS = 8
"""Parts of Zen's measure of skew."""


def _placement() -> str:
    names = " | ".join(PLACEMENTS)
    lines = [
        f"| shards × slots × lanes | rows | in one of {_PARTS} parts | {names} |",
        "|---|---|---|" + "---|" * len(PLACEMENTS),
    ]
    rows = ELEMENTS // _WIDTH
    for grid in _GRIDS:
        for name, draw in PATTERNS.items():
            for density in ZEN.values() if name.startswith("Zipf") else (max(ZEN.values()),):
                of_ranks = [draw(rows, density, rank) for rank in range(grid.shards)]
                found = [balance(each, of_ranks, rows, _WIDTH, grid) for each in PLACEMENTS]
                share = contiguous_share(of_ranks[0], rows, _PARTS)
                cells = " | ".join(f"{each.offers:.2f}, {each.ports:.2f}" for each in found)
                lines.append(
                    f"| {grid.shards} × {grid.slots} × {grid.lanes} | {name}, "
                    f"{100 * density:.2f} % | {100 * share:.0f} % | {cells} |"
                )
    return "\n".join(lines)


DENSITIES = (0.001, 0.01, 0.0113, 0.028, 0.1, 0.2, 0.3, 0.5, 0.8, 0.95)

_ROWS = 102_400
"""Of tensors of which lists are made."""


def format_sizes() -> dict[tuple[str, float], dict[str, float]]:
    """Return the bytes of a rank's list by form, for each kind of rows and density."""
    found: dict[tuple[str, float], dict[str, float]] = {}
    for kind, draw in (("random", random_rows), ("Zipf", zipf_rows)):
        for density in DENSITIES:
            rows = draw(_ROWS, density, 0)
            sizes: dict[str, float] = {name: size(rows, _ROWS) for name, size in ENCODED.items()}
            found[kind, density] = sizes | {"entropy": entropy_bytes(len(rows), _ROWS)}
    return found


def _formats() -> str:
    names = [*ENCODED, "entropy"]
    lines = [f"| rows, density | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for (kind, density), sizes in format_sizes().items():
        cells = " | ".join(f"{sizes[name]:,.0f}" for name in names)
        lines.append(f"| {kind}, {100 * density:g} % | {cells} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {"placement": _placement, "formats": _formats}
"""Tables of the documents, by the name in their marks."""


def render(text: str) -> str:
    """Return `text` with its tables renewed. `KeyError` for an unknown name."""

    def section(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- rows: {name} -->\n{TABLES[name]()}\n<!-- end rows -->"

    pattern = r"<!-- rows: (\w+) -->\n.*?<!-- end rows -->"
    return re.sub(pattern, section, text, flags=re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    """Print all tables; renew those of the documents in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="docs/schemes")
    folder = parser.parse_args(arguments).folder
    if folder is None:
        for name, table in TABLES.items():
            print(f"{name}\n\n{table()}\n")
        return 0
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(render(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

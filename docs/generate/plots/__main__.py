"""Draw the plots of the documents again, from their tables: `python -m docs.generate.plots docs`.

`make docs` does so. Tested: `tests/host/test_plots.py`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from afflux.commands.bench import plot_style as style
from docs.generate.plots import beside_gloo, gateware, sparse, training
from docs.generate.plots.tables import Documents

__all__ = ["PLOTS", "draw", "main"]

PLOTS: dict[str, Callable[[Documents], Any]] = {
    **beside_gloo.PLOTS,
    **gateware.PLOTS,
    **training.PLOTS,
    **sparse.PLOTS,
}
"""By name of the file: what draws it, into a figure of matplotlib."""


def draw(name: str, documents: Documents) -> str:
    """Return a plot as SVG. The same tables give the same text."""
    with style.sheet():
        return style.compact(PLOTS[name](documents))


def main(arguments: list[str] | None = None) -> int:
    """Draw all plots, or those that are named after the folder."""
    folder, *names = sys.argv[1:] if arguments is None else arguments
    documents = Documents(Path(folder))
    for name in names or PLOTS:
        (Path(folder) / "plots" / f"{name}.svg").write_text(draw(name, documents), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

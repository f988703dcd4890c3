"""The interface between a benchmark and the command that runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["SCHEMA", "Bench", "Row"]

SCHEMA = 1
"""Version of the JSON that commands write: {"schema", "machine", "rows"}. Rows may gain keys."""

Row = dict[str, Any]
"""One measured point: "bench" and flat values, units in the keys' names."""


@dataclass(frozen=True)
class Bench:
    """One benchmark.

    Attributes:
        name: Value of its rows' "bench".
        run: Measures; its argument asks for a short run that only shows that it works.
        show: Its rows as a table for people.
    """

    name: str
    run: Callable[[bool], list[Row]]
    show: Callable[[list[Row]], str]

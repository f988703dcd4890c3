"""A contender of a comparison, and the report of its errors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Side", "reason_of"]

_REASON_CHARACTERS = 240


def _nothing() -> None:
    return None


def _no_figures() -> Mapping[str, float]:
    return {}


@dataclass
class Side:
    """One contender's part of a case.

    Attributes:
        call: The call to time.
        wrong: Makes a call with fresh data, and returns how many elements are wrong at this rank.
        restore: Makes the data what they were; not timed.
        batch: Most calls between restorations; 0: any number.
        close: Gives back what it holds.
        figures: Returns what is to be known beside the time, after all runs, by the names of rows.
    """

    call: Callable[[], object]
    wrong: Callable[[], int]
    restore: Callable[[], object] = _nothing
    batch: int = 0
    close: Callable[[], object] = _nothing
    figures: Callable[[], Mapping[str, float]] = _no_figures


def reason_of(error: BaseException) -> str:
    """Return an error in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _REASON_CHARACTERS else text[: _REASON_CHARACTERS - 1] + "…"

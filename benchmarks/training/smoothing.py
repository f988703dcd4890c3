"""Losses by step, without the noise of single batches."""

from collections.abc import Sequence

__all__ = ["WINDOW", "first_at", "last_mean", "smooth"]

WINDOW = 20
"""Steps over which losses are averaged."""


def smooth(losses: Sequence[float]) -> list[float]:
    """Return the mean of each step and those before it, at most `WINDOW` of them."""
    sums = [0.0]
    for loss in losses:
        sums.append(sums[-1] + loss)
    begins = (max(0, end - WINDOW) for end in range(1, len(sums)))
    return [(sums[end] - sums[begin]) / (end - begin) for end, begin in enumerate(begins, start=1)]


def last_mean(losses: Sequence[float]) -> float:
    """Return the mean of the last steps."""
    return smooth(losses)[-1]


def first_at(losses: Sequence[float], target: float) -> int | None:
    """Return after how many steps the smoothed loss is first at the target, or below; else None.

    It is looked at from the first whole window on.
    """
    found = enumerate(smooth(losses), start=1)
    return next((step for step, loss in found if step >= WINDOW and loss <= target), None)

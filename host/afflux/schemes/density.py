"""Shares of a tensor's elements, and how many elements they are."""

import math

__all__ = ["checked_density", "share_of"]


def checked_density(density: float) -> float:
    """Return a density.

    Raises:
        ValueError: It is not above 0 and at most 1.
    """
    if not 0.0 < density <= 1.0:
        raise ValueError(f"density is {density}: it must be above 0 and at most 1")
    return density


def share_of(density: float | None, elements: int) -> int:
    """Return how many of some elements are given: at least one, if there is any."""
    return elements if density is None else min(elements, max(1, math.ceil(density * elements)))

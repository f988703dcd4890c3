"""Which elements of a tensor are the largest."""

import numpy as np

from afflux_drivers import _native

__all__ = ["largest"]


def largest(elements: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the elements with the largest absolute values, ascending.

    NaN is larger than all. Of elements that are equally large any may be taken, the same each time.
    As a rule it reads the elements once.

    Args:
        elements: Flat float32, contiguous.
        count: How many, from 1 to all.

    Returns:
        Flat int64.

    Raises:
        ValueError: The count is not from 1 to all.
    """
    places: np.ndarray = _native.largest(elements, count)
    return places

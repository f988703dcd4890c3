"""Which elements of a tensor are the largest, of one and of a sum of several."""

from typing import NamedTuple

import numpy as np

from afflux_drivers import _native

__all__ = ["Sums", "largest", "largest_from", "largest_sums", "pack", "settle"]


def largest(elements: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the elements with the largest absolute values, ascending.

    NaN is larger than all. Of elements that are equal to the least of them the first are taken. As
    a rule it reads the elements once.

    Args:
        elements: Flat float32, contiguous.
        count: How many, from 1 to all.

    Returns:
        Flat int64.

    Raises:
        ValueError: The count is not from 1 to all.
    """
    return largest_from(elements, count, 0)[0]


def largest_from(elements: np.ndarray, count: int, guess: int) -> tuple[np.ndarray, int]:
    """Return what `largest` does, and a guess.

    Args:
        elements: See `largest`.
        count: See `largest`.
        guess: The value that this returned for a similar tensor; 0 if there was none. It spares a
            sample of the elements, and changes nothing else.
    """
    places: np.ndarray
    places, guess = _native.largest(elements, count, guess)
    return places, guess


def pack(values: np.ndarray, places: np.ndarray, elements: int) -> np.ndarray:
    """Return a message that offers elements: as long at all ranks that offer as many.

    Args:
        values: Of the elements that are offered: flat float32, contiguous.
        places: Theirs: flat int64, ascending, each once.
        elements: Of the tensor.

    Returns:
        Flat int32.

    Raises:
        ValueError: A place is outside the tensor.
    """
    message = np.empty(_native.message_words(elements, len(places)), np.int32)
    _native.pack(values, places, elements, message)
    return message


class Sums(NamedTuple):
    """Elements of a sum of offers.

    Attributes:
        places: In the tensor, ascending, int64.
        sums: Their values, float32.
        quantum: Offers were rounded to multiples of this power of two; 0 if all are zero.
    """

    places: np.ndarray
    sums: np.ndarray
    quantum: float


def largest_sums(messages: np.ndarray, ranks: int, elements: int, count: int) -> Sums:
    """Return the largest elements of the sum of all ranks' offers; of equal ones the first.

    Offers are rounded to a quantum, so that no sum is. So all ranks get the same.

    Args:
        messages: Of the ranks, one after the other, as `pack` makes them.
        ranks: How many there are.
        elements: Of the tensor.
        count: How many each rank offers, and how many are returned at most: sums of zero are not.

    Raises:
        FloatingPointError: An offer is infinite or NaN, or a sum is beyond float32.
        ValueError: The messages are no such ones.
    """
    return Sums(*_native.largest_sums(messages, ranks, elements, count))


def settle(values: np.ndarray, places: np.ndarray, taken: np.ndarray, quantum: float) -> None:
    """Take out of a rank's offers what all ranks take: what rounding has left of it stays.

    Args:
        values: As they were offered, float32; changed in place.
        places: Theirs, int64, ascending.
        taken: Places that all ranks take, ascending.
        quantum: See `Sums`.
    """
    _native.settle(values, places, taken, quantum)

"""Sets of rows of a tensor: the union of what several ranks have, and where each row lies in it."""

import numpy as np

from afflux_drivers import _native

__all__ = ["RowSet", "counts_of", "field_bits", "fields_per_word"]

_WORD_BITS = 31
"""Of an int32, without its sign."""


def field_bits(ranks: int) -> int:
    """Return the bits of a field that counts so many ranks."""
    return ranks.bit_length()


def fields_per_word(ranks: int) -> int:
    """Return how many such fields fit into an int32."""
    return _WORD_BITS // field_bits(ranks)


def counts_of(numbers: np.ndarray, rows: int, ranks: int) -> np.ndarray:
    """Return words with a field for each row: 1 if it is among these, else 0.

    The sum of all ranks' words has in each field how many have the row: none overflows into the
    next. It takes about 1 ns for each row that is among them.

    Args:
        numbers: Row numbers, int64; any order, but it is fastest if they ascend.
        rows: Of the whole tensor.
        ranks: How many ranks' words are summed.

    Returns:
        Flat int32.

    Raises:
        IndexError: There is no such row.
    """
    bits = field_bits(ranks)
    counts = np.zeros(_native.count_words(rows, bits), np.int32)
    _native.put_counts(numbers, rows, bits, counts)
    return counts


class RowSet:
    """Rows of a tensor, as a bitmap: an eighth of a byte for each row of the whole tensor.

    Args:
        rows: Of the whole tensor.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._set = _native.RowSet(rows)

    def add(self, numbers: np.ndarray) -> None:
        """Add rows.

        Args:
            numbers: Flat int32, in any order.

        Raises:
            IndexError: There is no such row. None has been added.
        """
        self._set.add(numbers)

    def add_counts(self, counts: np.ndarray, ranks: int) -> None:
        """Add the rows that any rank has, by the sum of the ranks' `counts_of`.

        Raises:
            IndexError: Some rank has a row that there is not.
        """
        self._set.add_counts(counts, self._rows, field_bits(ranks))

    def numbers(self) -> np.ndarray:
        """Return the numbers of all rows, ascending, as int64. It is what `positions` counts."""
        numbers = np.empty(self._set.seal(), np.int64)
        self._set.numbers(numbers)
        return numbers

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """Return for each of these rows how many rows of the set are before it, as int64.

        Args:
            numbers: Flat int64; rows that the set had when `numbers` was called.

        Raises:
            IndexError: One is not in the set.
        """
        positions = np.empty(len(numbers), np.int64)
        self._set.positions(numbers, positions)
        return positions

"""Sets and lists of rows of a tensor, and rows that lie one after the other in shuffled blocks."""

import numpy as np

from afflux_drivers import _native

__all__ = [
    "RowSet",
    "counts_of",
    "field_bits",
    "fields_per_word",
    "list_of",
    "list_words",
    "numbers_of",
    "pack",
    "shuffle",
    "unshuffle",
]

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


def list_words(count: int, rows: int) -> int:
    """Return the words of 32 bits of a list of so many of so many rows, whichever these are.

    It is a bitmap of all rows, or in the form of P. Elias and R. Fano, whichever is smaller: at
    most 2 + log2(rows / count) bits for each that is listed.
    """
    return _native.list_words(count, rows)


def list_of(numbers: np.ndarray, rows: int) -> np.ndarray:
    """Return a list of rows, as `list_words` uint32.

    Args:
        numbers: Row numbers, int64, ascending, each once.
        rows: Of the whole tensor.

    Raises:
        IndexError: They do not ascend, or there is no such row.
    """
    words = np.zeros(list_words(len(numbers), rows), np.uint32)
    _native.put_list(numbers, rows, words)
    return words


def numbers_of(words: np.ndarray, count: int, rows: int) -> np.ndarray:
    """Return the row numbers of a list, ascending, as int64.

    Raises:
        IndexError: It is not of so many rows, or there is no such row.
    """
    numbers = np.empty(count, np.int64)
    _native.numbers_of_list(words, rows, numbers)
    return numbers


def shuffle(count: int) -> np.ndarray:
    """Return the place of each of so many blocks, an order that looks random; the same for all."""
    places = np.empty(count, np.int64)
    _native.shuffle(places)
    return places


def pack(
    values: np.ndarray,
    places: np.ndarray,
    room: np.ndarray,
    *,
    row_bytes: int,
    block_bytes: int,
    shuffled: bool,
) -> None:
    """Copy rows to their places in a room of whole blocks.

    Args:
        values: The rows, one after the other, uint8.
        places: Which row of the room each of them is, int64.
        room: uint8. Elements that no row covers stay as they are.
        row_bytes: Bytes of a row.
        block_bytes: Bytes of a block.
        shuffled: Whether block b of the room lies at place `shuffle(blocks)[b]`.

    Raises:
        IndexError: A row would not lie in the room.
        ValueError: The room is not whole blocks, or there are not as many rows as places.
    """
    _native.pack(values, places, row_bytes, block_bytes, shuffled, room)


def unshuffle(room: np.ndarray, out: np.ndarray, *, block_bytes: int) -> None:
    """Copy the blocks of a shuffled room to where they were before, as far as `out` goes.

    Raises:
        ValueError: The room is not whole blocks, or less than `out`.
    """
    _native.unshuffle(room, block_bytes, out)


class RowSet:
    """Rows of a tensor, as a bitmap: a quarter of a byte for each row of the whole tensor.

    Half of that is the bitmap, and half how many rows are before each of its words.

    Args:
        rows: Of the whole tensor.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._set = _native.RowSet(rows)

    def add_counts(self, counts: np.ndarray, ranks: int) -> None:
        """Add the rows that any rank has, by the sum of the ranks' `counts_of`.

        Raises:
            IndexError: Some rank has a row that there is not.
        """
        self._set.add_counts(counts, self._rows, field_bits(ranks))

    def add_list(self, words: np.ndarray, count: int) -> None:
        """Add the rows of a list of so many.

        Raises:
            IndexError: It is another list. Some rows may have been added.
        """
        self._set.add_list(words, count)

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

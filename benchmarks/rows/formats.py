"""Sizes of a rank's list of rows in each form: by formula, and of what an encoder writes.

| form | what it is |
|---|---|
| look-ahead words | of the protocol: 4 bytes for each lane of each packet, in the opening too |
| COO | 4 bytes for each row, as Zen counts them; torch has 8 |
| bitmap | a bit for each row of the tensor |
| hash bitmap | Zen's Algorithm 2: a bitmap for each server, of the rows that are its by a hash |
| counts | fields of a few bits that an aggregator can add |
| gaps in bytes | differences of row numbers, 7 bits to a byte |
| gaps, Rice | differences in the code of R. Rice, whose parameter is the best one |
| lists | a bitmap or the form of Elias and Fano: what sparse sums take |
| entropy | the least that any code needs if rows are at random places |

Of all but gaps the size follows from how many rows there are; look-ahead words lie between bounds.
"""

import math
from collections.abc import Callable

import numpy as np

from afflux_drivers.rows import counts_of, fields_per_word, list_of, list_words, numbers_of
from benchmarks.rows.placement import Grid

__all__ = ["ENCODED", "FORMULAS", "entropy_bytes", "rice_decoded", "rice_encoded"]

RANKS = 4
_GRID = Grid(RANKS)
_WORD_BYTES = 4


def _look_ahead(rows: np.ndarray, all_rows: int) -> int:
    """Return the bytes of words where a row is a block, of which no other rank has any."""
    columns = _GRID.columns(all_rows)
    rounds = np.bincount(rows % columns, minlength=columns).reshape(-1, _GRID.lanes).max(1)
    return int(_WORD_BYTES * _GRID.lanes * (rounds + 1).sum())


def _coo(rows: np.ndarray, all_rows: int) -> int:
    return rows.astype(np.int32).nbytes


def _bitmap(rows: np.ndarray, all_rows: int) -> int:
    bits = np.zeros(all_rows, np.uint8)
    bits[rows] = 1
    return np.packbits(bits).nbytes


def _hash_bitmap(rows: np.ndarray, all_rows: int) -> int:
    """Return the bytes of all servers' bitmaps; each knows which rows another one's bits mean."""
    server_of = np.random.default_rng(all_rows).integers(0, RANKS, all_rows)
    present = np.zeros(all_rows, np.uint8)
    present[rows] = 1
    return sum(np.packbits(present[server_of == each]).nbytes for each in range(RANKS))


def _counts(rows: np.ndarray, all_rows: int) -> int:
    return counts_of(rows, all_rows, RANKS).nbytes


def _gaps(rows: np.ndarray) -> np.ndarray:
    return np.diff(rows, prepend=-1) - 1


def _gaps_in_bytes(rows: np.ndarray, all_rows: int) -> int:
    """Return the bytes of the gaps, 7 bits to a byte, which are written out here."""
    left = _gaps(rows)
    written = 0
    while len(left):
        written += len(left)
        left = left[left >> 7 > 0] >> 7
    return written


def rice_encoded(rows: np.ndarray, parameter: int) -> np.ndarray:
    """Return the bits of gaps in the code of Rice: upper part in unary, lower part as it is."""
    gaps = _gaps(rows)
    lengths = (gaps >> parameter) + 1 + parameter
    ends = np.cumsum(lengths)
    bits = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    bits[ends - parameter - 1] = 1
    for bit in range(parameter):
        bits[ends - parameter + bit] = gaps >> (parameter - 1 - bit) & 1
    return bits


def rice_decoded(bits: np.ndarray, count: int, parameter: int) -> np.ndarray:
    """Return the rows from `rice_encoded`; for tests, one row after the other."""
    rows, at, row = [], 0, -1
    for _ in range(count):
        upper = 0
        while not bits[at]:
            upper += 1
            at += 1
        lower = int("0" + "".join(map(str, bits[at + 1 : at + 1 + parameter])), 2)
        at += 1 + parameter
        row += 1 + (upper << parameter | lower)
        rows.append(row)
    return np.array(rows, np.int64)


def _rice(rows: np.ndarray, all_rows: int) -> int:
    gaps = _gaps(rows)
    sizes = [int((gaps >> each).sum()) + len(rows) * (1 + each) for each in range(32)]
    best = int(np.argmin(sizes))
    bits = rice_encoded(rows, best)
    if len(bits) != sizes[best]:
        raise AssertionError(f"{len(bits)} bits were written, not {sizes[best]}")
    # And a byte for the parameter.
    return 1 + np.packbits(bits).nbytes


def _lists(rows: np.ndarray, all_rows: int) -> int:
    words = list_of(rows, all_rows)
    if not np.array_equal(numbers_of(words, len(rows), all_rows), rows):
        raise AssertionError("a list was not read as it was written")
    return words.nbytes


def entropy_bytes(count: int, all_rows: int) -> float:
    """Return the bytes that name one of all sets of so many rows."""
    ways = math.lgamma(all_rows + 1) - math.lgamma(count + 1) - math.lgamma(all_rows - count + 1)
    return ways / math.log(2) / 8


Encoder = Callable[[np.ndarray, int], int]

ENCODED: dict[str, Encoder] = {
    "look-ahead words": _look_ahead,
    "COO": _coo,
    "bitmap": _bitmap,
    "hash bitmap": _hash_bitmap,
    "counts": _counts,
    "gaps in bytes": _gaps_in_bytes,
    "gaps, Rice": _rice,
    "lists": _lists,
}
"""Bytes of a list that has been written; rows ascend."""


def _ceiling(bits: int) -> int:
    return -(-bits // 8)


FORMULAS: dict[str, Callable[[int, int], tuple[float, float]]] = {
    # A round of a slot carries at least one block, and at most one for each lane.
    "look-ahead words": lambda count, rows: (
        4 * (count + _GRID.columns(rows)),
        4 * (_GRID.lanes * count + _GRID.columns(rows)),
    ),
    "COO": lambda count, rows: (4 * count, 4 * count),
    "bitmap": lambda count, rows: (_ceiling(rows), _ceiling(rows)),
    "hash bitmap": lambda count, rows: (_ceiling(rows), _ceiling(rows) + RANKS - 1),
    "counts": lambda count, rows: (
        4 * -(-rows // fields_per_word(RANKS)),
        # Whole chunks of 64 words.
        4 * (-(-rows // fields_per_word(RANKS)) + 63),
    ),
    "gaps in bytes": lambda count, rows: (count, count * (1 + math.log(rows, 128))),
    "gaps, Rice": lambda count, rows: (
        0.0,
        1 + (count * (2.5 + max(0.0, math.log2(rows / max(count, 1))))) / 8 + 1,
    ),
    "lists": lambda count, rows: (4 * list_words(count, rows), 4 * list_words(count, rows)),
}
"""Between which bytes the size of a list lies, from how many rows there are of how many."""

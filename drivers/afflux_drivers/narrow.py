"""Elements in fewer bits: integers, several to a word that a group adds exactly; and halves."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from afflux_drivers import _native
from afflux_hdl.contract import wire

__all__ = ["INFINITE", "TOO_LARGE", "NarrowForm", "from_halves", "to_halves"]

INFINITE = 0x7F800000
"""Magnitudes from here on are those of elements that are not finite."""

TOO_LARGE = 0x7F000000
"""Magnitudes from here on, 2 ** 127, might become infinite by rounding to a multiple."""

_WORD_BITS = 32
_MOST_FIELDS = 8
_EXACT = 1 << 24
"""Integers up to here are float32."""
_ROUNDED = (1 << 22) - 1
"""Integers up to here are found without a conversion from float32."""


@dataclass(frozen=True)
class NarrowForm:
    """How elements become integers, and integers words; the same at all ranks.

    Elements are taken in groups, one for each block of 64 words: the first 64 of a group are the
    first fields of these words, and so on. In each group they become multiples of a power of two,
    the least for which the ranks' largest magnitude is at most `most`; never below 2 ** -126.

    Attributes:
        fields: In a word.
        most: Largest magnitude of a rank's integer.
        ranks: How many ranks' words are summed.
    """

    fields: int
    most: int
    ranks: int

    @classmethod
    def of(cls, bits: int, ranks: int) -> Self:
        """Return the form with most fields whose integers have at least so many bits.

        With one field to a word they may have fewer, as many as sums of so many ranks leave.

        Args:
            bits: Of an integer, its sign included.
            ranks: How many ranks' words are summed.
        """
        for fields in range(_MOST_FIELDS, 0, -1):
            largest_sum = min((1 << _WORD_BITS // fields - 1) - 1, _EXACT)
            most = min(largest_sum // ranks, _ROUNDED)
            if most >= (1 << bits - 1) - 1 or fields == 1:
                break
        return cls(fields, most, ranks)

    def groups(self, elements: int) -> int:
        """Return how many groups so many elements make."""
        return -(-elements // (self.fields * wire.BLOCK_ELEMENTS))

    def words(self, elements: int) -> int:
        """Return how many words they make. The last group may have fewer than a block."""
        whole, rest = divmod(elements, self.fields * wire.BLOCK_ELEMENTS)
        return whole * wire.BLOCK_ELEMENTS + min(rest, wire.BLOCK_ELEMENTS)

    def magnitudes(self, elements: np.ndarray) -> np.ndarray:
        """Return the largest magnitude of each group: float32 bits as int32, for a MAX.

        Args:
            elements: Flat float32.
        """
        found = np.empty(self.groups(len(elements)), np.int32)
        _native.narrow_magnitudes(elements, self.fields, self.most, found)
        return found

    def pack(self, elements: np.ndarray, magnitudes: np.ndarray, words: np.ndarray) -> None:
        """Write the words of a rank's elements.

        Args:
            elements: Flat float32.
            magnitudes: Of all ranks; none is too large.
            words: For a SUM: int32, as many as `words` says.
        """
        _native.narrow_pack(elements, magnitudes, self.fields, self.most, words)

    def unpack(
        self, sums: np.ndarray, magnitudes: np.ndarray, elements: np.ndarray, averages: np.ndarray
    ) -> None:
        """Write the average, and subtract from the elements what `pack` has made of them, exactly.

        Args:
            sums: Of the ranks' words; they may be the last words of the averages' memory.
            magnitudes: As for `pack`.
            elements: As for `pack`.
            averages: Flat float32, as many.
        """
        _native.narrow_unpack(
            sums, magnitudes, self.fields, self.most, self.ranks, elements, averages
        )


def to_halves(elements: np.ndarray, brain: bool, limit: float, halves: np.ndarray) -> int:
    """Write elements rounded to 16 bits of floating point, to nearest, ties to even.

    Args:
        elements: Flat float32.
        brain: Whether to bfloat16, not float16.
        limit: Elements beyond it become it; a number of the type.
        halves: Their bits, int16, as many.

    Returns:
        The float32 bits of the largest magnitude. If that is not finite the halves are of no use.
    """
    most: int = _native.narrow_to_halves(elements, brain, limit, halves.view(np.uint16))
    return most


def from_halves(
    sums: np.ndarray,
    brain: bool,
    limit: float,
    ranks: int,
    elements: np.ndarray,
    averages: np.ndarray,
) -> None:
    """Write the average, and subtract from the elements what `to_halves` has made of them, exactly.

    Args:
        sums: Of the ranks' halves, int16, finite; they may be the second half of the averages'
            memory.
        brain: As for `to_halves`.
        limit: As for `to_halves`.
        ranks: How many ranks' halves were summed.
        elements: As for `to_halves`.
        averages: Flat float32, as many.
    """
    _native.narrow_from_halves(sums.view(np.uint16), brain, limit, ranks, elements, averages)

"""A worker's tensor as blocks: which are present, what they send, and what comes back for them.

The worker walks columns and knows no numbers; an
encoding knows numbers and nothing of rows or rounds.
"""

from abc import ABC, abstractmethod

import numpy as np

from afflux_sim.golden.frames import ELEMENTS, SUM, Block, as_block
from afflux_sim.golden.reductions import Tensor

__all__ = ["Encoding", "IntegerEncoding", "fits_opening"]


class Encoding(ABC):
    """The blocks of one worker's tensor for one operation.

    Attributes:
        block_count: How many blocks the encoding has, present or not.
        direct: Whether the blocks travel with the opening round, in lanes 1, 2, ….
        opcode: That of the rounds after the opening round.
        partial_dtype: Of those rounds, if partial sums go up in place of numbers.
    """

    block_count: int
    direct: bool
    opcode: int
    partial_dtype: int | None = None

    @abstractmethod
    def exponent(self, block: int) -> int | None:
        """Return the exponent that the look-ahead names for `block`; None if it is absent."""

    @abstractmethod
    def encode(self, block: int, exponent: int) -> Block:
        """Return what this worker sends for `block` when `exponent` is agreed."""

    @abstractmethod
    def store(self, block: int, exponent: int, result: Block) -> None:
        """Take the result for `block` that was summed at `exponent`."""

    @abstractmethod
    def tensor(self) -> Tensor:
        """Return the result, flat; blocks that never came are zero."""


class IntegerEncoding(Encoding):
    """int32 elements as they are, without exponents."""

    def __init__(
        self, elements: Tensor, *, every_block: bool, direct: bool, opcode: int = SUM
    ) -> None:
        self.opcode = opcode
        self.block_count = -(-elements.size // ELEMENTS)
        self.direct = direct
        self._count = elements.size
        self._every_block = every_block
        self._blocks = split_blocks(elements)
        self._results = np.zeros((self.block_count, ELEMENTS), dtype=np.int32)

    def exponent(self, block: int) -> int | None:
        return 0 if self._every_block or self._blocks[block].any() else None

    def encode(self, block: int, exponent: int) -> Block:
        return as_block(self._blocks[block])

    def store(self, block: int, exponent: int, result: Block) -> None:
        self._results[block] = result

    def tensor(self) -> Tensor:
        return self._results.reshape(-1)[: self._count]


def split_blocks(elements: Tensor) -> Tensor:
    """Return the elements in rows of 64, the last one padded with zeros."""
    padding = -elements.size % ELEMENTS
    return np.pad(elements, (0, padding)).reshape(-1, ELEMENTS)


def fits_opening(count: int, lanes: int) -> bool:
    """Return whether the blocks of `count` integers fit lanes 1, 2, … of an opening round."""
    return -(-count // ELEMENTS) <= lanes - 1

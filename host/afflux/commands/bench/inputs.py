"""The tensors of all ranks: random, but every rank can make all of them again, to check.

Values are random to the last bit, so that a sum has to round. They are small (2^-60 for float32),
because sums in place grow N-fold with each call; `calls_in_place` returns how often that goes well.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from afflux.commands.bench.catalogue import TYPES
from afflux_hdl.contract import wire

__all__ = ["DTYPES", "Inputs"]

PIECE = 1 << 20
"""Elements that are made at once: what a check needs in memory beside the tensor."""

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, theirs) for name, theirs in TYPES.items()}
"""The types that Afflux sums, by their names in nccl-tests."""

# Exponent of the largest magnitude at the start, and the bits by which it may grow from there.
_RANGE = {
    torch.float32: (-60, 120),
    torch.bfloat16: (-60, 120),
    torch.float16: (-6, 20),
    torch.int32: (7, 23),
    torch.int64: (31, 31),
}


@dataclass(frozen=True)
class Inputs:
    """The tensors of all ranks of one measurement.

    Attributes:
        count: Elements.
        dtype: One of DTYPES.
        ranks: How many contribute.
        density: Share of the blocks of 256 bytes that are not zero, drawn for each rank separately.
        seed: Another seed gives other values.
        full_overlap: The blocks that are not zero are the same at all ranks.
    """

    count: int
    dtype: torch.dtype
    ranks: int
    density: float = 1.0
    seed: int = 0
    full_overlap: bool = False

    @property
    def block(self) -> int:
        """Elements of a block."""
        return wire.BLOCK_BYTES // self.dtype.itemsize

    def pieces(self) -> Iterator[slice]:
        """Yield the slice of each piece; all but the last have PIECE elements."""
        for start in range(0, self.count, PIECE):
            yield slice(start, min(start + PIECE, self.count))

    def piece(self, rank: int, where: slice) -> torch.Tensor:
        """Return what `rank` has in a slice of `pieces`, of shape (its length,)."""
        length = where.stop - where.start
        random = np.random.Generator(np.random.SFC64([self.seed, rank, where.start]))
        exponent, _ = _RANGE[self.dtype]
        values: np.ndarray
        if self.dtype == torch.int32:
            values = _random_words(random, length, np.int8).astype(np.int32)
        elif self.dtype == torch.int64:
            values = _random_words(random, length, np.int32).astype(np.int64)
        else:
            values = _random_words(random, length, np.int32).astype(np.float32)
            values *= np.float32(2.0 ** (exponent - 31))
        if self.density < 1:
            blocks = -(-length // self.block)
            chooser = self._common(where) if self.full_overlap else random
            absent = np.repeat(chooser.random(blocks) >= self.density, self.block)[:length]
            # Not by a product: half the zeros would be -0, which is a number.
            values[absent] = 0
        return torch.from_numpy(values).to(self.dtype)

    def _common(self, where: slice) -> np.random.Generator:
        """Return a generator of what all ranks have in common in a slice."""
        return np.random.Generator(np.random.SFC64([self.seed, self.ranks, where.start]))

    def fill(self, rank: int, tensor: torch.Tensor) -> None:
        """Write all that `rank` contributes."""
        for where in self.pieces():
            tensor[where] = self.piece(rank, where)

    def calls_in_place(self, op: str) -> int:
        """Return how many sums in place, one after the other, measure the same; 0: any number.

        A sum of dense tensors grows until it overflows. A sparse one is as dense as the union
        of all ranks after the first call.
        """
        if self.density < 1:
            return 1
        if op != "sum" or self.ranks == 1:
            return 0
        _, bits = _RANGE[self.dtype]
        return max(1, int(bits / math.log2(self.ranks)))


def _random_words(random: np.random.Generator, count: int, dtype: type) -> np.ndarray:
    words = -(-count * np.dtype(dtype).itemsize // 8)
    return random.integers(0, 1 << 64, words, dtype=np.uint64).view(dtype)[:count]

"""A worker's tensor as blocks: which are present, what they send, and what comes back for them.

`docs/protocol.md` section 8, block by block. The worker walks columns and knows no numbers; an
encoding knows numbers and nothing of rows or rounds.
"""

from abc import ABC, abstractmethod

import numpy as np

from afflux_sim.golden.frames import ELEMENTS, SUM, Block, as_block
from afflux_sim.golden.numbers import (
    EXACT_SCALE_BITS,
    EXACT_WORDS,
    NON_FINITE,
    OPCODES,
    Floats,
    Tensor,
    bits_to_tensor,
    class_counts,
    exact_limbs,
    exact_total,
    finite_part,
    float_from_key,
    guard_bits,
    is_exact_mode,
    key_of_float,
    largest_exponent,
    quantise,
    result_bits,
    widen,
)

__all__ = ["Encoding", "IntegerEncoding", "encoding_of", "fits_opening"]


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
    def visits(self, block: int) -> list[int]:
        """Return the exponents that the look-ahead names for `block`, one for each visit."""

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

    def visits(self, block: int) -> list[int]:
        return [0] if self._every_block or self._blocks[block].any() else []

    def encode(self, block: int, exponent: int) -> Block:
        return as_block(self._blocks[block])

    def store(self, block: int, exponent: int, result: Block) -> None:
        self._results[block] = result

    def tensor(self) -> Tensor:
        return self._results.reshape(-1)[: self._count]


class KeyEncoding(IntegerEncoding):
    """MAX and MIN of floating point: order-preserving integers, every block present."""

    def __init__(self, x: Floats, *, dtype: str, reduction: str, direct: bool) -> None:
        keys = key_of_float(x, reduction)
        super().__init__(keys, every_block=True, direct=direct, opcode=OPCODES[reduction])
        self._dtype = dtype

    def tensor(self) -> Tensor:
        return float_from_key(super().tensor().astype(np.int32), self._dtype)


class ExactEncoding(IntegerEncoding):
    """Exact mode: 13 words for each element, every block present."""

    def __init__(self, x: Floats, *, dtype: str, reduction: str, workers: int, lanes: int) -> None:
        words = np.array([exact_limbs(element) for element in x], dtype=np.int32).reshape(-1)
        super().__init__(words, every_block=True, direct=fits_opening(words.size, lanes))
        self._dtype = dtype
        self._reduction = reduction
        self._workers = workers

    def tensor(self) -> Tensor:
        elements = super().tensor().astype(np.int32).reshape(-1, EXACT_WORDS)
        bits = [
            result_bits(
                exact_total(words),
                -EXACT_SCALE_BITS,
                int(words[12]),
                dtype=self._dtype,
                reduction=self._reduction,
                workers=self._workers,
            )
            for words in elements
        ]
        return bits_to_tensor(bits, self._dtype)


class BlockFloatEncoding(Encoding):
    """SUM and AVG of floating point: fixed point with one agreed exponent for each block."""

    direct = False
    opcode = SUM

    def __init__(self, x: Floats, *, dtype: str, reduction: str, workers: int) -> None:
        self.block_count = -(-x.size // ELEMENTS)
        self._count = x.size
        self._blocks = split_blocks(x)
        self._dtype = dtype
        self._reduction = reduction
        self._workers = workers
        # By block: the finite sums with their exponent, and the class counts.
        self._sums: dict[int, tuple[int, Block]] = {}
        self._classes: dict[int, Block] = {}

    def visits(self, block: int) -> list[int]:
        x = self._blocks[block]
        first = [] if np.isfinite(x).all() else [NON_FINITE]
        return first + ([largest_exponent(x)] if finite_part(x).any() else [])

    def encode(self, block: int, exponent: int) -> Block:
        x = self._blocks[block]
        if exponent == NON_FINITE:
            return class_counts(x)
        return quantise(x, exponent, self._workers)

    def store(self, block: int, exponent: int, result: Block) -> None:
        if exponent == NON_FINITE:
            self._classes[block] = result
        else:
            self._sums[block] = (exponent, result)

    def tensor(self) -> Tensor:
        zeros = as_block([])
        bits = []
        for block in range(self.block_count):
            exponent, sums = self._sums.get(block, (1, zeros))
            classes = self._classes.get(block, zeros)
            scale_bits = (exponent - 127) - 30 + guard_bits(self._workers)
            bits += [
                result_bits(
                    total,
                    scale_bits,
                    counts,
                    dtype=self._dtype,
                    reduction=self._reduction,
                    workers=self._workers,
                )
                for total, counts in zip(sums.tolist(), classes.tolist(), strict=True)
            ]
        return bits_to_tensor(bits[: self._count], self._dtype)


def split_blocks(elements: Tensor) -> Tensor:
    """Return the elements in rows of 64, the last one padded with zeros."""
    padding = -elements.size % ELEMENTS
    return np.pad(elements, (0, padding)).reshape(-1, ELEMENTS)


def fits_opening(count: int, lanes: int) -> bool:
    """Return whether the blocks of `count` integers fit lanes 1, 2, … of an opening round."""
    return -(-count // ELEMENTS) <= lanes - 1


def encoding_of(
    tensor: Tensor, *, dtype: str, reduction: str, workers: int, lanes: int
) -> Encoding:
    """Return the encoding that section 8 prescribes for a flat tensor and an operation."""
    direct = fits_opening(tensor.size, lanes)
    if dtype == "int32":
        return IntegerEncoding(
            tensor.astype(np.int32),
            every_block=direct or reduction != "sum",
            direct=direct,
            opcode=OPCODES[reduction],
        )
    x = widen(tensor, dtype)
    if reduction in ("max", "min"):
        return KeyEncoding(x, dtype=dtype, reduction=reduction, direct=direct)
    if is_exact_mode(tensor.size, dtype, reduction):
        return ExactEncoding(x, dtype=dtype, reduction=reduction, workers=workers, lanes=lanes)
    return BlockFloatEncoding(x, dtype=dtype, reduction=reduction, workers=workers)

"""A worker's tensors as blocks: `docs/protocol.md`, sections 8.1, 8.2, 8.5 and 8.6.

A tensor's own bytes travel, or partial sums if a worker stands for several ranks. The results are
the aggregator's; where the ranks' bits come side by side, each worker reduces them by itself.
"""

import zlib
from collections.abc import Sequence

import numpy as np

from afflux_sim.golden.encoding import Encoding, IntegerEncoding, fits_opening
from afflux_sim.golden.frames import (
    DTYPES,
    ELEMENTS,
    MAX,
    MIN,
    NUMBER_MAX,
    NUMBER_MIN,
    NUMBER_SUM,
    SUM,
    Block,
    partial_dtype,
)
from afflux_sim.golden.merge import (
    Contribution,
    block_of_elements,
    elements_of_block,
    reduce_lane,
)
from afflux_sim.golden.reductions import (
    Tensor,
    bits_to_tensor,
    divide,
    reduce_numbers,
    scale_of,
    sum_numbers,
)
from afflux_sim.golden.rounding import FORMATS

__all__ = ["AgainEncoding", "NumberEncoding", "encoding_of"]

# The blocks that one operation brings again.
AGAIN_BLOCKS = 1024


def words_of(tensor: Tensor) -> Block:
    """Return a flat tensor's bytes as words, the last one padded with zeros."""
    octets = np.ascontiguousarray(tensor).tobytes()
    return np.frombuffer(octets + bytes(-len(octets) % 4), "<i4").astype(np.int32)


def blocks_of(words: Block) -> list[Block]:
    """Return words as blocks, the last one padded with zeros."""
    return list(np.pad(words, (0, -words.size % ELEMENTS)).reshape(-1, ELEMENTS))


class NumberEncoding(Encoding):
    """SUM, AVG, MAX and MIN of numbers that the aggregator reduces."""

    direct = False

    def __init__(
        self,
        tensors: Sequence[Tensor],
        *,
        dtype: str,
        reduction: str,
        workers: int,
        partial_bits: int,
    ) -> None:
        self._blocks = [blocks_of(words_of(tensor)) for tensor in tensors]
        self._results: dict[int, Block] = {}
        self._count = tensors[0].size
        self._dtype = dtype
        self._reduction = reduction
        self._workers = workers
        self.block_count = len(self._blocks[0]) if self._count else 0
        self.opcode = {"max": NUMBER_MAX, "min": NUMBER_MIN}.get(
            reduction, NUMBER_SUM + scale_of(reduction, workers)
        )
        if len(tensors) > 1 and self.opcode >= NUMBER_SUM:
            self.partial_dtype = partial_dtype(dtype, partial_bits)

    def exponent(self, block: int) -> int | None:
        if self._reduction in ("max", "min"):
            return 0
        present = [blocks[block] for blocks in self._blocks if blocks[block].any()]
        if not present:
            return None
        of = FORMATS[self._dtype]
        bits = [x for each in present for x in elements_of_block(each, DTYPES[self._dtype])]
        fields = [x >> of.fraction_bits & (1 << of.exponent_bits) - 1 for x in bits]
        finite = [x for x in fields if x != (1 << of.exponent_bits) - 1]
        return max([1, *finite])

    def encode(self, block: int, exponent: int) -> Block:
        if len(self._blocks) == 1:
            return self._blocks[0][block]
        dtype = DTYPES[self._dtype]
        return reduce_lane(
            self.opcode,
            [Contribution(dtype, {0: blocks[block]}) for blocks in self._blocks],
            0,
            workers=len(self._blocks),
            exponent=exponent,
            to=dtype if self.partial_dtype is None else self.partial_dtype,
            window=None,
        )

    def store(self, block: int, exponent: int, result: Block) -> None:
        self._results[block] = result

    def tensor(self) -> Tensor:
        bits: list[int] = []
        for block in range(self.block_count):
            result = self._results.get(block, np.zeros(ELEMENTS, dtype=np.int32))
            bits += divide(
                elements_of_block(result, DTYPES[self._dtype]),
                self._dtype,
                self._reduction,
                self._workers,
            )
        return bits_to_tensor(bits[: self._count], self._dtype)

    def again(self, ranks: Sequence[int]) -> "AgainEncoding | None":
        """Return the operation that brings the blocks which were not summed, if there are any."""
        if self._reduction in ("max", "min"):
            return None
        numbers = [block for block, result in sorted(self._results.items()) if result[0] == -1]
        return AgainEncoding(self, numbers[:AGAIN_BLOCKS], ranks) if numbers else None

    def take_again(self, block: int, of_all_ranks: Sequence[Block]) -> None:
        """Take the blocks that all ranks sent for one that was not summed."""
        dtype = DTYPES[self._dtype]
        columns = [elements_of_block(each, dtype) for each in of_all_ranks]
        sums = sum_numbers(columns, self._dtype, self._reduction)
        self._results[block] = block_of_elements(sums, dtype)

    def raw(self, block: int, place: int) -> Block:
        """Return the bytes of a block, of the rank at this place among the worker's own."""
        return self._blocks[place][block]

    @property
    def workers(self) -> int:
        return self._workers


class AgainEncoding(Encoding):
    """The blocks of `of` that were not summed, from all ranks: block i * N + r is rank r's."""

    direct = False
    opcode = SUM

    def __init__(self, of: NumberEncoding, numbers: Sequence[int], ranks: Sequence[int]) -> None:
        self.of = of
        self._numbers = list(numbers)
        self._places = {rank: place for place, rank in enumerate(ranks)}
        self.block_count = len(numbers) * of.workers
        self._results: dict[int, Block] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """What stands for a shape in the fingerprint: how many blocks, and which."""
        listed = ",".join(map(str, self._numbers))
        return len(self._numbers), zlib.crc32(listed.encode("ascii"))

    def exponent(self, block: int) -> int | None:
        own = block % self.of.workers in self._places and self.encode(block, 0).any()
        return 0 if own else None

    def encode(self, block: int, exponent: int) -> Block:
        i, rank = divmod(block, self.of.workers)
        return self.of.raw(self._numbers[i], self._places[rank])

    def store(self, block: int, exponent: int, result: Block) -> None:
        self._results[block] = result

    def finish(self) -> None:
        """Put the sums of the ranks' blocks in their places; once all have come."""
        zeros = np.zeros(ELEMENTS, dtype=np.int32)
        n = self.of.workers
        for i, number in enumerate(self._numbers):
            ranks = [self._results.get(i * n + rank, zeros) for rank in range(n)]
            self.of.take_again(number, ranks)

    def tensor(self) -> Tensor:
        return self.of.tensor()


class DirectEncoding(Encoding):
    """A small tensor of any dtype: the words of all ranks side by side, in the opening round."""

    direct = True
    opcode = SUM

    def __init__(
        self,
        tensors: Sequence[Tensor],
        *,
        dtype: str,
        reduction: str,
        workers: int,
        ranks: Sequence[int],
    ) -> None:
        self._words = words_of(tensors[0]).size
        everyone = np.zeros((workers, self._words), dtype=np.int32)
        everyone[list(ranks)] = [words_of(tensor) for tensor in tensors]
        self.block_count = -(-everyone.size // ELEMENTS)
        self._blocks = blocks_of(everyone.reshape(-1)) if self.block_count else []
        self._template = tensors[0]
        self._dtype = dtype
        self._reduction = reduction
        self._workers = workers

    def exponent(self, block: int) -> int | None:
        return 0

    def encode(self, block: int, exponent: int) -> Block:
        return self._blocks[block]

    def store(self, block: int, exponent: int, result: Block) -> None:
        self._blocks[block] = result

    def tensor(self) -> Tensor:
        if not self._template.size:
            return self._template.copy()
        octets = np.concatenate(self._blocks).astype("<i4").tobytes()
        size, count = 4 * self._words, self._template.size
        ranks = [
            np.frombuffer(octets, self._template.dtype, count, rank * size)
            for rank in range(self._workers)
        ]
        if self._dtype == "int32":
            stacked = np.stack(ranks)
            return stacked.max(axis=0) if self._reduction == "max" else stacked.min(axis=0)
        width = np.uint32 if self._dtype == "float32" else np.uint16
        columns = [each.view(width).tolist() for each in ranks]
        return bits_to_tensor(reduce_numbers(columns, self._dtype, self._reduction), self._dtype)


def encoding_of(
    tensors: Sequence[Tensor],
    *,
    dtype: str,
    reduction: str,
    workers: int,
    lanes: int,
    ranks: Sequence[int],
    partial_bits: int = 64,
) -> Encoding:
    """Return the encoding that the protocol prescribes for flat tensors and an operation.

    Args:
        tensors: Those of all ranks that the worker stands for.
        dtype: Type of their elements.
        reduction: The reduction to apply.
        workers: N, of all leaves in a tree.
        lanes: F.
        ranks: The worker's own ranks among all, in the order of their tensors.
        partial_bits: w of the partial sums of float32.
    """
    words = words_of(tensors[0]).size
    if dtype == "int32" and reduction == "sum":
        return IntegerEncoding(
            np.sum(tensors, axis=0, dtype=np.int32),
            every_block=(direct := fits_opening(words, lanes)),
            direct=direct,
            opcode=SUM,
        )
    if workers * words <= ELEMENTS * (lanes - 1) or not words:
        return DirectEncoding(
            tensors, dtype=dtype, reduction=reduction, workers=workers, ranks=ranks
        )
    if dtype == "int32":
        best = np.max(tensors, axis=0) if reduction == "max" else np.min(tensors, axis=0)
        return IntegerEncoding(
            best, every_block=True, direct=False, opcode=MAX if reduction == "max" else MIN
        )
    return NumberEncoding(
        tensors, dtype=dtype, reduction=reduction, workers=workers, partial_bits=partial_bits
    )

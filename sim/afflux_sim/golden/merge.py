"""The blocks of one round merged: integers as they come, numbers when all are in.

`docs/protocol.md` section 5.3 for the opcodes 0 to 3, section 8 for the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from afflux_sim.golden.frames import (
    BLOCK_BYTES,
    MAX,
    MIN,
    NUMBER_DTYPES,
    NUMBER_MAX,
    NUMBER_SUM,
    PARTIAL_DTYPES,
    SUM,
    Block,
)
from afflux_sim.golden.rounding import FORMATS
from afflux_sim.golden.sums import (
    Number,
    Special,
    add,
    bits_of_number,
    extreme,
    number_of_bits,
    number_of_partial,
    partial_of_number,
    unit_of_partial,
)

__all__ = [
    "Contribution",
    "block_of_elements",
    "combine",
    "elements_of_block",
    "extreme_block",
    "sum_blocks",
]


def combine(opcode: int, a: Block, b: Block) -> tuple[Block, int]:
    """Return `a` ∘ `b`, and how many elements of a SUM left the range of int32."""
    if opcode == SUM:
        exact = a.astype(np.int64) + b.astype(np.int64)
        wrapped = exact.astype(np.int32)
        return wrapped, int(np.count_nonzero(exact != wrapped))
    if opcode == MAX:
        return np.maximum(a, b), 0
    if opcode == MIN:
        return np.minimum(a, b), 0
    return np.minimum(a.view(np.uint32), b.view(np.uint32)).view(np.int32), 0


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one worker sent for a round of numbers: the header's dtype, and blocks by lane."""

    dtype: int
    blocks: Mapping[int, Block]


def elements_of_block(block: Block, dtype: int) -> list[int]:
    """Return the elements of a block: bits of numbers, or signed partial sums from their planes."""
    octets = block.astype("<i4").tobytes()
    if dtype not in PARTIAL_DTYPES:
        size = 4 if NUMBER_DTYPES[dtype] == "float32" else 2
        return np.frombuffer(octets, f"<u{size}").tolist()
    first, rest = _plane_bytes(dtype)
    lower, upper = octets[:BLOCK_BYTES], octets[BLOCK_BYTES:]
    return [
        int.from_bytes(
            lower[first * i : first * (i + 1)] + upper[rest * i : rest * (i + 1)],
            "little",
            signed=True,
        )
        for i in range(BLOCK_BYTES // first)
    ]


def block_of_elements(elements: Sequence[int], dtype: int) -> Block:
    """Return the block that has these elements; the reverse of `elements_of_block`."""
    if dtype not in PARTIAL_DTYPES:
        size = 4 if NUMBER_DTYPES[dtype] == "float32" else 2
        octets = np.array(elements, dtype=f"<u{size}").tobytes()
    else:
        first, rest = _plane_bytes(dtype)
        whole = [element.to_bytes(first + rest, "little", signed=True) for element in elements]
        octets = b"".join(x[:first] for x in whole) + b"".join(x[first:] for x in whole)
    return np.frombuffer(octets, "<i4").astype(np.int32)


def _plane_bytes(dtype: int) -> tuple[int, int]:
    """Return the bytes that a partial sum has in the lower plane and in the upper one."""
    name, width = PARTIAL_DTYPES[dtype]
    first = 4 if name == "float32" else 2
    return first, width // 8 - first


def sum_blocks(
    contributions: Sequence[Contribution],
    lane: int,
    *,
    workers: int,
    exponent: int,
    scale: int,
    to: int,
    window: int | None,
) -> Block:
    """Return the sum of a lane's blocks, rounded once, or as partial sums.

    Args:
        contributions: Those of all workers to the round.
        lane: The lane; at least one of the contributions has a block there.
        workers: N of the job. A worker that sends no block in the lane contributes +0.
        exponent: E, agreed in the round before.
        scale: k of NUMBER_SUM + k. Only the root scales.
        to: dtype of the block that is returned.
        window: Bits below 2**(E + 1 - bias) that the aggregator keeps. A block with a bit below
            them, or with an element of 2**(E + 1 - bias) or more, is not summed. Partial sums are
            of up to 64 elements, so they may be 64 times as large. None: sums of any width are
            kept.
    """
    present = [contribution for contribution in contributions if lane in contribution.blocks]
    blocks = [_numbers(each.blocks[lane], each.dtype, exponent) for each in present]
    if window is not None and any(
        _outside(number, exponent, to, window, guard=6 if each.dtype in PARTIAL_DTYPES else 0)
        for each, block in zip(present, blocks, strict=True)
        for number in block
    ):
        blocks = [[Special.NOT_SUMMED] * len(blocks[0])]
    absent: list[Number] = [Fraction(0)] if len(blocks) < workers else []
    totals = [add([*numbers, *absent]) for numbers in zip(*blocks, strict=True)]

    if to in PARTIAL_DTYPES:
        name, width = PARTIAL_DTYPES[to]
        integers = [partial_of_number(x, exponent, FORMATS[name], width) for x in totals]
        not_summed = -(2 ** (width - 1))
        if not_summed in integers:
            integers = [not_summed] * len(integers)
        return block_of_elements(integers, to)
    if Special.NOT_SUMMED in totals:
        return block_of_all_ones()
    number_format = FORMATS[NUMBER_DTYPES[to]]
    return block_of_elements([bits_of_number(x, number_format, scale) for x in totals], to)


def extreme_block(contributions: Sequence[Contribution], lane: int, opcode: int) -> Block:
    """Return the greatest or least numbers of a lane's blocks."""
    present = [c for c in contributions if lane in c.blocks]
    dtype = present[0].dtype
    columns = zip(*(elements_of_block(c.blocks[lane], dtype) for c in present), strict=True)
    of = FORMATS[NUMBER_DTYPES[dtype]]
    return block_of_elements(
        [extreme(column, of, greatest=opcode == NUMBER_MAX) for column in columns], dtype
    )


def block_of_all_ones() -> Block:
    """Return the block of a result that was not summed."""
    return np.full(64, -1, dtype=np.int32)


def reduce_lane(
    opcode: int,
    contributions: Sequence[Contribution],
    lane: int,
    *,
    workers: int,
    exponent: int,
    to: int,
    window: int | None,
) -> Block:
    """Return the block of a complete round of numbers, with its opcode."""
    if opcode < NUMBER_SUM:
        return extreme_block(contributions, lane, opcode)
    scale = 0 if to in PARTIAL_DTYPES else opcode - NUMBER_SUM
    return sum_blocks(
        contributions,
        lane,
        workers=workers,
        exponent=exponent,
        scale=scale,
        to=to,
        window=window,
    )


def _numbers(block: npt.NDArray[np.int32], dtype: int, exponent: int) -> list[Number]:
    elements = elements_of_block(block, dtype)
    if dtype in PARTIAL_DTYPES:
        name, width = PARTIAL_DTYPES[dtype]
        numbers = [number_of_partial(x, exponent, FORMATS[name], width) for x in elements]
        # The first element speaks for the block.
        return [numbers[0]] * len(numbers) if numbers[0] is Special.NOT_SUMMED else numbers
    return [number_of_bits(x, FORMATS[NUMBER_DTYPES[dtype]]) for x in elements]


def _outside(number: Number, exponent: int, to: int, window: int, *, guard: int) -> bool:
    """Return whether a slot that keeps `window` bits loses one of this contribution."""
    if isinstance(number, Special):
        return False
    name = PARTIAL_DTYPES[to][0] if to in PARTIAL_DTYPES else NUMBER_DTYPES[to]
    unit = unit_of_partial(exponent, FORMATS[name], window + 7)
    integer = number / unit
    return integer.denominator != 1 or abs(integer) >= 2 ** (window + guard)

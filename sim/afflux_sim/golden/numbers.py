"""The workers' number formats: `docs/protocol.md` section 8, as a reference for every codec.

`all_reduce` defines the bits that every implementation returns, without packets or rounds. The
functions above it are the steps that a worker needs to get there through packets.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from afflux_sim.golden.frames import ELEMENTS, MAX, MIN, SUM, Block
from afflux_sim.golden.rounding import FORMATS, round_to_bits

__all__ = [
    "EXACT_ELEMENTS",
    "EXACT_SCALE_BITS",
    "EXACT_WORDS",
    "IDENTITY",
    "NON_FINITE",
    "OPCODES",
    "all_reduce",
    "bits_to_tensor",
    "class_counts",
    "exact_integer",
    "exact_limbs",
    "exact_total",
    "finite_part",
    "float_from_key",
    "guard_bits",
    "is_exact_mode",
    "key_of_float",
    "largest_exponent",
    "quantise",
    "result_bits",
    "widen",
]

Floats = npt.NDArray[np.float32]
Tensor = npt.NDArray[np.generic]

OPCODES = {"sum": SUM, "avg": SUM, "max": MAX, "min": MIN}
IDENTITY = {SUM: 0, MAX: -(2**31), MIN: 2**31 - 1}

# The exponent that announces NaN or infinities in a block.
NON_FINITE = 255

# Classes of elements that are not finite, as counted in one word: 10 bits each.
NAN, PLUS_INFINITY, MINUS_INFINITY = 1, 1 << 10, 1 << 20

# Exact mode: the most elements, and the words of each.
EXACT_ELEMENTS = 73
EXACT_WORDS = 13

# X = x * 2**149 is an integer for each finite float32.
EXACT_SCALE_BITS = 149


def guard_bits(workers: int) -> int:
    """Return g = ceil(log2 N)."""
    return (workers - 1).bit_length()


def widen(tensor: Tensor, dtype: str) -> Floats:
    """Return the elements as float32, exactly; bfloat16 is given as its bits in uint16."""
    if dtype == "bfloat16":
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor.astype(np.float32)


def bits_to_tensor(bits: npt.ArrayLike, dtype: str) -> Tensor:
    """Return the tensor of dtype `dtype` whose elements have these bits."""
    if dtype == "float32":
        return np.asarray(bits, dtype=np.uint32).view(np.float32)
    if dtype == "float16":
        return np.asarray(bits, dtype=np.uint16).view(np.float16)
    return np.asarray(bits, dtype=np.uint16)


def finite_part(x: Floats) -> Floats:
    """Return `x` with 0 for its NaN and infinities."""
    return np.where(np.isfinite(x), x, np.float32(0))


def largest_exponent(x: Floats) -> int:
    """Return the exponent field of the largest finite magnitude, 1 if that is 0 or subnormal."""
    fields = finite_part(x).view(np.uint32) >> 23 & 0xFF
    return max(1, int(fields.max()))


def quantise(x: Floats, exponent: int, workers: int) -> npt.NDArray[np.int32]:
    """Return rint(x * 2**(30 - g - (E - 127))) for finite elements, 0 for the others."""
    # In double the scaling by a power of two is exact; np.rint rounds ties to even.
    shift = 30 - guard_bits(workers) - (exponent - 127)
    return np.rint(np.ldexp(finite_part(x).astype(np.float64), shift)).astype(np.int32)


def class_counts(x: Floats) -> npt.NDArray[np.int32]:
    """Return the class word of section 8.3 for each element, 0 if it is finite."""
    return (
        np.where(np.isnan(x), NAN, 0)
        + np.where(np.isposinf(x), PLUS_INFINITY, 0)
        + np.where(np.isneginf(x), MINUS_INFINITY, 0)
    ).astype(np.int32)


def exact_integer(x: float) -> int:
    """Return X = x * 2**149 of a finite float32."""
    numerator, denominator = float(x).as_integer_ratio()
    return numerator * 2**EXACT_SCALE_BITS // denominator


def result_bits(
    total: int, scale_bits: int, classes: int, *, dtype: str, reduction: str, workers: int
) -> int:
    """Return the bits of one element of the result, rounded once.

    Args:
        total: The sum of the finite elements, times 2**-scale_bits.
        scale_bits: One in `total` stands for 2**scale_bits.
        classes: Sum of the class words of all workers.
        dtype: Type of the result.
        reduction: "sum" or "avg".
        workers: N.
    """
    to = FORMATS[dtype]
    nans, plus, minus = classes & 1023, classes >> 10 & 1023, classes >> 20 & 1023
    if nans or (plus and minus):
        return to.nan
    if plus:
        return to.infinity
    if minus:
        return to.infinity | to.sign
    numerator = total << max(scale_bits, 0)
    denominator = 1 << max(-scale_bits, 0)
    if reduction == "avg":
        denominator *= workers
    return round_to_bits(numerator, denominator, to)


def key_of_float(x: Floats, reduction: str) -> npt.NDArray[np.int32]:
    """Return the order-preserving integers of section 8.5; that of NaN wins."""
    i = x.view(np.int32)
    key = np.where(i >= 0, i, i ^ 0x7FFFFFFF)
    return np.where(np.isnan(x), 0x7FFFFFFF if reduction == "max" else -(2**31), key).astype(
        np.int32
    )


def float_from_key(key: npt.NDArray[np.int32], dtype: str) -> Tensor:
    """Return the elements of dtype `dtype` that these integers stand for."""
    is_nan = (key == 0x7FFFFFFF) | (key == -(2**31))
    i = np.where(key >= 0, key, key ^ 0x7FFFFFFF).astype(np.int32)
    bits = np.where(is_nan, FORMATS["float32"].nan, i).astype(np.int32).view(np.uint32)
    if dtype == "float32":
        return bits.view(np.float32)
    if dtype == "bfloat16":
        return (bits >> 16).astype(np.uint16)
    return bits.view(np.float32).astype(np.float16)


def is_exact_mode(count: int, dtype: str, reduction: str) -> bool:
    """Return whether `count` elements are reduced in the exact mode of section 8.4."""
    return dtype != "int32" and reduction in ("sum", "avg") and count <= EXACT_ELEMENTS


def all_reduce(
    tensors: Sequence[Tensor], dtype: str, reduction: str, *, part: bool = False
) -> Tensor:
    """Return the result, to the bit, of an all-reduce over the tensors of all workers.

    Args:
        tensors: One for each worker, all of one shape. bfloat16 as uint16 with its bits.
        dtype: "int32", "float32", "float16" or "bfloat16".
        reduction: "sum", "avg" (not for int32), "max" or "min".
        part: Whether the tensors are parts of larger ones, from the start of a block on. Such a
            part is not in exact mode, however few its elements are.

    Raises:
        ValueError: If the protocol knows no such operation.
    """
    if dtype not in (*FORMATS, "int32") or reduction not in OPCODES:
        raise ValueError(f"no operation {reduction} of {dtype}")
    if dtype == "int32" and reduction == "avg":
        raise ValueError("int32 has no avg")
    shape = tensors[0].shape
    flat = [np.ascontiguousarray(tensor).reshape(-1) for tensor in tensors]
    return _reduce_flat(flat, dtype, reduction, part).reshape(shape)


def _reduce_flat(tensors: list[Tensor], dtype: str, reduction: str, part: bool) -> Tensor:
    count = tensors[0].size
    if count == 0:
        return tensors[0].copy()
    if dtype == "int32":
        integers = np.stack(tensors).astype(np.int64)
        if reduction == "sum":
            # Narrowing wraps modulo 2**32.
            return integers.sum(axis=0).astype(np.int32)
        return (integers.max(axis=0) if reduction == "max" else integers.min(axis=0)).astype(
            np.int32
        )
    floats = [widen(tensor, dtype) for tensor in tensors]
    if reduction in ("max", "min"):
        keys = np.stack([key_of_float(x, reduction) for x in floats])
        return float_from_key(keys.max(axis=0) if reduction == "max" else keys.min(axis=0), dtype)
    if is_exact_mode(count, dtype, reduction) and not part:
        return _sum_exactly(floats, dtype, reduction)
    return _sum_blocks(floats, dtype, reduction)


def _sum_exactly(floats: list[Floats], dtype: str, reduction: str) -> Tensor:
    bits = []
    for elements in zip(*floats, strict=True):
        column = np.array(elements, dtype=np.float32)
        total = sum(exact_integer(x) for x in finite_part(column))
        classes = int(class_counts(column).sum())
        bits.append(
            result_bits(
                total,
                -EXACT_SCALE_BITS,
                classes,
                dtype=dtype,
                reduction=reduction,
                workers=len(floats),
            )
        )
    return bits_to_tensor(bits, dtype)


def _sum_blocks(floats: list[Floats], dtype: str, reduction: str) -> Tensor:
    count = floats[0].size
    bits: list[int] = []
    for start in range(0, count, ELEMENTS):
        bits += _sum_block([x[start : start + ELEMENTS] for x in floats], dtype, reduction)
    return bits_to_tensor(bits, dtype)


def _sum_block(blocks: list[Floats], dtype: str, reduction: str) -> list[int]:
    """Sum one block; the last one without its padding, which changes nothing."""
    workers = len(blocks)
    # Workers whose finite elements are all zero name no exponent; theirs would be the least, 1.
    exponent = max(largest_exponent(x) for x in blocks)
    sums = np.array([quantise(x, exponent, workers) for x in blocks]).sum(axis=0, dtype=np.int64)
    if np.any(sums != sums.astype(np.int32)):
        raise AssertionError("a sum left the range of int32")
    classes = np.array([class_counts(x) for x in blocks]).sum(axis=0, dtype=np.int64)
    scale_bits = (exponent - 127) - 30 + guard_bits(workers)
    return [
        result_bits(s, scale_bits, c, dtype=dtype, reduction=reduction, workers=workers)
        for s, c in zip(sums.tolist(), classes.tolist(), strict=True)
    ]


def exact_limbs(x: float) -> Block:
    """Return the 13 words of section 8.4: 12 limbs, least first, and the element's classes."""
    words = np.zeros(EXACT_WORDS, dtype=np.int32)
    if np.isfinite(x):
        integer = exact_integer(x)
        sign = -1 if integer < 0 else 1
        for k in range(12):
            words[k] = sign * (abs(integer) >> 25 * k & (2**25 - 1))
    words[12] = class_counts(np.array([x], dtype=np.float32))[0]
    return words


def exact_total(words: Block) -> int:
    """Return the integer of 12 summed limbs: the sum of the elements times 2**149."""
    return sum(int(limb) << 25 * k for k, limb in enumerate(words[:12]))

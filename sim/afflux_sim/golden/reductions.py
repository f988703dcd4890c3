"""The results of an all-reduce, to the bit: `docs/protocol.md`, section 8, without packets.

Every implementation returns these bits, whatever carries the tensors.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from afflux_sim.golden.rounding import FORMATS
from afflux_sim.golden.sums import add, bits_of_number, extreme, number_of_bits

__all__ = [
    "Tensor",
    "all_reduce",
    "all_reduce_by_host",
    "bits_to_tensor",
    "divide",
    "reduce_numbers",
    "scale_of",
    "sum_numbers",
]

Tensor = npt.NDArray[np.generic]


def all_reduce(tensors: Sequence[Tensor], dtype: str, reduction: str) -> Tensor:
    """Return the result of an all-reduce over the tensors of all ranks.

    Args:
        tensors: One for each rank, all of one shape. bfloat16 as uint16 with its bits.
        dtype: "int32", "float32", "float16" or "bfloat16".
        reduction: "sum", "avg" (not for int32), "max" or "min".

    Raises:
        ValueError: If the protocol knows no such operation.
    """
    if dtype not in (*FORMATS, "int32") or reduction not in ("sum", "avg", "max", "min"):
        raise ValueError(f"no operation {reduction} of {dtype}")
    if dtype != "int32":
        columns = [_bits(tensor, dtype) for tensor in tensors]
        return bits_to_tensor(reduce_numbers(columns, dtype, reduction), dtype).reshape(
            tensors[0].shape
        )
    if reduction == "avg":
        raise ValueError("int32 has no avg")
    integers = np.stack(tensors).astype(np.int64)
    if reduction == "sum":
        # Narrowing wraps modulo 2**32.
        return integers.sum(axis=0).astype(np.int32)
    best = integers.max(axis=0) if reduction == "max" else integers.min(axis=0)
    return best.astype(np.int32)


def all_reduce_by_host(hosts: Sequence[Sequence[Tensor]], dtype: str, reduction: str) -> Tensor:
    """Return the result where hosts round, with the option rounding="host".

    Each host sums its ranks' tensors, and rounds; the sum of that is rounded once more.

    Args:
        hosts: The tensors of each host's ranks, for the rest as for `all_reduce`.
        dtype: As there.
        reduction: As there.

    Raises:
        ValueError: As there.
    """
    tensors = [tensor for each in hosts for tensor in each]
    exact = dtype == "int32" or reduction in ("max", "min") or len(tensors) == len(hosts)
    if exact:
        return all_reduce(tensors, dtype, reduction)
    of, scale = FORMATS[dtype], scale_of(reduction, len(tensors))
    rounded = []
    for each in hosts:
        columns = [_bits(tensor, dtype) for tensor in each]
        totals = [add([number_of_bits(x, of) for x in xs]) for xs in zip(*columns, strict=True)]
        rounded.append([bits_of_number(total, of, scale) for total in totals])
    bits = divide(sum_numbers(rounded, dtype, "sum"), dtype, reduction, len(tensors))
    return bits_to_tensor(bits, dtype).reshape(tensors[0].shape)


def reduce_numbers(columns: Sequence[Sequence[int]], dtype: str, reduction: str) -> list[int]:
    """Return the bits of the results, of the bits of all ranks: one sequence for each rank."""
    of = FORMATS[dtype]
    if reduction in ("max", "min"):
        return [extreme(x, of, greatest=reduction == "max") for x in zip(*columns, strict=True)]
    return divide(sum_numbers(columns, dtype, reduction), dtype, reduction, len(columns))


def sum_numbers(columns: Sequence[Sequence[int]], dtype: str, reduction: str) -> list[int]:
    """Return the bits of the scaled sums, as an aggregator would send them."""
    of, scale = FORMATS[dtype], scale_of(reduction, len(columns))
    totals = [add([number_of_bits(x, of) for x in each]) for each in zip(*columns, strict=True)]
    return [bits_of_number(total, of, scale) for total in totals]


def scale_of(reduction: str, workers: int) -> int:
    """Return k, by which a sum is scaled before it is rounded."""
    return (workers - 1).bit_length() if reduction == "avg" else 0


def divide(bits: Sequence[int], dtype: str, reduction: str, workers: int) -> list[int]:
    """Return an average of its scaled sums: divided by N / 2**k, rounded in the dtype."""
    divisor = Fraction(workers, 1 << scale_of(reduction, workers))
    if reduction != "avg" or divisor == 1:
        return list(bits)
    numbers = [number_of_bits(x, FORMATS[dtype]) for x in bits]
    quotients = [x / divisor if isinstance(x, Fraction) else x for x in numbers]
    return [bits_of_number(x, FORMATS[dtype]) for x in quotients]


def bits_to_tensor(bits: npt.ArrayLike, dtype: str) -> Tensor:
    """Return the tensor of dtype `dtype` whose elements have these bits."""
    if dtype == "float32":
        return np.asarray(bits, dtype=np.uint32).view(np.float32)
    if dtype == "float16":
        return np.asarray(bits, dtype=np.uint16).view(np.float16)
    return np.asarray(bits, dtype=np.uint16)


def _bits(tensor: Tensor, dtype: str) -> list[int]:
    width = np.uint32 if dtype == "float32" else np.uint16
    return np.ascontiguousarray(tensor).reshape(-1).view(width).tolist()

"""Collectives: their effect on the elements of all ranks, and the comparison of calls."""

import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from afflux_drivers import _native
from afflux_hdl.contract import wire

__all__ = ["Description", "Reduction", "storage_dtype"]


class Reduction(Enum):
    """A reduction; its value is its word in the fingerprint.

    Attributes:
        number: Of the reduction in the C++.
    """

    SUM = "sum"
    AVG = "avg"
    MAX = "max"
    MIN = "min"

    def __init__(self, word: str) -> None:
        self.number = int(_native.REDUCTIONS[word])

    @property
    def opcode(self) -> wire.Opcode:
        """The aggregator's part: it adds for averages too."""
        return _OPCODES[self]


_OPCODES = {
    Reduction.SUM: wire.Opcode.SUM,
    Reduction.AVG: wire.Opcode.SUM,
    Reduction.MAX: wire.Opcode.MAX,
    Reduction.MIN: wire.Opcode.MIN,
}


@dataclass(frozen=True)
class Description:
    """One operation as a rank asked for it.

    Attributes:
        number: 0 for the first operation of the job run.
        reduction: The operation.
        dtype: Type of the elements.
        shape: Sizes of the tensor; () for a scalar.
    """

    number: int
    reduction: Reduction
    dtype: wire.Dtype
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        """The text of which the fingerprint is taken, such as 17:sum:float32:3x4."""
        return f"{self.number}{self.rest}"

    @property
    def rest(self) -> str:
        """The text after the number."""
        sizes = "x".join(str(size) for size in self.shape)
        return f":{self.reduction.value}:{self.dtype.name.lower()}:{sizes}"

    @property
    def fingerprint(self) -> int:
        """CRC-32 of the text."""
        return zlib.crc32(self.text.encode("ascii"))


_STORAGE: dict[wire.Dtype, np.dtype[Any]] = {
    wire.Dtype.INT32: np.dtype(np.int32),
    wire.Dtype.FLOAT32: np.dtype(np.float32),
    wire.Dtype.FLOAT16: np.dtype(np.float16),
    # numpy has no such type: the 16 bits.
    wire.Dtype.BFLOAT16: np.dtype(np.uint16),
}


def storage_dtype(dtype: wire.Dtype) -> np.dtype[Any]:
    """Return the numpy dtype that holds elements of `dtype`."""
    return _STORAGE[dtype]

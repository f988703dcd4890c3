"""What an operation was called with, and how the ranks compare it (section 9 of the protocol)."""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afflux_drivers.reduction import Reduction
from afflux_hdl import wire

__all__ = ["Description"]

_IDENTITY = {
    wire.Opcode.SUM: 0,
    wire.Opcode.MAX: -(1 << 31),
    wire.Opcode.MIN: (1 << 31) - 1,
}


@dataclass(frozen=True)
class Description:
    """One operation as a rank asked for it.

    Attributes:
        number: 0 for the first operation of the job run.
        reduction: What is done.
        dtype: Type of the elements.
        shape: Sizes of the tensor; () for a scalar.
    """

    number: int
    reduction: Reduction
    dtype: wire.Dtype
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        """What the fingerprint is taken of, such as 17:sum:float32:3x4."""
        sizes = "x".join(str(size) for size in self.shape)
        return f"{self.number}:{self.reduction.value}:{self.dtype.name.lower()}:{sizes}"

    @property
    def fingerprint(self) -> int:
        """CRC-32 of the text."""
        return zlib.crc32(self.text.encode("ascii"))

    def fill_block(self, rank: int, block: NDArray[np.int32]) -> None:
        """Writes this rank's fingerprint block, (64,) int32."""
        block.fill(_IDENTITY[self.reduction.opcode])
        block[rank] = np.uint32(self.fingerprint).astype(np.int32)

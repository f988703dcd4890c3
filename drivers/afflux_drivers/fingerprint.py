"""What an operation was called with, and how the ranks compare it (section 9 of the protocol)."""

import zlib
from dataclasses import dataclass

from afflux_drivers.reduction import Reduction
from afflux_hdl.contract import wire

__all__ = ["Description"]


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

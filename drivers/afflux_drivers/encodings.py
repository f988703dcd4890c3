"""What a tensor's elements become on the wire: integers, fixed point or order keys."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import fixed_point, floats, order_keys
from afflux_drivers.grid import Grid
from afflux_drivers.reduction import Reduction
from afflux_hdl import wire

__all__ = ["Encoding", "encoding_of"]


class Encoding(Protocol):
    """One operation's tensor, padded to a grid's shape, and its way onto the wire and back.

    Attributes:
        dtype: Type of the result.
        floating: Whether agreed words carry exponents, and 255 asks for class counts.
        blocks: (rows, slots, lanes, 64), what `encode` takes: finite.
        original: The same with NaN and infinities.
        present: (rows, slots, lanes) bool.
        exponents: (rows, slots, lanes) uint32, 0 to 255, of the present blocks.
        finite_exponents: The same for `blocks`; 0 for a block without finite non-zero elements.
        result: (rows, slots, lanes, 64), what `decode` fills; zero where it never did.
    """

    dtype: wire.Dtype
    floating: bool
    blocks: NDArray[Any]
    original: NDArray[Any]
    present: NDArray[np.bool_]
    exponents: NDArray[np.uint32]
    finite_exponents: NDArray[np.uint32]
    result: NDArray[Any]

    def encode(self, blocks: NDArray[Any], low: bytes, out: NDArray[np.int32]) -> None:
        """Fills `out` with (k, 64) int32 of some of `blocks`, given the agreed words' low bytes."""

    def decode(self, sums: NDArray[np.int32], low: bytes, out: NDArray[Any]) -> None:
        """Fills `out`, some of `result`, from (k, 64) sums."""

    def finish(self, count: int) -> NDArray[Any]:
        """The result's first `count` elements, 1-D, in the dtype's storage."""


def _padded(elements: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """The elements in the grid's shape, zeros after them; a view if there is nothing to add."""
    rows, slots, lanes, size = grid.shape
    total = rows * slots * lanes * size
    if total == len(elements):
        return elements.reshape(grid.shape)
    padded = np.zeros(total, elements.dtype)
    padded[: len(elements)] = elements
    return padded.reshape(grid.shape)


class _Integers:
    """int32 as it is."""

    floating = False

    def __init__(self, elements: NDArray[np.int32], grid: Grid, dtype: wire.Dtype) -> None:
        self.dtype = dtype
        self.blocks: NDArray[Any] = _padded(elements, grid)
        self.original: NDArray[Any] = self.blocks
        self.present: NDArray[np.bool_] = np.any(self.blocks, axis=-1)
        self.exponents: NDArray[np.uint32] = np.zeros(self.present.shape, np.uint32)
        self.finite_exponents: NDArray[np.uint32] = self.exponents
        self.result: NDArray[Any] = np.zeros(grid.shape, np.int32)

    def encode(self, blocks: NDArray[Any], low: bytes, out: NDArray[np.int32]) -> None:
        del low
        np.copyto(out, blocks)

    def decode(self, sums: NDArray[np.int32], low: bytes, out: NDArray[Any]) -> None:
        del low
        np.copyto(out, sums)

    def finish(self, count: int) -> NDArray[Any]:
        return self.result.reshape(-1)[:count]


class _Keys(_Integers):
    """Order keys, or int32 of MAX and MIN: every block is present, as zero is not the identity."""

    def __init__(self, keys: NDArray[np.int32], grid: Grid, dtype: wire.Dtype) -> None:
        super().__init__(keys, grid, dtype)
        self.present = (np.arange(self.present.size) < grid.blocks).reshape(self.present.shape)

    def finish(self, count: int) -> NDArray[Any]:
        keys = super().finish(count)
        return keys if self.dtype is wire.Dtype.INT32 else order_keys.from_keys(keys, self.dtype)


class _FixedPoint:
    """Block floating point."""

    floating = True

    def __init__(
        self, elements: NDArray[Any], grid: Grid, dtype: wire.Dtype, workers: int, average: bool
    ) -> None:
        self.dtype = dtype
        self._numbers = fixed_point.FixedPoint(workers, dtype, average)
        self.encode = self._numbers.quantise
        self.decode = self._numbers.values
        self.original: NDArray[Any] = _padded(floats.widen(elements, dtype), grid)
        magnitudes = fixed_point.block_magnitudes(self.original)
        self.present: NDArray[np.bool_] = magnitudes != 0
        self.exponents: NDArray[np.uint32] = np.maximum(magnitudes >> 23, 1).astype(np.uint32)
        self.blocks: NDArray[Any] = self.original
        self.finite_exponents: NDArray[np.uint32] = self.exponents
        if (self.exponents == wire.NON_FINITE).any():
            self.blocks = np.where(np.isfinite(self.original), self.original, np.float32(0))
            magnitudes = fixed_point.block_magnitudes(self.blocks)
            exponents = np.where(magnitudes != 0, np.maximum(magnitudes >> 23, 1), 0)
            self.finite_exponents = exponents.astype(np.uint32)
        self.result: NDArray[Any] = np.zeros(grid.shape, floats.storage_dtype(dtype))

    def finish(self, count: int) -> NDArray[Any]:
        return self.result.reshape(-1)[:count]


def encoding_of(
    elements: NDArray[Any], grid: Grid, dtype: wire.Dtype, reduction: Reduction, workers: int
) -> Encoding:
    """The encoding that sections 8.1, 8.2 and 8.5 give these elements, 1-D in storage dtype."""
    if reduction in (Reduction.MAX, Reduction.MIN):
        if dtype is wire.Dtype.INT32:
            return _Keys(elements, grid, dtype)
        keys = order_keys.to_keys(floats.widen(elements, dtype), reduction)
        return _Keys(keys, grid, dtype)
    if dtype is wire.Dtype.INT32:
        return _Integers(elements, grid, dtype)
    return _FixedPoint(elements, grid, dtype, workers, reduction is Reduction.AVG)

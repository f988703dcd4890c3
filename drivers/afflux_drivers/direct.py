"""Operations of one round trip: the opening round carries all (section 8.4 of the protocol)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import exact, floats, order_keys
from afflux_drivers.errors import AggregatorMisbehaved
from afflux_drivers.reduction import Reduction
from afflux_hdl import wire

__all__ = ["Direct", "is_direct"]


def _is_exact(dtype: wire.Dtype, reduction: Reduction) -> bool:
    return dtype is not wire.Dtype.INT32 and reduction in (Reduction.SUM, Reduction.AVG)


def is_direct(count: int, lanes: int, dtype: wire.Dtype, reduction: Reduction) -> bool:
    """Whether a tensor of `count` elements is reduced in one round trip."""
    words = count * (wire.EXACT_WORDS if _is_exact(dtype, reduction) else 1)
    return words <= (lanes - 1) * wire.BLOCK_ELEMENTS


class Direct:
    """A tensor that fits the opening round.

    Args:
        elements: 1-D, in storage dtype.
        dtype: Their type.
        reduction: What is done.
        workers: N.

    Attributes:
        blocks: (k, 64) int32 for lanes 1 to k.
        present: Bitmap of these lanes.
    """

    def __init__(
        self, elements: NDArray[Any], dtype: wire.Dtype, reduction: Reduction, workers: int
    ) -> None:
        self._count, self._dtype = len(elements), dtype
        self._reduction, self._workers = reduction, workers
        self._exact = _is_exact(dtype, reduction)
        if self._exact:
            words = exact.encode(floats.widen(elements, dtype)).reshape(-1)
        elif dtype is wire.Dtype.INT32:
            words = elements
        else:
            words = order_keys.to_keys(floats.widen(elements, dtype), reduction)
        size = -(-len(words) // wire.BLOCK_ELEMENTS)
        self.blocks: NDArray[np.int32] = np.zeros((size, wire.BLOCK_ELEMENTS), np.int32)
        self.blocks.reshape(-1)[: len(words)] = words
        self.present = ((1 << size) - 1) << 1
        self._result: NDArray[Any] = np.empty(self._count, floats.storage_dtype(dtype))

    def take(self, blocks: NDArray[np.int32]) -> None:
        """Takes the sums, or extremes, of the blocks.

        Raises:
            AggregatorMisbehaved: If there are not as many blocks as this worker sent.
        """
        if blocks.shape != self.blocks.shape:
            raise AggregatorMisbehaved(
                f"the result has {len(blocks)} blocks for the {len(self.blocks)} that were sent"
            )
        words = blocks.reshape(-1)
        if self._exact:
            limbs = words[: self._count * wire.EXACT_WORDS].reshape(-1, wire.EXACT_WORDS)
            average = self._reduction is Reduction.AVG
            exact.decode(limbs, self._workers, average, self._dtype, self._result)
        elif self._dtype is wire.Dtype.INT32:
            self._result[:] = words[: self._count]
        else:
            self._result = order_keys.from_keys(words[: self._count], self._dtype)

    def finish(self) -> NDArray[Any]:
        """The result, 1-D, in storage dtype."""
        return self._result

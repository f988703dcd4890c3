"""How numpy holds the element types."""

from typing import Any

import numpy as np

from afflux_hdl.contract import wire

__all__ = ["storage_dtype"]

_STORAGE: dict[wire.Dtype, np.dtype[Any]] = {
    wire.Dtype.INT32: np.dtype(np.int32),
    wire.Dtype.FLOAT32: np.dtype(np.float32),
    wire.Dtype.FLOAT16: np.dtype(np.float16),
    # numpy has no such type: the 16 bits.
    wire.Dtype.BFLOAT16: np.dtype(np.uint16),
}


def storage_dtype(dtype: wire.Dtype) -> np.dtype[Any]:
    """The numpy dtype that holds elements of `dtype`."""
    return _STORAGE[dtype]

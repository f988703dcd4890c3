"""Tensors to reduce: every dtype in its storage, plain and awkward."""

import numpy as np

from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire

FLOATS = (wire.Dtype.FLOAT32, wire.Dtype.FLOAT16, wire.Dtype.BFLOAT16)
DTYPES = (wire.Dtype.INT32, *FLOATS)
OPERATIONS = [
    (dtype, reduction)
    for dtype in DTYPES
    for reduction in Reduction
    if not (dtype is wire.Dtype.INT32 and reduction is Reduction.AVG)
]

# Finite: zeros of both signs, least and greatest denormals and normals. Others: infinities, and NaN
# with payloads.
_FINITE_BITS = {
    wire.Dtype.FLOAT32: "0 80000000 1 80000001 7FFFFF 807FFFFF 800000 80800000 7F7FFFFF FF7FFFFF "
    "3F800000 BF800001",
    wire.Dtype.FLOAT16: "0 8000 1 8001 3FF 83FF 400 8400 7BFF FBFF 3C00",
    wire.Dtype.BFLOAT16: "0 8000 1 8001 7F 807F 80 8080 7F7F FF7F 3F80",
    wire.Dtype.INT32: "0 1 FFFFFFFF 7FFFFFFF 80000000 80000001",
}
_OTHER_BITS = {
    wire.Dtype.FLOAT32: "7F800000 FF800000 7FC00000 FFC00001 7F800001 FFFFFFFF 7FFFFFFF",
    wire.Dtype.FLOAT16: "7C00 FC00 7E00 FE01 7C01 FFFF",
    wire.Dtype.BFLOAT16: "7F80 FF80 7FC0 FFC1 7F81 FFFF",
    wire.Dtype.INT32: "",
}


def name(dtype: wire.Dtype) -> str:
    return dtype.name.lower()


def as_dtype(values: np.ndarray, dtype: wire.Dtype) -> np.ndarray:
    """Doubles in the storage of a dtype, rounded anyhow: only inputs need them."""
    if dtype is wire.Dtype.INT32:
        return np.clip(values * 1e6, -(2**31), 2**31 - 1).astype(np.int32)
    if dtype is wire.Dtype.FLOAT16:
        return values.astype(np.float16)
    single = values.astype(np.float32)
    if dtype is wire.Dtype.BFLOAT16:
        return (single.view(np.uint32) >> 16).astype(np.uint16)
    return single


def from_bits(bits: list[int], dtype: wire.Dtype) -> np.ndarray:
    if dtype is wire.Dtype.INT32:
        return np.array(bits, np.uint32).view(np.int32)
    if dtype is wire.Dtype.FLOAT32:
        return np.array(bits, np.uint32).view(np.float32)
    words = np.array(bits, np.uint16)
    return words.view(np.float16) if dtype is wire.Dtype.FLOAT16 else words


def bits_of(tensor: np.ndarray) -> np.ndarray:
    """Return the bits, which tell -0 from 0 and one NaN from another."""
    return tensor.view(f"u{tensor.dtype.itemsize}")


def gaussian(
    generator: np.random.Generator, count: int, dtype: wire.Dtype, density: float = 1.0
) -> np.ndarray:
    """Gaussian elements of varied block magnitudes; a share of the blocks is zero."""
    blocks = -(-count // 64)
    values = generator.standard_normal((blocks, 64))
    values *= np.exp2(generator.integers(-8, 5, (blocks, 1)))
    # Not by a product: half the zeros would be -0, which is a number.
    values = np.where(generator.random((blocks, 1)) < density, values, 0.0)
    return as_dtype(values.reshape(-1)[:count], dtype)


def awkward(
    generator: np.random.Generator,
    count: int,
    dtype: wire.Dtype,
    non_finite: bool,
    density: float = 0.6,
) -> np.ndarray:
    """Random bits and limits, in blocks of their own kind: some all zero, some all denormal."""
    finite, others = (
        from_bits([int(digits, 16) for digits in bits[dtype].split()], dtype)
        for bits in (_FINITE_BITS, _OTHER_BITS)
    )
    pool = np.concatenate([finite, others]) if non_finite and len(others) else finite
    tensor = gaussian(generator, count, dtype, density)
    for start in range(0, count, 64):
        block = tensor[start : start + 64]
        kind = generator.integers(5)
        if kind == 0:
            block[:] = generator.choice(pool, len(block))
        elif kind == 1:
            place = generator.integers(len(block))
            block[place] = generator.choice(pool)
        elif kind == 2:
            block[:] = generator.choice(finite[:2], len(block))
    return tensor

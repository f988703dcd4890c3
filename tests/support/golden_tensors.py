"""Tensors that are hard to sum, for each dtype."""

import numpy as np
import numpy.typing as npt

from afflux_sim.golden.reductions import Tensor

DTYPES = ("int32", "float32", "float16", "bfloat16")
KINDS = ("dense", "sparse", "zeros", "special", "huge", "tiny", "mixed")

BITS: dict[str, npt.DTypeLike] = {
    "int32": np.uint32,
    "float32": np.uint32,
    "float16": np.uint16,
    "bfloat16": np.uint16,
}


def reductions(dtype: str) -> tuple[str, ...]:
    return ("sum", "max", "min") if dtype == "int32" else ("sum", "avg", "max", "min")


def bits_of(tensor: Tensor, dtype: str) -> npt.NDArray[np.unsignedinteger]:
    """Return the tensor's bits, so that NaN equals itself and −0 differs from +0."""
    return np.ascontiguousarray(tensor).view(BITS[dtype])


def narrow(x: npt.NDArray[np.float32], dtype: str) -> Tensor:
    """Return some tensor of the dtype near `x`; bfloat16 is cut off, not rounded."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16)
    if dtype == "bfloat16":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x


def draw(rng: np.random.Generator, kind: str, dtype: str, count: int) -> Tensor:
    """Return a flat tensor of one of the KINDS."""
    if dtype == "int32":
        return draw_integers(rng, kind, count)
    x: npt.NDArray[np.floating] = rng.standard_normal(count)
    largest = 60000.0 if dtype == "float16" else 3e38
    smallest = 2.0**-24 if dtype == "float16" else 2.0**-133
    if kind == "sparse":
        # Not by a product: half the zeros would be -0, which is a number.
        x = np.where(np.repeat(rng.random(count // 64 + 1) < 0.15, 64)[:count], x, 0.0)
    elif kind == "zeros":
        x = np.where(rng.random(count) < 0.5, 0.0, -0.0)
    elif kind == "special":
        chosen = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], size=count)
        x = np.where(rng.random(count) < 0.05, chosen, x)
        x[64:128] = 0.0
        x[128:192] = np.inf
    elif kind == "huge":
        x = np.clip(x, -1, 1) * largest
    elif kind == "tiny":
        x = rng.integers(-4, 5, count) * smallest
    elif kind == "mixed":
        x = np.clip(np.exp(8 * x) * np.sign(x), -largest, largest)
    with np.errstate(under="ignore"):
        return narrow(x.astype(np.float32), dtype)


def draw_integers(rng: np.random.Generator, kind: str, count: int) -> Tensor:
    x = rng.integers(-(2**31), 2**31, count)
    if kind in ("sparse", "special"):
        x *= np.repeat(rng.random(count // 64 + 1) < 0.15, 64)[:count]
    elif kind == "zeros":
        x *= 0
    elif kind in ("tiny", "mixed"):
        x >>= 24
    return x.astype(np.int32)

"""Numbers whose sums are known: elements that ranks give, and the exact result, rounded once.

An element is an integer, in units of a power of two that its type determines. The integers are
those of a pool; where in it a contribution begins depends on trial, call and rank, so that one that
is missing, doubled or of another call changes nearly every element of a sum. Every sum of up to
eight contributions fits into an int64, so it is exact here, whatever made it elsewhere.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["FORMS", "MOST_ELEMENTS", "Form", "difference", "total", "units"]

Units = npt.NDArray[np.int64]

MOST_ELEMENTS = 1 << 18
_POOL = 1 << 20
_RUN = 256
"""Elements of a run; a fifth of the runs are zeros, which packets leave out."""


@dataclass(frozen=True)
class Form:
    """What the elements of a type are.

    Attributes:
        dtype: The type.
        digits: Bits of an element that count: as many as the type has.
        spread: The greatest power of two by which an element is larger than the least.
        unit: The power of two that an integer 1 stands for.
    """

    dtype: torch.dtype
    digits: int
    spread: int
    unit: int

    def tensor(self, whole: Units) -> torch.Tensor:
        """Return these integers of units, each rounded once: to nearest, ties to even."""
        if not self.dtype.is_floating_point:
            return torch.from_numpy(whole.copy()).to(self.dtype)
        scaled = np.ldexp(whole.astype(np.float64), self.unit)
        # From float64, which has them exactly, numpy rounds once. torch has bfloat16, by way of
        # float32; these have the sums of so few digits exactly, too.
        if self.dtype == torch.float16:
            return torch.from_numpy(scaled.astype(np.float16))
        if self.dtype == torch.float64:
            return torch.from_numpy(scaled)
        return torch.from_numpy(scaled.astype(np.float32)).to(self.dtype)


FORMS = {
    "float32": Form(torch.float32, 24, 12, -18),
    "float16": Form(torch.float16, 11, 5, -9),
    "bfloat16": Form(torch.bfloat16, 8, 12, -10),
    "float64": Form(torch.float64, 40, 8, -20),
    "int32": Form(torch.int32, 27, 0, 0),
    "int64": Form(torch.int64, 52, 0, 0),
}


def _pool(form: Form) -> Units:
    choose = np.random.default_rng(zlib.crc32(str(form.dtype).encode()))
    size = _POOL + MOST_ELEMENTS
    found = choose.integers(-(1 << form.digits) + 1, 1 << form.digits, size)
    found <<= choose.integers(0, form.spread + 1, size)
    empty = choose.random(size // _RUN) < 0.2
    found[: len(empty) * _RUN].reshape(-1, _RUN)[empty] = 0
    found.setflags(write=False)
    return found


_POOLS = {name: _pool(form) for name, form in FORMS.items()}
"""Made once, in the process from which ranks are forked."""


def units(dtype: str, count: int, *key: object) -> Units:
    """Return a contribution of so many elements, in units; read only."""
    start = zlib.crc32(repr(key).encode()) % _POOL
    return _POOLS[dtype][start : start + count]


def total(op: str, brought: Sequence[Units]) -> Units:
    """Return the exact result of a reduction: sum, max or min."""
    found = brought[0].copy()
    combine: Any = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op]
    for each in brought[1:]:
        combine(found, each, out=found)
    return found


def _bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    wide = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    found: npt.NDArray[Any] = tensor.reshape(-1).view(wide[tensor.element_size()]).numpy()
    return found


def difference(
    form: Form, found: torch.Tensor, exact: Units, brought: Sequence[Units] = (), op: str = "sum"
) -> str:
    """Compare a result with the exact one, bit by bit; return what differs, or an empty text.

    Args:
        form: Of the elements.
        found: The result.
        exact: What it should be, in units.
        brought: The ranks' contributions, to say which of them is missing, or counts twice.
        op: The reduction.
    """
    expected = form.tensor(exact)
    if found.dtype != expected.dtype or found.numel() != expected.numel():
        return f"it is {found.numel()} {found.dtype}, not {expected.numel()} {expected.dtype}"
    wrong = np.flatnonzero(_bits(found) != _bits(expected))
    if not len(wrong):
        return ""
    first = int(wrong[0])
    flat, right = found.reshape(-1), expected.reshape(-1)
    told = (
        f"{len(wrong)} of {found.numel()} elements are wrong, the first is [{first}]: "
        f"{flat[first].item()!r}, not {right[first].item()!r}"
    )
    at = flat[torch.from_numpy(wrong)]
    for rank, own in enumerate(brought if op == "sum" else ()):
        for word, other in (("is missing", exact - own), ("counts twice", exact + own)):
            if torch.equal(at, form.tensor(other[wrong])):
                told += f"; rank {rank}'s contribution {word} there"
    for rank, own in enumerate(brought):
        if torch.equal(at, form.tensor(own[wrong])):
            told += f"; it is rank {rank}'s own contribution there"
    return told

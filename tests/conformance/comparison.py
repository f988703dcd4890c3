"""Compares what a script returned on two backends."""

import math
from typing import Any

import torch

__all__ = ["difference"]


def difference(expected: Any, found: Any, bound: float, where: str = "value") -> str:
    """Say where and how two values differ; nothing if they do not.

    Args:
        expected: Gloo's.
        found: The other backend's.
        bound: Greatest difference of floats, relative to the greatest magnitude in their tensor.
        where: Names the values in what is returned.
    """
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        return _between_tensors(expected, found, bound, where)
    if isinstance(expected, float) and isinstance(found, float):
        same = math.isclose(expected, found, rel_tol=bound, abs_tol=bound) or (
            math.isnan(expected) and math.isnan(found)
        )
        return "" if same else f"{where}: {found!r} instead of {expected!r}"
    if type(expected) is not type(found):
        return f"{where}: {type(found).__name__} instead of {type(expected).__name__}"
    if isinstance(expected, dict):
        if expected.keys() != found.keys():
            return f"{where}: keys {sorted(found)} instead of {sorted(expected)}"
        pairs = [(f"{where}[{key!r}]", expected[key], found[key]) for key in expected]
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(found):
            return f"{where}: {len(found)} items instead of {len(expected)}"
        pairs = [
            (f"{where}[{index}]", *pair)
            for index, pair in enumerate(zip(expected, found, strict=True))
        ]
    else:
        return "" if expected == found else f"{where}: {found!r} instead of {expected!r}"
    return next((text for name, a, b in pairs if (text := difference(a, b, bound, name))), "")


def _between_tensors(expected: torch.Tensor, found: torch.Tensor, bound: float, where: str) -> str:
    kinds = [(each.dtype, tuple(each.shape), each.layout) for each in (expected, found)]
    if kinds[0] != kinds[1]:
        return f"{where}: {kinds[1]} instead of {kinds[0]}"
    if expected.layout is not torch.strided:
        expected, found = expected.to_dense(), found.to_dense()
    if expected.dtype.is_complex:
        expected, found = (torch.view_as_real(each.resolve_conj()) for each in (expected, found))
    if not expected.dtype.is_floating_point:
        wrong = expected != found
        return "" if not wrong.any() else f"{where}: {int(wrong.sum())} elements differ"
    # Float8 has no arithmetic of its own.
    a, b = expected.detach().double(), found.detach().double()
    infinite = [torch.where(each.isinf(), each.sign(), 0) for each in (a, b)]
    if torch.equal(a.isnan(), b.isnan()) and torch.equal(*infinite):
        finite = a.isfinite()
        a, b = a[finite], b[finite]
        if not a.numel():
            return ""
        worst = float((a - b).abs().max())
        if worst <= bound * float(a.abs().max()):
            return ""
        return f"{where}: differs by {worst:.2g}, of magnitudes up to {float(a.abs().max()):.2g}"
    return f"{where}: not a number, or infinite, at other places"

"""The description of a collective call, in words: for messages, and for ranks to compare."""

import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from afflux.group.call.tensors import dtype_name

__all__ = [
    "Call",
    "HandedCall",
    "KnownCall",
    "canonical_name",
    "describe",
    "reduction_name",
    "reduction_of",
    "sides",
    "tensors_in",
]

_CANONICAL = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
    # As torch.distributed calls it.
    "allreduce": "all_reduce",
}
"""torch renamed some in 2026 and calls both; here a collective has one name."""

_UNIFORM = {"all_reduce", "broadcast", "reduce", "allgather", "all_gather_single"}
"""Collectives whose tensor (the first of the last argument) must be alike at every rank."""


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        name: The collective.
        dtype: Type of its tensors; "-" if it has none.
        text: All that it asks for, such as "broadcast float32 (3,) root 0".
        agreed: The part of it that must be the same at every rank.
    """

    name: str
    dtype: str
    text: str
    agreed: str

    @property
    def agreed_number(self) -> int:
        """CRC-32 of `agreed`, which ranks compare in its place."""
        return zlib.crc32(self.agreed.encode())


class KnownCall(NamedTuple):
    """Facts about a kind of calls, with which C++ can begin them without Python.

    Attributes:
        text: The call in words.
        way: The carrier: the reducer's "native" calls, "gloo", or "python"; "gathered" or
            "scattered" for a sum of which Gloo moves the elements.
        prepared: The reducer's call, or the sum; None for others.
        counted: As what a call to Gloo is counted.
        call: The same as Gloo's part of the group takes it.
        size: Bytes of its tensors.
    """

    text: str
    way: str
    prepared: Any
    counted: str
    call: Call
    size: int = 0


class HandedCall(NamedTuple):
    """A call that C++ has begun, and which the progress thread brings to its end.

    Attributes:
        work: Its Work, or a `LateWork`.
        known: Its kind.
        arguments: Of the method that was called, which hold its tensors.
        limit_s: Its timeout in seconds; the group's if it is not positive.
        gloo: Gloo's work, if the call is Gloo's.
        tried_s: How long C++ has tried at most.
        operation: The operation's number among the reducer's.
        status: The result of the reducer's call.
        text: Why, if the status says that it failed.
    """

    work: Any
    known: KnownCall
    arguments: tuple[Any, ...]
    limit_s: float
    gloo: Any
    tried_s: float
    operation: int = 0
    status: int = 0
    text: str = ""


def canonical_name(method: str) -> str:
    """Return the collective behind a method of c10d's `Backend`."""
    return _CANONICAL.get(method, method)


def reduction_name(op: Any) -> str:
    """Return the name of a ReduceOp, be it the enumeration or an option's object: "sum"."""
    return str(getattr(op, "op", op)).rpartition(".")[2].partition(":")[0].rstrip(">").lower()


def reduction_of(arguments: tuple[Any, ...]) -> str:
    """Return the reduction that a call's options name; empty for one that only moves."""
    asked = getattr(arguments[-1], "reduceOp", None) if arguments else None
    return "" if asked is None else reduction_name(asked)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return all tensors in arguments nested in lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def sides(arguments: tuple[Any, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what a call to Gloo reads and writes: where it has both, outputs come first."""
    lists = [tensors_in(argument) for argument in arguments if tensors_in(argument)]
    return (lists[-1], lists[0]) if lists else ([], [])


def describe(method: str, arguments: tuple[Any, ...]) -> Call:
    """Put a call of a method of c10d's `Backend` into words."""
    name = canonical_name(method)
    words = [name]
    roots: list[str] = []
    for argument in arguments:
        if hasattr(argument, "reduceOp"):
            words.append(reduction_name(argument.reduceOp))
        if hasattr(argument, "rootRank"):
            roots.append(f"root {argument.rootRank}")
    agreed = words + roots
    dtype = "-"
    # Where there are outputs and inputs, inputs come last, and every rank has inputs.
    lists = [tensors for tensors in map(tensors_in, arguments) if tensors]
    if lists:
        tensor = lists[-1][0]
        dtype = dtype_name(tensor.dtype)
        words += [dtype, str(tuple(tensor.shape))]
        if name in _UNIFORM:
            agreed += [dtype, str(tensor.numel())]
    return Call(name, dtype, " ".join(words + roots), " ".join(agreed))

"""The calls that torch's ProcessGroup takes, as its Backend takes them.

A process group takes a collective in two forms, and in each leaves out what has a default:

    group.broadcast([tensor], options)     the backend's
    group.broadcast(tensor, root)          for callers

torch 2.13 turns the second into the first within the methods that a process group in Python
replaces.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch._C._distributed_c10d as c10d

__all__ = ["backend_arguments"]


class _Form(NamedTuple):
    """How a collective is called.

    Attributes:
        options: Makes the options of the backend's form.
        given: How many arguments come before the options.
        fields: Of the options, as arguments of the callers' form, in order.
        listed: Whether the callers' form has a tensor where the backend's has a list of them.
    """

    options: Callable[[], Any]
    given: int
    fields: tuple[str, ...] = ()
    listed: bool = False


_FORMS = {
    "allreduce": _Form(c10d.AllreduceOptions, 1, ("reduceOp", "timeout"), True),
    "allreduce_coalesced": _Form(c10d.AllreduceCoalescedOptions, 1),
    "broadcast": _Form(c10d.BroadcastOptions, 1, ("rootRank", "timeout"), True),
    "reduce": _Form(c10d.ReduceOptions, 1, ("rootRank", "reduceOp", "timeout"), True),
    "allgather": _Form(c10d.AllgatherOptions, 2, ("timeout",), True),
    "allgather_coalesced": _Form(c10d.AllgatherOptions, 2),
    "_allgather_base": _Form(c10d.AllgatherOptions, 2),
    "allgather_into_tensor_coalesced": _Form(c10d.AllgatherOptions, 2),
    "gather": _Form(c10d.GatherOptions, 2, ("rootRank", "timeout"), True),
    "scatter": _Form(c10d.ScatterOptions, 2, ("rootRank", "timeout"), True),
    "reduce_scatter": _Form(c10d.ReduceScatterOptions, 2, ("reduceOp", "timeout"), True),
    "_reduce_scatter_base": _Form(c10d.ReduceScatterOptions, 2),
    "reduce_scatter_tensor_coalesced": _Form(c10d.ReduceScatterOptions, 2),
    "alltoall": _Form(c10d.AllToAllOptions, 2),
    "alltoall_base": _Form(c10d.AllToAllOptions, 4, ("timeout",)),
    "barrier": _Form(c10d.BarrierOptions, 0, ("timeout",)),
}

_BY_NAME = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def backend_arguments(
    method: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments of the backend's form.

    Args:
        method: Of the backend.
        arguments: Of either form.
        named: Those that were given by name: `opts`, `op`, `root` and `timeout`.

    Raises:
        TypeError: There is no such argument.
    """
    form = _FORMS.get(method)
    if form is None:
        if named:
            raise TypeError(f"{method} takes no argument {next(iter(named))!r} by name")
        return arguments
    given, rest = arguments[: form.given], arguments[form.given :]
    if form.listed and any(isinstance(each, torch.Tensor) for each in given):
        given = tuple(_listed(each) for each in given)
    options = named.pop("opts", None)
    if rest and isinstance(rest[0], type(form.options())):
        options, rest = rest[0], rest[1:]
    if options is None:
        options = form.options()
    if len(rest) > len(form.fields):
        raise TypeError(f"{method} takes no {len(arguments)} arguments")
    fields = dict(zip(form.fields, rest, strict=False))
    for name, value in named.items():
        if _BY_NAME.get(name) not in form.fields:
            raise TypeError(f"{method} takes no argument {name!r}")
        fields[_BY_NAME[name]] = value
    for name, value in fields.items():
        if value is not None:
            setattr(options, name, value)
    return *given, options


def _listed(argument: Any) -> list[Any]:
    """Return a tensor, or tensors, as the backend's form has them; none stays none."""
    if isinstance(argument, torch.Tensor):
        return [argument]
    return [list(argument)] if argument else []

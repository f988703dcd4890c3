"""Sends and receives: they go straight to Gloo, as only two ranks take part."""

from typing import Any, Protocol

import torch

from afflux.group.call.description import canonical_name, describe
from afflux.group.call.tensors import check_devices
from afflux.group.call.work import ObservedTransfer
from afflux.group.reducers.fallback import GlooFallback
from afflux.observe.observers import Observers

__all__ = ["pass_on"]


class _Group(Protocol):
    gloo: Any
    fallback: GlooFallback
    observers: Observers
    timeout_s: float

    @property
    def sequence(self) -> int: ...

    def check(self) -> None: ...


def pass_on(group: _Group, method: str, tensors: list[torch.Tensor], *rest: int) -> Any:
    """Begin a transfer; return its Work.

    Args:
        group: The group whose Gloo carries it.
        method: As c10d names it.
        tensors: To send, or to receive into.
        rest: The other rank, unless it may be any, and the tag.

    Raises:
        AffluxError: The group has failed or is closed.
    """
    group.check()
    call = describe(canonical_name(method), (tensors,))
    check_devices(call.text, tensors)
    group.fallback.count(call)
    observers = group.observers
    if not observers.active:
        return getattr(group.gloo, method)(tensors, *rest)
    *peers, tag = rest
    inputs, outputs = (tensors, []) if method == "send" else ([], tensors)
    seen = observers.begin(
        group.sequence,
        method,
        call.text,
        "gloo",
        inputs,
        outputs,
        group.timeout_s,
        peers[0] if peers else None,
        tag,
    )
    observers.started(seen)
    try:
        work = getattr(group.gloo, method)(tensors, *rest)
    except BaseException as error:
        observers.end(seen, error)
        raise
    if method == "recv_anysource":
        # torch asks it for its source, which C++ does not find in a Work of Python's.
        observers.end_later(seen, work)
        return work
    return ObservedTransfer(work, tensors, seen, observers)

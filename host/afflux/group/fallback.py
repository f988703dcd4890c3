"""Gloo, for what the engine does not do: other collectives, other dtypes, other reductions."""

import collections
import ctypes
import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from afflux.group.calls import Call, reduction_name, tensors_in
from afflux.group.progress import CallRefused
from afflux_drivers.errors import AffluxError, DeadlineExceeded, Interrupted

__all__ = ["GlooFallback", "make_gloo_groups"]

_log = logging.getLogger("afflux")

# Gloo rejects some arguments only in its own thread, with the same kind of error as for a broken
# connection. Every rank has made the same call, so every rank gets the same error.
_NETWORK = re.compile(r"gloo/transport|[Cc]onnect|[Tt]imed out|peer|[Ss]ocket")

_SLICE = timedelta(milliseconds=250)


def make_gloo_groups(
    stores: Sequence[Store], rank: int, size: int, timeout: timedelta
) -> list[dist.ProcessGroup]:
    """Make plain process groups over Gloo, one for each store. Collective over their ranks.

    They share one device, because each device has a thread that checks a hundred times a second
    whether it must end, in an idle process too.
    """
    groups = []
    options = None
    for store in stores:
        if options is None:
            gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
            options = gloo.options
        else:
            # torch's stub has two names for the options' type.
            gloo = dist.ProcessGroupGloo(store, rank, size, options)  # type: ignore[arg-type]
        group = dist.ProcessGroup(store, rank, size)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        groups.append(group)
    return groups


def _averages(argument: Any) -> bool:
    return hasattr(argument, "reduceOp") and reduction_name(argument.reduceOp) == "avg"


def _summing(options: Any) -> Any:
    """Return the same options with SUM for AVG, which Gloo does not know."""
    copy = type(options)()
    for name in ("rootRank", "rootTensor", "timeout", "asyncOp"):
        if hasattr(options, name):
            setattr(copy, name, getattr(options, name))
    copy.reduceOp = dist.ReduceOp.SUM
    return copy


class GlooFallback:
    """Runs collectives of one group on Gloo, one at a time, and counts them.

    Args:
        group: Over Gloo, used by this object only.

    Attributes:
        counts: Calls by "<collective> <dtype>".
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group: dist.ProcessGroup | None = group
        self._rank = group.rank()
        self._size = group.size()
        self._in_flight: list[Any] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def count(self, call: Call) -> None:
        """Make visible where a call goes: in the counts, and in the log the first time."""
        key = f"{call.name} {call.dtype}"
        if key not in self.counts:
            _log.info("%s goes to Gloo: the engine does not support it", key)
        self.counts[key] += 1

    def run(
        self,
        method: str,
        arguments: tuple[Any, ...],
        call: Call,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> Any:
        """Call the Gloo group's `method` and wait for it; return its first argument, the outputs.

        Raises:
            CallRefused: Gloo does not take the arguments.
            DeadlineExceeded: It timed out.
            Interrupted: `interrupted` gave a reason.
            RuntimeError: A connection failed.
        """
        self.count(call)
        averaging = [argument for argument in arguments if _averages(argument)]
        asked = [_summing(argument) if _averages(argument) else argument for argument in arguments]
        try:
            # A call that is given up stays in the list: Gloo cannot be stopped and still writes to
            # its tensors.
            work = getattr(self._group, method)(*asked)
            self._in_flight.append((work, arguments))
        except (RuntimeError, ValueError, TypeError) as error:
            raise CallRefused(f"{call.text}: {error}") from error
        try:
            self._wait(work, call, timeout_s, interrupted)
        except AffluxError:
            raise
        except RuntimeError as error:
            if _NETWORK.search(str(error)):
                raise
            raise CallRefused(f"{call.text}: {error}") from error
        if averaging and getattr(averaging[0], "rootRank", self._rank) == self._rank:
            for tensor in tensors_in(arguments[0]):
                tensor.data.div_(self._size)
        return arguments[0] if arguments else []

    def _wait(
        self,
        work: dist.Work,
        call: Call,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                # Only when wait returns are all kinds of Gloo's work surely over.
                work.wait(_SLICE)
                self._in_flight.clear()
                return
            except RuntimeError as error:
                if "timed out" not in str(error).lower():
                    raise
                if work.is_completed():
                    # It ended just after the slice, or with a timeout of its own: wait raises that.
                    work.wait()
                    self._in_flight.clear()
                    return
            reason = interrupted()
            if reason is not None:
                raise Interrupted(reason)
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"Gloo's {call.name} timed out after {timeout_s:g} s")

    def close(self) -> None:
        """Let go of the group, after the last call of `run`, in a process that may end at once.

        A thread of Gloo's may still hold the last reference to a tensor of a call that is over, and
        takes the interpreter's lock to drop it. If the interpreter ends in that moment, the process
        aborts. Gloo's destructor joins its threads, so none is left after it.
        """
        if all(work.is_completed() for work, _ in self._in_flight):
            self._in_flight.clear()
            self._group = None
        else:
            # The destructor would wait for the call that was given up, up to the group's timeout.
            # Group, tensors and threads end with the process instead.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

"""Gloo, for calls that the engine does not take: other collectives, dtypes and reductions."""

import collections
import ctypes
import logging
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from afflux.group.call.description import Call
from afflux.group.call.errors import CallRefused
from afflux.group.call.tensors import dtype_name
from afflux.group.reducers.gloo_forms import hand_over, reduced_form
from afflux_drivers.errors import AffluxError, DeadlineExceeded, Interrupted

__all__ = ["GlooFallback"]

_log = logging.getLogger("afflux")

# Gloo rejects some arguments only in its own thread, with the same kind of error as for a broken
# connection. Every rank has made the same call, so every rank gets the same error.
_NETWORK = re.compile(r"gloo/transport|[Cc]onnect|[Tt]imed out|peer|[Ss]ocket")

_CPU = torch.device("cpu")

_SLICE = timedelta(milliseconds=250)


class GlooFallback:
    """Runs collectives of one group on Gloo, one at a time, and counts them.

    Args:
        gloo: Its collectives are used by this object only.
        store: Any store; torch's class asks for one.
        rank: Own rank in the group.
        size: Ranks of the group.

    Attributes:
        counts: Calls by "<collective> <dtype>".
    """

    def __init__(self, gloo: dist.ProcessGroupGloo, store: Store, rank: int, size: int) -> None:
        # A Backend of 2.13 shows Python only some of its collectives, a ProcessGroup all.
        self._group: dist.ProcessGroup | None = dist.ProcessGroup(store, rank, size)
        self._group._register_backend(_CPU, dist.ProcessGroup.BackendType.GLOO, gloo)
        self._group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._rank = rank
        self._size = size
        self._in_flight: list[Any] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def count(self, call: Call) -> None:
        """Make visible where a call goes: in the counts, and in the log the first time."""
        key = f"{call.name} {call.dtype}"
        if key not in self.counts:
            _log.info("%s goes to Gloo: the engine does not support it", key)
        self.counts[key] += 1

    def name_count(self, call: Call) -> str:
        """Return the key of a call's count, for an adapter that counts; log where it goes."""
        self.count(call)
        key = f"{call.name} {call.dtype}"
        self.counts[key] -= 1
        return key

    def run(
        self,
        method: str,
        arguments: tuple[Any, ...],
        call: Call,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        """Call the Gloo group's `method` and wait for it.

        Raises:
            CallRefused: Gloo does not take the arguments.
            DeadlineExceeded: It timed out.
            Interrupted: `interrupted` gave a reason.
            RuntimeError: A connection failed.
        """
        self.count(call)
        try:
            handed = hand_over(method, arguments, self._rank, self._size)
            # A call that is given up stays in the list: Gloo cannot be stopped and still writes to
            # its tensors.
            work = getattr(self._group, handed.method)(*handed.arguments)
            self._in_flight.append((work, (arguments, handed)))
        except (RuntimeError, ValueError, TypeError) as error:
            raise CallRefused(f"{call.text}: {error}") from error
        self._finish(work, call, timeout_s, interrupted)
        handed.finish()

    def all_reduce(
        self,
        tensor: torch.Tensor,
        reduction: str,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        """Sum or average a contiguous tensor that the engine could take, too. For errors see `run`.

        Raises:
            CallRefused: Gloo does not take it.
        """
        name = dtype_name(tensor.dtype)
        call = Call("all_reduce", name, f"all_reduce {reduction} {name}", "")
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=timeout_s)
        assert self._group is not None
        try:
            form = reduced_form(tensor.dtype, reduction, self._size)
            given = form.give(tensor)
            work = self._group.allreduce([given], options)
        except (RuntimeError, ValueError, TypeError) as error:
            raise CallRefused(f"{call.text}: {error}") from error
        self.counts[f"all_reduce {name}"] += 1
        self.keep(work, (tensor, given))
        self._finish(work, call, timeout_s, interrupted)
        if given is not tensor:
            tensor.copy_(form.take(given))

    def finish(
        self,
        work: dist.Work,
        arguments: tuple[Any, ...],
        call: Call,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        """Wait for a call that C++ has begun; for arguments and errors see `run`."""
        self.keep(work, arguments)
        self._finish(work, call, timeout_s, interrupted)

    def keep(self, work: dist.Work, arguments: tuple[Any, ...]) -> None:
        """Keep a call's tensors, as Gloo cannot be stopped and still writes to them."""
        self._in_flight.append((work, arguments))

    def _finish(
        self,
        work: dist.Work,
        call: Call,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        try:
            self._wait(work, call, timeout_s, interrupted)
        except AffluxError:
            raise
        except RuntimeError as error:
            if _NETWORK.search(str(error)):
                raise
            raise CallRefused(f"{call.text}: {error}") from error

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

    def close(self) -> bool:
        """Let go of Gloo, after the last call of `run`, in a process that may end at once.

        A thread of Gloo's may still hold the last reference to a tensor of a call that is over, and
        takes the interpreter's lock to drop it. If the interpreter ends in that moment, the process
        aborts. Gloo's destructor joins its threads, so none is left after it.

        Returns:
            Whether others may let go of it too; if not, a call that was given up still uses it.
        """
        if all(work.is_completed() for work, _ in self._in_flight):
            self._in_flight.clear()
            self._group = None
            return True
        # The destructor would wait for the call that was given up, up to the group's timeout.
        # Group, tensors and threads end with the process instead.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return False

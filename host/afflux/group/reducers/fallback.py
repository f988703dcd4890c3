"""Gloo, for calls that the engine does not take: other collectives, dtypes and reductions."""

import collections
import contextlib
import ctypes
import logging
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from afflux.group.call.description import Call
from afflux.group.call.errors import CallRefused
from afflux.group.call.tensors import dtype_name
from afflux.group.reducers.exact_sums import Steps, exact_sums
from afflux.group.reducers.gloo_forms import hand_over
from afflux_drivers.errors import AffluxError, DeadlineExceeded, Interrupted

__all__ = ["GlooFallback"]

_log = logging.getLogger("afflux")

# Gloo rejects some arguments only in its own thread, with the same kind of error as for a broken
# connection. Every rank has made the same call, so every rank gets the same error. The timeout of
# one part of a call closes the connections of others: "Application timeout caused pair closure".
_NETWORK = re.compile(r"gloo/transport|[Cc]onnect|[Tt]imed out|[Tt]imeout|peer|[Ss]ocket")

_CPU = torch.device("cpu")

_SLICE = timedelta(milliseconds=250)

_SIDE_BY_SIDE = 3
"""Chunks of a sum: two that move, as Gloo has two threads, while the third is summed."""


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
        self._carry_out(method, arguments, _Waiting(call, timeout_s, interrupted))

    def all_reduce(
        self,
        tensor: torch.Tensor,
        reduction: str,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        """Sum or average a contiguous tensor that the engine could take, too, without counting it.

        For errors see `run`.

        Raises:
            CallRefused: Gloo does not take it.
        """
        name = dtype_name(tensor.dtype)
        call = Call("all_reduce", name, f"all_reduce {reduction} {name}", "")
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, reduction.upper())
        options.timeout = timedelta(seconds=timeout_s)
        self._carry_out("allreduce", ([tensor], options), _Waiting(call, timeout_s, interrupted))

    def finish(
        self,
        work: dist.Work,
        arguments: tuple[Any, ...],
        call: Call,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        """Wait for a call that C++ has begun; for arguments and errors see `run`."""
        self._in_flight.append((work, arguments))
        self._finish(work, _Waiting(call, timeout_s, interrupted))
        self._in_flight.clear()

    def _carry_out(self, method: str, arguments: tuple[Any, ...], waiting: "_Waiting") -> None:
        with _refused(waiting.call):
            sums = exact_sums(method, arguments, self._rank, self._size)
            handed = None if sums else hand_over(method, arguments, self._rank, self._size)
        if handed is not None:
            self._finish(self._begin(waiting.call, handed.method, *handed.arguments), waiting)
            handed.finish()
        elif sums is not None:
            self._move(sums.steps, waiting)
            sums.finish()
        self._in_flight.clear()

    def _move(self, chunks: Iterator[Steps], waiting: "_Waiting") -> None:
        """Carry out the moves of a sum: those of some chunks side by side."""
        options = dist.AllToAllOptions()
        options.timeout = timedelta(seconds=waiting.timeout_s)
        under_way: collections.deque[tuple[Steps, dist.Work]] = collections.deque()
        while True:
            # In an order that is the same at all ranks, whichever move ends first.
            steps = next(chunks, None) if len(under_way) < _SIDE_BY_SIDE else None
            if steps is None:
                if not under_way:
                    return
                steps, work = under_way.popleft()
                self._finish(work, waiting)
            move = next(steps, None)
            if move is not None:
                under_way.append(
                    (steps, self._begin(waiting.call, "alltoall_base", *move, options))
                )

    def _begin(self, call: Call, method: str, *arguments: Any) -> dist.Work:
        """Begin a call of Gloo's."""
        with _refused(call):
            work: dist.Work = getattr(self._group, method)(*arguments)
        # A call that is given up stays in the list: Gloo cannot be stopped and still writes to its
        # tensors.
        self._in_flight.append((work, arguments))
        return work

    def _finish(self, work: dist.Work, waiting: "_Waiting") -> None:
        try:
            waiting.wait(work)
        except AffluxError:
            raise
        except RuntimeError as error:
            if _NETWORK.search(str(error)):
                raise
            raise CallRefused(f"{waiting.call.text}: {error}") from error

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


class _Waiting:
    """The waiting for one call, whose time begins now.

    Args:
        call: The call.
        timeout_s: How long it may take.
        interrupted: See `GlooFallback.run`.
    """

    def __init__(self, call: Call, timeout_s: float, interrupted: Callable[[], str | None]) -> None:
        self.call = call
        self.timeout_s = timeout_s
        self._interrupted = interrupted
        self._deadline = time.monotonic() + timeout_s

    def wait(self, work: dist.Work) -> None:
        """Wait for a part of it."""
        while True:
            try:
                # Only when wait returns are all kinds of Gloo's work surely over.
                work.wait(_SLICE)
                return
            except RuntimeError as error:
                if "timed out" not in str(error).lower():
                    raise
                if work.is_completed():
                    # It ended just after the slice, or with a timeout of its own: wait raises that.
                    work.wait()
                    return
            reason = self._interrupted()
            if reason is not None:
                raise Interrupted(reason)
            if time.monotonic() > self._deadline:
                name = self.call.name
                raise DeadlineExceeded(f"Gloo's {name} timed out after {self.timeout_s:g} s")


@contextlib.contextmanager
def _refused(call: Call) -> Iterator[None]:
    """Raise what Gloo, or its forms, do not take as an error of the call."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise CallRefused(f"{call.text}: {error}") from error

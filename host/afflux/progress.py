"""The one thread of a group that carries out its collectives, in the order they were asked for.

It alone uses the group's worker and its Gloo fallback: two threads that share a Gloo group can mix
up its messages, and ranks that order operations differently wait for one another for ever.
It owns the deadlines: every Work ends, with a result or an error, whoever waits for it.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from afflux.board import Board, Record
from afflux.failure import GroupClosed, GroupFailed, OperationTimeout, explain
from afflux.work import AffluxWork
from afflux_drivers.errors import AffluxError, Interrupted

__all__ = ["CallRefused", "Progress", "Step"]

_log = logging.getLogger("afflux")

_IDLE_POLL_S = 0.5
_RECORDS_TIMEOUT_S = 2.0
"""Idle ranks look at the board each 0.5 s; one that says nothing for so long is dead or stuck."""

Step = Callable[[float], list[torch.Tensor]]
"""Carries out one operation; gets the seconds that it may take, returns the tensors written."""


class CallRefused(AffluxError):
    """The arguments of one call are wrong in a way that shows only when it is carried out.

    Its Work fails, the group goes on.
    """


@dataclass
class _Task:
    call: str
    step: Step
    work: AffluxWork
    timeout_s: float


class Progress:
    """Carries out the operations of one group at one rank.

    Args:
        board: The group's notices; from now on used by this object's thread only.
        rank: Own rank in the group.
        size: Ranks of the group.
        name: For the thread.
    """

    def __init__(self, board: Board, rank: int, size: int, name: str) -> None:
        self._board = board
        self._rank = rank
        self._size = size
        self._pid = os.getpid()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._failure: AffluxError | None = None
        self._stopping = False
        self._drained = threading.Event()
        self._interruption: AffluxError | None = None
        self._heard = ""
        self._sequence = 0
        self._call = ""
        self._running: AffluxWork | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def failure(self) -> AffluxError | None:
        """The error that ended the group, if one did."""
        return self._failure

    def submit(self, call: str, step: Step, timeout_s: float) -> AffluxWork:
        """Queue an operation.

        A future's callback runs in the progress thread. What it submits is carried out at once,
        before what other threads have queued: that is the only place in the order which is the same
        at every rank.

        Args:
            call: What is asked for, for messages.
            step: Carries it out.
            timeout_s: From the moment when its turn has come.

        Raises:
            AffluxError: The group has failed or is closed.
        """
        self.check()
        work = AffluxWork(call, self._expire, self._may_block)
        task = _Task(call, step, work, timeout_s)
        if threading.current_thread() is self._thread:
            self._carry_out(task)
        else:
            self._tasks.put(task)
        return work

    def check(self) -> None:
        """Raise what keeps the group from taking operations.

        Raises:
            AffluxError: It has failed, is closed, or belongs to the process that forked this one.
        """
        if os.getpid() != self._pid:
            raise GroupClosed(
                f"this group belongs to process {self._pid}, which forked process {os.getpid()}; "
                "a forked process needs a group of its own"
            )
        if self._failure is not None:
            raise self._later(self._failure)
        if self._stopping:
            raise GroupClosed("the group has been destroyed")

    def interrupted(self) -> str | None:
        """Why the operation in progress should be given up, if it should. For waiting loops."""
        if self._interruption is not None:
            return str(self._interruption)
        first = self._board.failure()
        if first is not None:
            self._heard = f"rank {first.rank} failed: {first.error}"
            return self._heard
        return None

    def stop(self, drain_s: float) -> bool:
        """End the thread.

        Args:
            drain_s: For operations in flight; those that take longer fail.

        Returns:
            Whether all were carried out, by this and every other rank as far as rank 0 can tell.
        """
        if os.getpid() != self._pid or self._stopping:
            return False
        self._stopping = True
        if threading.current_thread() is self._thread:
            # Called in a future's callback: the loop sees the flag when that returns.
            return False
        self._tasks.put(None)
        in_time = self._drained.wait(drain_s)
        if not in_time:
            self._interruption = GroupClosed(
                "the group was destroyed with operations still in flight"
            )
        # Waiting loops look each 0.5 s, then ask the other ranks what they were doing.
        self._thread.join(10.0)
        return in_time and self._failure is None

    def confirm_end(self, timeout_s: float) -> None:
        """After `stop`: tell the others, and as rank 0 wait until none needs the job any more."""
        if self._thread.is_alive() or os.getpid() != self._pid:
            return
        if self._rank == 0:
            self._board.begin_close(self._sequence)
            late = self._board.unconfirmed(timeout_s)
            if late:
                _log.info("ranks %s did not say that they are done; closing all the same", late)
        else:
            self._board.confirm_close()

    def _may_block(self) -> bool:
        return threading.current_thread() is not self._thread

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=_IDLE_POLL_S)
            except queue.Empty:
                self._watch()
                continue
            if task is None:
                break
            self._carry_out(task)
        self._drained.set()

    def _watch(self) -> None:
        """While idle: learn of other ranks' failures, and let rank 0 close."""
        if self._failure is not None or not self._board.notice():
            return
        first = self._board.failure()
        if first is not None:
            self._fail(GroupFailed(f"rank {first.rank} failed: {first.error}"), running=False)
            return
        last = self._board.closing()
        if last is not None and last <= self._sequence and self._rank != 0:
            self._board.confirm_close()
            self._failure = GroupClosed("rank 0 has destroyed the group")

    def _carry_out(self, task: _Task) -> None:
        if self._failure is not None:
            task.work.fail(self._later(self._failure))
            return
        outer = (self._running, self._call)
        self._sequence += 1
        self._running, self._call = task.work, task.call
        error: BaseException | None = None
        tensors: list[torch.Tensor] = []
        try:
            if self._interruption is not None:
                raise self._interruption
            tensors = task.step(task.timeout_s)
        except CallRefused as refusal:
            error = refusal
        except Interrupted:
            error = self._fail(self._interruption or GroupFailed(self._heard))
        except AffluxError as failure:
            failure.args = (f"{task.call} (operation {self._sequence}): {failure}",)
            error = self._fail(failure)
        except Exception as failure:
            error = self._fail(GroupFailed(f"{task.call} (operation {self._sequence}): {failure}"))
            error.__cause__ = failure
        self._running = None
        if error is None:
            task.work.succeed(tensors)
        else:
            task.work.fail(error)
        self._running = outer[0]

    def _fail(self, error: AffluxError, running: bool = True) -> AffluxError:
        """Fail the group with `error`; returns it with what all ranks know."""
        record = Record(
            self._rank, self._sequence, self._call, running, str(error), type(error).__name__
        )
        with contextlib.suppress(Exception):
            first = self._board.declare(record)
            closing = isinstance(error, GroupClosed)
            records = {} if closing else self._board.records(_RECORDS_TIMEOUT_S)
            if not closing:
                error = explain(error, first, records, self._size)
        self._failure = error
        _log.info("rank %d: %s", self._rank, error)
        return error

    def _later(self, failure: AffluxError) -> AffluxError:
        if isinstance(failure, GroupClosed):
            return GroupClosed(str(failure))
        return GroupFailed(f"the group failed before: {failure}")

    def _expire(self, work: AffluxWork, seconds: float) -> None:
        """A `wait(timeout)` is over: end the operation that everyone waits for."""
        running = self._running
        detail = "" if running is None or running is work else f", behind {running.call}"
        started = time.monotonic()
        self._interruption = OperationTimeout(
            f"{work.call}: not over after {seconds:g} s of wait(){detail}"
        )
        # The loop that waits looks each 0.5 s. A step that never looks must not hold the caller.
        limit_s = _RECORDS_TIMEOUT_S + 5.0
        while not work.is_completed() and time.monotonic() - started < limit_s:
            time.sleep(0.01)
        if not work.is_completed():
            self._failure = self._interruption
            work.fail(self._interruption)
        elif work.is_success():
            # It came through in the same moment: nothing has gone wrong.
            self._interruption = None

"""Carries out the collectives of a group one at a time, in the order they were asked for.

They run in the group's own thread, which is started for the first of them. Two threads never use
the group's worker or its Gloo fallback at once: two threads that share a Gloo group can mix up its
messages, and ranks that order operations differently wait for one another for ever. The thread owns
the deadlines: every Work ends, with a result or an error, whether or not anyone waits.

A small operation would take less than handing it over and back. So C++ may carry one out in the
calling thread, if none is before it, as long as it takes no more than a moment; then it hands the
operation over together with the turn. No Python runs in between: a signal handler, which may call a
collective, finds the turn either free or in this thread.
"""

import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from afflux.group.call.description import HandedCall
from afflux.group.call.errors import (
    CallRefused,
    GroupClosed,
    GroupFailed,
    OperationTimeout,
    without_frames,
)
from afflux.group.call.parts import Parts, PendingWork
from afflux.group.call.work import LateWork
from afflux.group.continuing import Continuing
from afflux.group.liveness.outside import Outside
from afflux.group.reducers.continued_reducer import ContinuedReducer
from afflux.group.shutdown import Shutdown
from afflux.group.staging.copies import on_stream
from afflux.group.store.keys import GroupStore
from afflux.group.store.notices import CallRecord, Notices, Watcher
from afflux.group.tasks import Changed, Kind, News, Step, Task, Woken
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import AffluxError, Interrupted

__all__ = ["Progress"]

_GIVE_UP_S = 1.0
"""How long a call that is given up waits until the thread leaves its tensors alone."""

_NEWS_AGAIN_S = 0.5
"""The store had news for this rank, then did not answer: how often it is asked what they are."""


class Progress:
    """Carries out the operations of one group at one rank.

    Args:
        notices: The group's notices; from now on used by this object only.
        keys: The group's, in the store.
        give_up: Called with the reason when the group has failed here, after it has been published.
        finish: Brings an operation to its end that C++ has begun and handed over.
        has_failed: Called with the error that ends the group, and with what the ranks were doing.
        parts: Makes the turn and the Works.
        rank: Own rank in the group.
        size: Ranks of the group.
        name: Names the threads.
        lost: Returns the error if ranks are gone that an operation with this number waits for.
        continued: The reducer, if it goes on without its aggregators.
    """

    def __init__(
        self,
        notices: Notices,
        keys: GroupStore,
        give_up: Callable[[str], None],
        finish: Callable[[HandedCall], list[torch.Tensor]],
        has_failed: Callable[[AffluxError, dict[int, CallRecord]], None],
        parts: Parts,
        rank: int,
        size: int,
        name: str,
        lost: Callable[[int], RanksEnded | None] = lambda _sequence: None,
        continued: ContinuedReducer | None = None,
    ) -> None:
        self._rank = rank
        self._pid = os.getpid()
        self._finish = finish
        self._parts = parts
        # A signal handler may run, and use it, in the middle of any line.
        self._tasks: queue.SimpleQueue[Task | News | Changed | Woken | None] = queue.SimpleQueue()
        self._counting = threading.RLock()
        # The thread that has it may use reducer and Gloo. Its count of pending operations is of
        # those that have been submitted and whose callbacks have not returned.
        self.turn = parts.turn()
        self._outside = Outside(notices, self.turn, lost)
        self._shutdown = Shutdown(notices, self.turn, give_up, has_failed, rank, size)
        self._stopping = False
        self._drained = threading.Event()
        self._interruption: AffluxError | None = None
        self._news = False
        self._again_s: float | None = None
        # There is none until it has something to do: to start one may take a millisecond.
        self._name = name
        self._thread: threading.Thread | None = None
        self._only_one = threading.Lock()
        self._watcher = Watcher(keys, self._tell)
        self._continuing = Continuing(continued, self._outside, self._shutdown)
        self._continuing.begin(self.interrupted, lambda: self._tell(Changed()))

    @property
    def failure(self) -> AffluxError | None:
        """The error that ended the group, if one did."""
        return self._shutdown.failure

    @property
    def carried_out(self) -> int:
        """Number of the last operation that is over here and has not failed."""
        failed = self.failure is not None and not isinstance(self.failure, GroupClosed)
        return max(0, self.turn.sequence - (self.turn.running or failed))

    def submit(
        self,
        call: str,
        waits: bool,
        step: Step,
        *arguments: Any,
        stream: torch.Stream | None = None,
    ) -> PendingWork:
        """Queue an operation.

        A future's callback runs in the progress thread. Calls that it submits are carried out at
        once, before those that other threads have queued: that is the only place in the order which
        is the same at every rank.

        Args:
            call: The call, for messages.
            waits: Whether the call is a synchronous one: if its wait is broken off, as by Ctrl-C,
                the operation is given up, and the group with it.
            step: Carries it out.
            arguments: For `step`.
            stream: Stream of a device at whose end the results are there; None for the CPU.

        Raises:
            AffluxError: The group has failed or is closed.
        """
        # First without a lock: a forked process may have a copy that is never released.
        self.check()
        work = self.new_work(call, waits, stream)
        task = Task(call, step, arguments, work, stream=stream)
        if self.turn.mine():
            self._carry_out(task)
        else:
            self._submit(task)
        return task.work

    def outside(self, call: str, step: Callable[[], None], timeout_s: float) -> None:
        """Carry out a task, which does not count as an operation, after all earlier ones.

        Args:
            call: The call, for messages.
            step: Does it. Its errors end nothing.
            timeout_s: How long to wait for the turn.

        Raises:
            AffluxError: The group has failed or is closed.
            OperationTimeout: Operations before it are not over in time.
        """
        if self.turn.mine():
            return step()

        def done() -> list[torch.Tensor]:
            step()
            return []

        self.check()
        task = Task(call, done, (), self.new_work(call, False), Kind.OUTSIDE)
        self._submit(task)
        try:
            task.work.wait(timedelta(seconds=timeout_s))
        except OperationTimeout:
            if not task.claim():
                # It has begun, and has a time of its own, as long.
                task.work.wait()
                return
            before = self._shutdown.named()
            raise OperationTimeout(
                f"rank {self._rank}: {call} timed out after {timeout_s:g} s: {before} was called "
                "before, and is not over"
            ) from None

    def _submit(self, task: Task) -> None:
        # With the lock: nothing is queued after the mark of the end, where it would be lost.
        with self._counting:
            self.check()
            self.turn.add_pending(1)
            self._queue(task)

    def new_work(self, call: str, waits: bool, stream: torch.Stream | None = None) -> PendingWork:
        """Make the Work of an operation; for the arguments see `submit`."""
        give_up = self.abandon if waits else None
        devices = [] if stream is None else [stream.device]
        return self._parts.pending_work(call, self.may_block, give_up, devices)

    def wake(self, given_up: str = "") -> None:
        """Let the thread bring an operation to its end that has been handed over with the turn.

        Args:
            given_up: Name of the exception that a signal handler has raised in the call; empty if
                none has.
        """
        self._queue(Woken())
        if given_up:
            self.abandon(given_up)

    def abandon(self, reason: str) -> None:
        """End the group with the operation in progress, whose caller waits no more.

        Args:
            reason: Why.
        """
        if self.failure is None and self._interruption is None:
            self._interruption = GroupFailed(f"{self._shutdown.named()}: given up: {reason}")
        # The caller may use its tensors again: if possible, not while the thread writes them.
        deadline = time.monotonic() + _GIVE_UP_S
        while self.turn.pending and self.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if not self.turn.pending and self.failure is None:
            # It has come to its end meanwhile.
            self._interruption = None

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
        if self.failure is not None:
            raise self._shutdown.again()
        if self._stopping:
            raise GroupClosed("the group has been destroyed")

    def interrupted(self) -> str | None:
        """Return why the operation in progress must be given up; None if not. For waiting loops."""
        if self._interruption is not None:
            return str(self._interruption)
        self._continuing.attend()
        return self._outside.reason()

    def refuse(self, error: BaseException, begun: bool = False) -> None:
        """Let who waits for this rank know that it refuses its call; see `Notices.refuse`."""
        self._outside.refuse(error, begun)

    def stop(self, drain_s: float) -> bool:
        """End the thread.

        Args:
            drain_s: Time for operations in flight; those that take longer fail.

        Returns:
            Whether all were carried out, by this and every other rank as far as rank 0 can tell.
        """
        if os.getpid() != self._pid or self._stopping:
            return False
        with self._counting:
            self._stopping = self.turn.closed = True
            if self._thread is None and self.turn.try_enter():
                # Nothing is queued or in progress, and nothing will be.
                self.turn.leave()
                self._drained.set()
            else:
                self._queue(None)
        self._watcher.stop()
        if threading.current_thread() is self._thread:
            # Called in a future's callback: the loop ends when that returns.
            return False
        in_time = self._drained.wait(drain_s)
        if not in_time:
            self._interruption = GroupClosed(
                "the group was destroyed with operations still in flight"
            )
        # Waiting loops check every 0.25 s, then ask the other ranks what they were doing.
        if self._thread is not None:
            self._thread.join(10.0)
        over = in_time and self.failure is None
        if over:
            self._continuing.bequeath()
        return over

    def confirm_end(self, timeout_s: float | None, holds: bool) -> None:
        """Confirm the end to the others, after `stop`; see `Shutdown.confirm`."""
        if os.getpid() != self._pid or (self._thread is not None and self._thread.is_alive()):
            return
        self._shutdown.confirm(timeout_s, holds, self._outside.gone)

    def _queue(self, task: Task | News | Changed | Woken | None) -> None:
        """Let the thread do it, which is started if there is none."""
        self._tasks.put(task)
        if self._thread is not None:
            return
        try:
            # A signal handler may come here in the midst of the start, and wait for its operation:
            # it starts one, too, and the second ends at once.
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            # From 3.12 on an interpreter that ends starts no threads, not for exit handlers either.
            while not self._tasks.empty() and self._serve():
                pass

    def _tell(self, news: News | Changed | None = None) -> None:
        with self._counting:
            if not self._stopping:
                self._queue(news or News())

    def may_block(self) -> bool:
        """Return whether the calling thread is another than the one that does the work."""
        return threading.current_thread() is not self._thread

    def _run(self) -> None:
        if not self._only_one.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        while self._serve():
            pass

    def _serve(self) -> bool:
        """Do what is queued next; return whether more may come."""
        try:
            task = self._tasks.get(timeout=self._again_s)
        except queue.Empty:
            task = News()
        if task is None:
            # An operation in a caller's thread may be in progress.
            self._enter()
            self._drained.set()
            self.turn.leave()
            return False
        if isinstance(task, News):
            self._news = True
        elif isinstance(task, Changed):
            self._enter()
            self._continuing.hear()
            self.turn.leave()
        elif isinstance(task, Woken):
            self._carry_out_handed(self.turn.take_over())
        else:
            self._enter()
            self._carry_out_last(task)
        # Its arguments are tensors, and the next one may be long in coming.
        task = None
        if self._news:
            self._again_s = None if self._hear() else _NEWS_AGAIN_S
        return True

    def _enter(self) -> None:
        """Wait for the turn, and for what has begun before."""
        while (handed := self.turn.enter()) is not None:
            self._carry_out_handed(handed)

    def _carry_out_handed(self, handed: Any) -> None:
        if handed is None:
            return
        call = HandedCall(*handed)
        work = call.work.get() if isinstance(call.work, LateWork) else call.work
        self._carry_out_last(Task(call.known.text, self._finish, (call,), work, Kind.BEGUN))

    def _carry_out_last(self, task: Task) -> None:
        """Carry out what has been queued, and give the turn back."""
        try:
            self._carry_out(task)
        finally:
            self.turn.leave()
        self.turn.add_pending(-1)

    def _hear(self) -> bool:
        """Learn of other ranks' failures while idle, and let who holds the job close.

        Returns:
            Whether there is no more to hear.
        """
        self._enter()
        try:
            return self._shutdown.hear(self._continuing.bequeath)
        finally:
            self.turn.leave()

    def _carry_out(self, task: Task) -> None:
        if not task.claim():
            return
        if self.failure is not None:
            task.work.fail(self._shutdown.again())
            return
        error: BaseException | None = None
        tensors: list[torch.Tensor] = []
        try:
            tensors = task.step() if task.kind is Kind.OUTSIDE else self._execute(task)
        except Exception as failure:
            error = without_frames(failure)
        try:
            if error is None:
                # The future records what its users' streams are to wait for.
                with on_stream(task.stream):
                    task.work.succeed(tensors)
            else:
                task.work.fail(error)
        except Exception as failure:
            # A device that has failed, such as by an illegal access: every call upon it raises.
            failed = GroupFailed(f"{self._shutdown.named()}: {failure}")
            task.work.fail(self._shutdown.fail(failed))

    def _execute(self, task: Task) -> list[torch.Tensor]:
        """Carry out one operation, or the rest of it. An error fails the group."""
        if task.kind is Kind.OPERATION:
            self.turn.begin(task.call)
        try:
            if self._interruption is not None:
                raise Interrupted(str(self._interruption))
            return task.step(*task.arguments)
        except CallRefused as refusal:
            self.refuse(refusal, begun=True)
            raise
        except Interrupted as reason:
            own = self._interruption
            error = own or self._outside.failure(reason)
            raise self._shutdown.fail(error, ask=own is None) from None
        except AffluxError as failure:
            if isinstance(failure, RanksEnded) and self._shutdown.closed_by_rank_0():
                raise self._shutdown.fail(GroupClosed("rank 0 has destroyed the group")) from None
            # The group numbers its calls itself: some take no operation of the worker's, some two.
            failure.operation = ""
            failure.args = (f"{self._shutdown.named()}: {failure}",)
            raise self._shutdown.fail(failure) from failure.__cause__
        except Exception as failure:
            # Gloo has its own connections, of which its errors say only that they are closed.
            lost = self._outside.loss_behind()
            error = lost or GroupFailed(f"{self._shutdown.named()}: {failure}")
            raise self._shutdown.fail(error) from failure
        finally:
            self.turn.end()

"""A rank's end of a group: collectives at addresses, and errors in words."""

import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from afflux_drivers import _native
from afflux_drivers.c_api import Status
from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.errors import (
    AffluxError,
    AggregatorUnreachable,
    DeadlineExceeded,
    Disagreement,
    Interrupted,
    RanksMissing,
    WorkerFailed,
    timed_out,
)

__all__ = ["GroupWorker", "RanksEnded"]

_Error = TypeVar("_Error", bound=BaseException)

_SLICE_S = 0.1
"""The native part waits no longer at a time, so that signals and `interrupted` are heeded."""


class RanksEnded(RanksMissing):
    """Ranks cannot contribute any more: their processes have ended, or they left the group."""


class GroupWorker:
    """One rank of one group. Used by one thread at a time.

    After any error but `ValueError` the worker has failed: every later call raises `WorkerFailed`.

    Args:
        group: The native part.
        rank: Own rank, as the native part numbers it.
        names: The ranks' names in messages and errors, in order: their numbers in a larger group.
        medium: The means by which the ranks sum, for messages, such as "shared memory".
        aggregator: Host and port of what sums for the ranks; empty if they do.
    """

    def __init__(
        self,
        group: _native.Group,
        rank: int,
        names: Sequence[int],
        medium: str,
        aggregator: str = "",
    ) -> None:
        self._aggregator = aggregator
        self._names = tuple(names)
        self._medium = medium
        self.rank = self._names[rank]
        self.ranks = len(self._names)
        self._pid = os.getpid()
        self._failure = ""
        self._own = rank
        self._group = group
        self._run = group.run

    def run(
        self,
        inputs: int | Sequence[int],
        outputs: int | Sequence[int],
        call: GroupCall,
        timeout_s: float,
        interrupted: Callable[[], str | None],
        history: int = 0,
        waited_s: float = 0.0,
    ) -> None:
        """Do any collective.

        Args:
            inputs: Address of the tensor that the rank gives, or addresses of its parts; () for a
                collective in place.
            outputs: The same of the tensor that it gets.
            call: The call to carry out.
            timeout_s: How long the operation may take, other ranks' delays included.
            interrupted: Called ten times a second while waiting; a text that it returns ends the
                operation with that text as error.
            history: 64 bits that must be the same at all ranks, such as a hash of the calls before;
                0 for none.
            waited_s: How much of the timeout has passed.

        Raises:
            ValueError: There can be no such call. Nothing has happened, and the worker goes on.
            Disagreement: Another rank called something else. No rank's tensor has changed.
            RanksMissing: Ranks have not come in time; the error names them.
            RanksEnded: Ranks will not come; the error names them.
            DeadlineExceeded: The time is over, though all ranks have come.
            AggregatorUnreachable: The aggregator has ended, or failed the group.
            Interrupted: `interrupted` gave a reason, or another rank has failed.
            WorkerFailed: This worker had failed before.
        """
        if self._failure:
            raise self._failed_before()
        slice_s = min(_SLICE_S, max(0.0, timeout_s - waited_s))
        try:
            operation = self._run(
                call.collective,
                inputs,
                outputs,
                call.count,
                call.dtype,
                call.reduction,
                call.root,
                call.fingerprint,
                history,
                slice_s,
            )
            if operation:
                self._wait(operation, timeout_s, waited_s + slice_s, interrupted)
        except BaseException as error:
            raise self._seen(error, call) from None

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def agreement(number: int) -> GroupCall:
        """Return a barrier that ranks pass which have the same number, at most 32 bits wide."""
        return GroupCall.barrier(f"agreement:{number}")

    def trouble(self) -> AffluxError | None:
        """Return the error if a rank has ended or failed the group, which this one cannot heed."""
        if self._group.dead() or self._group.failed():
            return self._lost(self._group.failure())
        return None

    def calls(self) -> Any:
        """Return a capsule with the calls of `c_api.h`."""
        return self._group.calls()

    def finish(
        self,
        call: GroupCall,
        operation: int,
        timeout_s: float,
        interrupted: Callable[[], str | None],
        waited_s: float = 0.0,
    ) -> None:
        """Wait for an operation that was begun through `calls` and is not yet over.

        Args:
            call: The call, for messages.
            operation: Its number.
            timeout_s: How long the operation may take, from its beginning.
            interrupted: As for `run`.
            waited_s: How long it has taken so far.

        Raises:
            AffluxError: As for `run`.
        """
        try:
            self._wait(operation, timeout_s, waited_s, interrupted)
        except BaseException as error:
            raise self._seen(error, call) from None

    def failure_of(self, status: int, call: GroupCall, text: str = "") -> Exception:
        """Return the error for what a function of `calls` returned.

        Args:
            status: A `Status`, neither OVER nor NOT_YET.
            call: The call.
            text: The outcome's text.
        """
        if status == Status.INVALID:
            return ValueError(text)
        if status == Status.DISAGREEMENT:
            return self._fail_with(self._disagreement(call), call)
        return self._fail_with(self._lost(text), call)

    def fail(self, reason: str) -> None:
        """Make the other ranks leave their operations now. Any thread."""
        self._group.fail(reason)

    def close(self) -> None:
        """Leave the group."""
        self._failure = self._failure or "it is closed"
        if os.getpid() == self._pid:
            self._group.close()

    def _text(self, call: GroupCall) -> str:
        number = max(self._group.in_progress(), 1) - 1
        return f"{number}:{call.name}"

    def _failed_before(self) -> WorkerFailed:
        return WorkerFailed(f"rank {self.rank}'s {self._medium} failed earlier: {self._failure}")

    def _wait(
        self,
        operation: int,
        timeout_s: float,
        waited_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        deadline = time.monotonic() + timeout_s - waited_s
        while True:
            reason = interrupted()
            left_s = deadline - time.monotonic()
            ends = reason is not None or left_s <= 0
            if self._group.advance(0.0 if ends else min(left_s, _SLICE_S), operation):
                return
            if reason is not None:
                raise Interrupted(f"rank {self.rank}: {reason}")
            if left_s <= 0:
                raise self._too_late(timeout_s)

    def _seen(self, error: BaseException, call: GroupCall) -> BaseException:
        """Return the error in words, after which the worker has failed unless nothing was begun."""
        if isinstance(error, _native.GroupDisagreement):
            return self._fail_with(self._disagreement(call), call)
        if isinstance(error, _native.GroupFailed):
            return self._fail_with(self._lost(str(error)), call)
        if isinstance(error, ValueError) and not self._group.in_progress():
            return error
        return self._fail_with(error, call)

    def _fail_with(self, error: _Error, call: GroupCall) -> _Error:
        if isinstance(error, AffluxError):
            error.operation = error.operation or self._text(call)
        self._failure = self._failure or str(error) or type(error).__name__
        return error

    def _too_late(self, timeout_s: float) -> DeadlineExceeded:
        ranks = self._named(self._group.missing())
        obstacle = self._group.obstacle()
        also = f"; {obstacle}" if obstacle else ""
        if not ranks and self._group.waits_for_aggregator():
            return DeadlineExceeded(
                f"{timed_out(timeout_s)}: rank {self.rank} still waits for the results of the "
                f"aggregator at {self._aggregator} ({self._medium}){also}"
            )
        if not ranks:
            return DeadlineExceeded(
                f"{timed_out(timeout_s)} at rank {self.rank} ({self._medium}){also}"
            )
        return RanksMissing(
            f"{timed_out(timeout_s)}: rank {self.rank} still waits for the contributions "
            f"of rank(s) {_names(ranks)} ({self._medium}){also}",
            ranks,
        )

    def _lost(self, reason: str) -> AffluxError:
        ended = self._named(self._group.dead())
        if ended:
            return RanksEnded(
                f"rank(s) {_names(ended)} ended or closed the group; rank {self.rank} waited for "
                f"their contributions ({self._medium}: {reason})",
                ended,
            )
        if self._aggregator and "the aggregator: " in reason:
            return self._aggregator_lost(reason)
        return Interrupted(f"rank {self.rank}: {reason}")

    def _aggregator_lost(self, reason: str) -> AffluxError:
        before, _, after = reason.partition("the aggregator: ")
        return AggregatorUnreachable(
            f"rank {self.rank}: {before}the aggregator at {self._aggregator}: {after}"
        )

    def _named(self, ranks: Iterable[int]) -> tuple[int, ...]:
        return tuple(self._names[rank] for rank in ranks)

    def _disagreement(self, call: GroupCall) -> Disagreement:
        group = self._group
        fingerprints, histories = tuple(group.fingerprints()), group.histories()
        own, differing = fingerprints[self._own], list(self._named(group.differing()))
        about = f"rank {self.rank} called this operation, but ranks {differing}"
        if len(set(fingerprints)) == 1 and len(set(histories)) > 1:
            about += " have called other ones before"
        else:
            about += " called something else"
        return Disagreement(
            f"the ranks disagree: {about} ({self._medium})",
            number=max(group.in_progress(), 1) - 1,
            description=self._text(call),
            fingerprint=own,
            # Some ranks of a larger group are not all of it.
            fingerprints=fingerprints if self._names == tuple(range(self.ranks)) else None,
        )


def _names(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(rank) for rank in ranks)

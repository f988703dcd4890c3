"""Sums that go on when the aggregators end: over what the job has left, with the same bits.

A rank whose aggregator has ended declares that in the store (`afflux.group.store.epoch`). All
ranks, idle ones too, then take no result of the aggregators any more, and only after that write
down which they have. Those that have results others lack give them away; then the reducer that all
make together carries out the rest of the call that was running, and all later ones. An input is
overwritten only by its result, so what is nobody's result is everybody's input
(`afflux.group.reducers.recovery`).

Later the ranks may come back to aggregators, together (`afflux.group.reducers.fail_back`).

The aggregators' probes must go unanswered, or their connections end: one that says that ranks are
missing is waited for, however long these are.

Tested: `tests/host/test_fail_over.py`, `tests/host/test_fail_back.py`.
"""

import base64
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from afflux.group.call.collectives import Asked
from afflux.group.reducers.attending import Attending
from afflux.group.reducers.fail_back import FailBack
from afflux.group.reducers.recovery import Plan, Results, Rows, State, complete, plan_of
from afflux.group.reducers.reducer import Interruption, Reducer
from afflux.group.reducers.topology import Topology
from afflux.group.store.epoch import Epoch
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import (
    AffluxError,
    AggregatorUnreachable,
    RanksMissing,
    timed_out,
)
from afflux_hdl.contract import wire

__all__ = ["ContinuedReducer", "Replace", "continued"]

_log = logging.getLogger("afflux")


_SIZES = ("aggregators", "lanes", "slots", "threads")
"""Integers of `statistics` that do not count events."""


class Replace(Protocol):
    """Makes the reducer that goes on."""

    def offer(self, limit_s: float) -> None:
        """Write what others must know for that, in so many seconds; before the own state."""

    def __call__(self, reason: str, limit_s: float, look: Callable[[], None]) -> Reducer[Any]:
        """Make it, together with all ranks, within so many seconds.

        While it waits for them it calls `look`, which raises an `AffluxError` if that is in vain.
        """

    def give_up(self, error: BaseException) -> None:
        """Let the other ranks know that this one makes none."""


class ContinuedReducer(ABC):
    """A reducer that goes on over another one when its aggregators end: what all such have.

    They differ in `_fence`, `_settle`, `_call_text`, `_kind`, `_keeps`, `_retire` and `_come_back`.

    Args:
        results: The aggregators' results at this rank.
        rank: Own rank.
        size: Ranks of the group.
        epoch: The change to the other reducer.
        replace: Makes that.
        timeout_s: The group's timeout, for what no call waits for.
        back: The way back to aggregators.
    """

    topology: Topology
    engine: str
    tickets: tuple[JobTicket, ...]

    def __init__(
        self,
        results: Results,
        rank: int,
        size: int,
        epoch: Epoch,
        replace: Replace,
        timeout_s: float,
        back: FailBack,
    ) -> None:
        self._journal = results
        self._rank = rank
        self._size = size
        self._epoch = epoch
        self._replace = replace
        self._group = Attending(rank, timeout_s)
        self._back = back
        self._other: Reducer[Any] | None = None
        # Those over aggregators that this one has come back to, and that have ended as well.
        self._past: list[Any] = []
        # Counts of what has been used between two aggregators.
        self._counts_before: list[dict[str, Any]] = []
        self._ended = ""
        self._busy = False
        self._went_over = 0
        self._calls_other = False

    @abstractmethod
    def _fence(self) -> None:
        """Take no result of the aggregators any more."""

    def _settle(self, deadline: float, interrupted: Interruption) -> None:  # noqa: B027
        """Take what others of the host have left for this rank, which may end its call."""

    def _keeps(self) -> bool:
        """Return whether this rank has kept what others may lack of the call that was over last."""
        return True

    @abstractmethod
    def _call_text(self) -> str:
        """Return the call that is running, as the ranks compare it."""

    @abstractmethod
    def _kind(self) -> tuple[torch.dtype, str]:
        """Return the type of its elements, and its reduction."""

    def _retire(self, other: Reducer[Any]) -> None:  # noqa: B027
        """Leave to the other reducer what this one has had, once all ranks have gone over."""

    def attended(
        self, interrupted: Interruption, gone: Callable[[], Sequence[int]], news: Callable[[], None]
    ) -> None:
        """Let the group hear of a change while it is idle.

        Args:
            interrupted: As for `run`.
            gone: Returns the ranks that have ended or left the group.
            news: Called once, in a thread that must not wait: `attend` is due.
        """
        group = self._group
        group.interrupted, group.gone, group.news = interrupted, gone, news
        self._epoch.watch(news)

    def attend(self, look: bool = False) -> None:
        """Go over, or come back, with the others if one has declared it. For whose turn it is.

        Args:
            look: Whether the store is asked, however recently it was.

        Raises:
            AffluxError: As for `run`.
        """
        if self._busy or self._ended:
            return
        if self._other is not None:
            if isinstance(self._other, ContinuedReducer):
                self._other.attend(look)
            elif self._back.hear(look) and not self._calls_other:
                self._come_back(self._group.interrupted, wait=look)
            return
        if look:
            self._epoch.look()
        declared = self._epoch.declared()
        if declared is not None:
            deadline = time.monotonic() + self._group.timeout_s
            self._go_over(AggregatorUnreachable(str(declared)), deadline, self._group.interrupted)

    def bequeath(self) -> None:
        """Leave the last call's results to ranks that may lack them: this one leaves the group."""
        further = continued(self._other) if self._other is not None else None
        if further is not None:
            further.bequeath()
        elif self._other is None and not self._ended and self._journal.over:
            try:
                kept = self._kept if self._keeps() else None
                self._epoch.bequeath(self._state(left=True), kept)
            except RuntimeError:
                _log.debug("the last results were not left to the others", exc_info=True)

    def _works(self) -> bool:
        """Return whether the aggregators are still used.

        Raises:
            AggregatorUnreachable: They are not, and nothing has taken their place.
        """
        if self._ended:
            raise AggregatorUnreachable(self._ended)
        return self._other is None

    def _go_over(
        self, death: AggregatorUnreachable, deadline: float, interrupted: Interruption
    ) -> bool:
        """Change to the other reducer, together with all ranks.

        Args:
            death: Why.
            deadline: Until when the others must have come.
            interrupted: As for `run`.

        Returns:
            Whether the call that was running is over; if not, it is to be carried out anew.

        Raises:
            AffluxError: Ranks have not come, results are lost, or nothing takes the place.
        """
        busy, self._busy = self._busy, True
        began_s = time.monotonic()
        death.operation = ""
        self._ended = str(death)
        try:
            text = str(self._epoch.declare(str(death)))
        except RuntimeError as silence:
            raise AggregatorUnreachable(f"{death}; nor is there a way on: {silence}") from death
        try:
            ended = self._journal.over
            self._fence()
            self._replace.offer(max(0.5, deadline - time.monotonic()))
            self._settle(deadline, interrupted)
            settled = self._journal.over > ended
            plan = plan_of(self._states(deadline, interrupted))
            if self._rank == plan.giver:
                self._epoch.give(self._kept())
            if plan.ends:
                over = self._take(plan, deadline, interrupted) or settled
                self._ended = f"{text}; and ranks have left the group, so nothing takes its place"
                return over
            left_s = max(0.5, deadline - time.monotonic())
            made = self._replace(text, left_s, lambda: self._group.look(interrupted))
            self._adopt(made)
            self._ended = ""
            self._went_over += 1
            if not isinstance(made, ContinuedReducer):
                self._back.begin(self._group)
            # Only now: others wait for what this rank says of the way, and for nothing of this.
            over = self._take(plan, deadline, interrupted) or settled
            if plan.together:
                self._complete(deadline, interrupted)
                over = True
            self._retire(made)
            _log.info(
                "rank %d: goes on over %s after %.3f s; the running call %s", self._rank,
                made.topology.name, time.monotonic() - began_s,
                "is over" if over else "is carried out anew, if there is one",
            )  # fmt: skip
            return over
        except BaseException as error:
            self._ended = self._ended or str(error)
            self._replace.give_up(error)
            if isinstance(error, AffluxError):
                error.args = (f"{error} (after: {text})", *error.args[1:])
            raise
        finally:
            self._busy = busy

    def _come_back(self, interrupted: Interruption, wait: bool) -> Reducer[Any] | None:
        """Sum by aggregators again if all ranks do from here on. Between two calls.

        Args:
            interrupted: As for `run`.
            wait: As for `FailBack.attend`.

        Returns:
            The reducer that does it; None if all stays as it is.

        Raises:
            AffluxError: As for `FailBack.attend`.
        """
        busy, self._busy = self._busy, True
        try:
            made = self._back.attend(interrupted, wait)
            if made is not None:
                before = self._replacing()
                self._adopt(made)
                self._counts_before.append(before.statistics())
                before.leave()
            return made
        finally:
            self._busy = busy

    @contextlib.contextmanager
    def _calling_other(
        self, deadline: float, interrupted: Interruption
    ) -> Iterator[tuple[Reducer[Any], float]]:
        """Yield the reducer that carries out a call, and until when: behind the way back."""
        began_s = time.monotonic()
        self._come_back(interrupted, wait=True)
        deadline += time.monotonic() - began_s
        self._back.call_begins()
        self._calls_other = True
        try:
            yield self._replacing(), deadline
        finally:
            self._calls_other = False
        self._come_back(interrupted, wait=False)

    def _adopt(self, other: Reducer[Any]) -> None:
        """Go on over another reducer, which hears of the group what this one hears."""
        self._other = other
        self._name(other)
        if isinstance(other, ContinuedReducer):
            group = self._group
            other.attended(group.interrupted, group.gone, group.news)

    def _name(self, other: Reducer[Any]) -> None:
        """Be called what the other reducer is, which may have gone over to another one itself."""
        self.topology, self.engine, self.tickets = other.topology, other.engine, other.tickets

    def _state(self, left: bool = False) -> dict[str, Any]:
        journal = self._journal
        running = journal.running
        taken = journal.taken.count(1) if running else 0
        call = self._call_text() if running else ""
        return State(journal.over, running, taken, call, left)._asdict()

    def _kept(self) -> dict[str, Any]:
        """Return what another rank may lack of the call that was over last."""
        journal = self._journal
        contents = base64.b64encode(journal.contents).decode()
        return {"blocks": journal.kept, "contents": contents, "all": journal.taken_before}

    def _states(self, deadline: float, interrupted: Interruption) -> dict[int, State]:
        """Return the states of all ranks, once all have fenced themselves off."""
        self._epoch.write_state(self._state())
        found = self._await_states(range(self._size), deadline, interrupted)
        return {rank: State.of(found[rank]) for rank in sorted(found)}

    def _await_states(
        self, ranks: Collection[int], deadline: float, interrupted: Interruption
    ) -> dict[int, dict[str, Any]]:
        """Return what these ranks have written, once all have."""
        found: dict[int, dict[str, Any]] = {}

        def come() -> bool:
            gone = set(self._group.gone())
            missing = set(ranks) - found.keys()
            # A rank that has left has written its own before, perhaps a moment ago.
            at_once = not gone.isdisjoint(missing)
            found.update(self._epoch.states(missing, at_once))
            missing -= found.keys()
            self._group.lose(gone & missing)
            return not missing

        try:
            self._group.wait(come, deadline, interrupted)
        except RanksMissing as error:
            if isinstance(error, RanksEnded):
                raise
            late = tuple(rank for rank in ranks if rank not in found)
            raise RanksMissing(
                f"{timed_out(self._group.timeout_s)}: rank {self._rank} still waits for rank(s) "
                f"{', '.join(map(str, late))} to go on without the aggregator",
                late,
            ) from None
        return found

    def _take(self, plan: Plan, deadline: float, interrupted: Interruption) -> bool:
        """Take what this rank lacks of a call that is over elsewhere; return whether it did."""
        giver = plan.giver
        if giver is None or self._rank not in plan.behind:
            return False
        given: dict[str, Any] = {}

        def come() -> bool:
            given.update(self._epoch.given() or {})
            return bool(given)

        try:
            self._group.wait(come, deadline, interrupted)
        except RanksMissing as error:
            if isinstance(error, RanksEnded):
                raise
            raise RanksMissing(f"rank {giver} does not give its results", (giver,)) from None
        taken = np.frombuffer(self._journal.taken, np.uint8).astype(bool)
        blocks = np.array(given["blocks"], np.intp)
        contents = base64.b64decode(given["contents"])
        rows = np.frombuffer(contents, np.uint8).reshape(-1, wire.BLOCK_BYTES)
        order = np.argsort(blocks)
        lacking = order[~taken[blocks[order]]]
        Rows(self._journal.result).write(blocks[lacking], rows[lacking])
        taken[blocks] = True
        if np.count_nonzero(taken) != given["all"]:
            raise AffluxError(
                f"rank {self._rank} has {np.count_nonzero(taken)} of {given['all']} blocks of "
                f"results, with those that rank {giver} has kept: the rest is lost"
            )
        return True

    def _complete(self, deadline: float, interrupted: Interruption) -> None:
        """Bring the call that all are in to its end: results to all, the rest summed."""
        dtype, reduction = self._kind()

        def move(octets: NDArray[np.uint8]) -> None:
            words = torch.from_numpy(octets.reshape(-1)).view(torch.int32)
            self._all_reduce_by_other(words, "sum", deadline, interrupted)

        def reduce(octets: NDArray[np.uint8]) -> None:
            elements = torch.from_numpy(octets.reshape(-1)).view(dtype)
            self._all_reduce_by_other(elements, reduction, deadline, interrupted)

        taken = np.frombuffer(self._journal.taken, np.uint8)
        complete(self._journal.result, taken, self._rank, self._size, move, reduce)

    def _replacing(self) -> Reducer[Any]:
        """Return the reducer that goes on.

        Raises:
            AggregatorUnreachable: Nothing has taken the place.
        """
        if self._other is None:
            raise AggregatorUnreachable(self._ended)
        latest = continued(self._other)
        while latest is not None and latest._other is not None and continued(latest._other):
            # However often they go over and come back, a call passes through two of them at most.
            self._past += latest, *latest._past
            self._other, latest._other, latest._past = latest._other, None, []
            latest = continued(self._other)
        return self._other

    def _all_reduce_by_other(
        self, tensor: torch.Tensor, reduction: str, deadline: float, interrupted: Interruption
    ) -> None:
        """Reduce a tensor in place by the reducer that goes on."""
        other = self._replacing()
        asked = Asked("all_reduce", tensor.dtype, tuple(tensor.shape), reduction)
        timeout_s = max(0.0, deadline - time.monotonic())
        other.run(other.plan(asked), [], [tensor], timeout_s, interrupted)
        self._name(other)

    def _counts_of_all(self, counts: dict[str, Any]) -> dict[str, Any]:
        """Return these counts with those of reducers of the same kind that came after this one."""
        found = dict(counts)
        present = [each.statistics() for each in (*self._past, self._other) if each is not None]
        for later in (*self._counts_before, *present):
            if later.keys() >= counts.keys():
                for name in counts:
                    adds = isinstance(counts[name], int) and name not in _SIZES
                    found[name] = found[name] + later[name] if adds else later[name]
        return found

    def _changes(self) -> dict[str, int]:
        """Return how often the sums have gone over to others, and come back."""
        further = self._other.statistics() if self._other is not None else {}
        own = {
            "fail_overs": sum(each._went_over for each in (self, *self._past)),
            "fail_backs": sum(each._back.count for each in (self, *self._past)),
        }
        return {name: count + int(further.get(name, 0)) for name, count in own.items()}

    def _leave_other(self) -> None:
        self._back.close()
        other, self._other = self._other, None
        past, self._past = self._past, []
        for each in (other, *past):
            if each is not None:
                each.leave()


def continued(reducer: Reducer[Any]) -> ContinuedReducer | None:
    """Return the reducer if it is one that goes on without its aggregators."""
    return reducer if isinstance(reducer, ContinuedReducer) else None

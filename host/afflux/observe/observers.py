"""All that observes one group: what its core reports to, and the recorder, trace and hooks behind.

The core calls, for each collective, send and receive, and only while `active` is true:

    observation = observers.begin(…)         asked for, in the caller's thread
    observers.started(observation)           it begins to run
    observers.end(observation, error)        it is over; None if all went well

and, whether `active` or not, `observers.failed(error)` once when the group ends with an error, in
which an operation that is in progress has not been ended yet, and `observers.close()` before the
reducer is closed.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from afflux.observe.call_counts import CallCounts
from afflux.observe.dump_file import dump_at_failure
from afflux.observe.flight_recorder import FlightRecorder, GroupRecord, process_recorder
from afflux.observe.hooks import Hooks
from afflux.observe.observation import POINT_TO_POINT, Observation
from afflux.observe.trace_file import TraceFile, trace_file

__all__ = ["Observers"]

_log = logging.getLogger("afflux")

_BLOCK_COUNTS = ("blocks_present", "blocks_total", "blocks_sent", "retransmissions")
"""Of a reducer's statistics: what a call's own share of is worth knowing."""


class Observers:
    """The observers of one group.

    Args:
        group: Its name, as torch has it.
        description: Likewise, such as "default_pg".
        rank: Own rank in it.
        size: Its ranks.
        global_ranks: Their ranks in the world, by rank.
        engine: Kind of engine: "shm", "soft", …; empty if it is not known yet.
        trace: AFFLUX_TRACE; None or empty for no trace.

    Attributes:
        active: Whether anybody observes calls. The core need not report any while it is false.
        hooks: The user's.
        counts: Calls by collective and way, of those that were observed.

    Raises:
        ValueError: A variable of torch's recorder has a value that it cannot have.
        OSError: The file of the trace cannot be opened.
    """

    def __init__(
        self,
        group: str,
        description: str,
        rank: int,
        size: int,
        global_ranks: Sequence[int],
        engine: str = "",
        trace: str | None = None,
    ) -> None:
        self.active = False
        self._tell: Callable[[bool], None] = lambda active: None
        self.counts = CallCounts()
        self.hooks = Hooks(self._refresh)
        # Without its members' ranks in the world a group counts as the world.
        members = tuple(global_ranks) if len(global_ranks) == size else tuple(range(size))
        self._record = GroupRecord(group, description or "undefined", rank, members, engine)
        self._size = size
        self._statistics: Callable[[], Mapping[str, Any]] | None = None
        self._failed = False
        self._unsettled: list[tuple[Observation, Any]] = []
        self._trace: TraceFile | None = (
            trace_file(trace, self._record.global_rank) if trace else None
        )
        self._recorder: FlightRecorder | None = process_recorder()
        if self._recorder is not None:
            self._record.settle = self._settle
            self._recorder.enter(self._record)
        self._refresh()

    @property
    def global_ranks(self) -> tuple[int, ...]:
        """The members' ranks in the world, by rank."""
        return self._record.global_ranks

    @property
    def global_rank(self) -> int:
        """Own rank in the world."""
        return self._record.global_rank

    def tell(self, changed: Callable[[bool], None]) -> None:
        """Have `changed` called with `active`, now and whenever it changes."""
        self._tell = changed
        changed(self.active)

    def describe(self, description: str) -> None:
        """Take the group's description, which torch gives it after it has been made."""
        self._record.description = description or "undefined"

    def measure(self, statistics: Callable[[], Mapping[str, Any]], engine: str = "") -> None:
        """Say where the reducer's counts are read, for the blocks of each call, and its kind."""
        self._record.engine = engine or self._record.engine
        self._statistics = statistics
        self._record.statistics = lambda: dict(statistics())

    def begin(
        self,
        sequence: int,
        name: str,
        text: str,
        way: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        timeout_s: float,
        peer: int | None = None,
        tag: int = 0,
    ) -> Observation:
        """Observe a call that has been asked for. In the caller's thread.

        Args:
            sequence: Its number among the group's collectives, the same at every rank, from 1. For
                one that is queued the number that it will have, if the calls before it call
                nothing; for a send or a receive that of the latest collective.
            name: The collective, as `afflux.group.call.description.canonical_name` has it.
            text: All that it asks for, in words.
            way: "engine" or "gloo".
            inputs: The tensors that it reads; they are not kept.
            outputs: The tensors that it writes.
            timeout_s: Its timeout.
            peer: The other rank of a send or a receive.
            tag: Of a send or a receive.
        """
        self._settle()
        record = self._record
        observation = Observation(
            record.name,
            record.rank,
            sequence,
            name,
            text,
            way,
            inputs,
            outputs,
            timeout_s,
            peer,
            tag,
        )
        if self._recorder is not None:
            self._recorder.record(record, observation)
        self.hooks.call_before(observation)
        return observation

    def started(self, observation: Observation, sequence: int | None = None) -> None:
        """Note that a call begins to run.

        Args:
            observation: The call.
            sequence: The number that it has after all.
        """
        if sequence is not None:
            observation.sequence = sequence
        if observation.way == "engine" and self._statistics is not None and self._keeps_calls:
            observation.before_counts = self._counts_now()
        if observation.name not in POINT_TO_POINT:
            self._record.last_started = observation.sequence
        observation.started_ns = time.monotonic_ns()

    def end_later(self, observation: Observation, work: Any) -> None:
        """Note the end and the source of a receive from anybody when its Work is over.

        That is noticed when the next call is asked for, or the flight record: its end looks later
        than it is.
        """
        self._unsettled.append((observation, work))

    def _settle(self) -> None:
        if not self._unsettled:
            return
        unsettled, self._unsettled = self._unsettled, []
        for observation, work in unsettled:
            if not work.is_completed():
                self._unsettled.append((observation, work))
                continue
            observation.peer = work._source_rank()
            if self._recorder is not None:
                self._recorder.count_transfer(self._record, observation)
            self.end(observation)

    def end(self, observation: Observation, error: BaseException | None = None) -> None:
        """Note that a call is over. In whatever thread ended it."""
        observation.ended_ns = time.monotonic_ns()
        if error is not None:
            observation.error = str(error) or type(error).__name__
        elif observation.name not in POINT_TO_POINT:
            self._record.last_completed = observation.sequence
        began_ns = observation.started_ns or observation.created_ns
        duration_ns = observation.ended_ns - began_ns
        self.counts.add(observation.name, observation.way, observation.bytes, duration_ns)
        before = observation.before_counts
        if before:
            after = self._counts_now()
            observation.blocks = {key: after[key] - before[key] for key in before if key in after}
            observation.before_counts = {}
        if self._trace is not None:
            self._write_line(observation)
        self.hooks.call_after(observation)

    def failed(
        self,
        error: BaseException,
        missing: Sequence[int] = (),
        doing: Mapping[int, str] | None = None,
    ) -> None:
        """Tell everybody that the group has ended with an error. Only the first time counts.

        Args:
            error: The error that ended it.
            missing: The ranks for which the operation waited; the error's own `ranks` if empty.
            doing: The call of each rank, by rank, as far as it is known.
        """
        if self._failed:
            return
        self._failed = True
        record = self._record
        record.failure, record.failure_kind = str(error), type(error).__name__
        record.missing_ranks = tuple(missing or getattr(error, "ranks", ()))
        record.doing = dict(doing or {})
        if self._recorder is not None:
            dump_at_failure(self._recorder, record.global_rank)
        self.hooks.call_abort(error)

    def close(self) -> None:
        """Note that the group ends, before its reducer does: it is not asked for counts again."""
        self._settle()
        self._tell = lambda active: None
        record, statistics = self._record, self._statistics
        if statistics is None:
            return
        self._statistics = None
        try:
            last = dict(statistics())
        except Exception:
            last = {}
        record.statistics = lambda: last

    @property
    def _keeps_calls(self) -> bool:
        return self._recorder is not None or self._trace is not None

    def _refresh(self) -> None:
        active = self._keeps_calls or self.hooks.watch_calls
        if active != self.active:
            self.active = active
            self._tell(active)

    def _counts_now(self) -> dict[str, int]:
        assert self._statistics is not None
        try:
            counts = self._statistics()
        except Exception:
            # A reducer that is closed by another thread at this moment.
            return {}
        return {key: counts[key] for key in _BLOCK_COUNTS if key in counts}

    def _write_line(self, observation: Observation) -> None:
        assert self._trace is not None
        try:
            self._trace.write(observation, self._record.global_rank, self._size)
        except OSError as error:
            _log.error("AFFLUX_TRACE: %s cannot be written: %s", self._trace.path, error)
            self._trace = None
            self._refresh()

"""A group at one rank: which calls go to the engine, and which to Gloo."""

import collections
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from afflux.group.call.backend_methods import BackendMethods
from afflux.group.call.description import (
    Call,
    HandedCall,
    KnownCall,
    describe,
    sides,
)
from afflux.group.call.errors import GroupClosed, error_kind
from afflux.group.call.parts import PYTHON_PARTS, ListKeys, Parts
from afflux.group.call.plain import Planned
from afflux.group.call.tensors import dtype_name
from afflux.group.call.work import NO_TIMEOUT, limit_of
from afflux.group.engine_calls import EngineCalls
from afflux.group.exit_hooks import end_users, is_exiting, open_groups
from afflux.group.forming.formation import Formed, form
from afflux.group.forming.rendezvous import decline
from afflux.group.progress import Progress
from afflux.group.reducers.continued_reducer import continued
from afflux.group.reducers.monitored_barrier import monitored_barrier
from afflux.group.reducers.reducer import Comparison
from afflux.group.reducers.sparse_sums import SparseSums, sparse_call
from afflux.group.reducers.transfers import pass_on
from afflux.group.settings.membership import Membership
from afflux.group.settings.options import settings_for
from afflux.group.settings.variables import Settings, SettingsError
from afflux.group.staged_blocks import StagedBlocks
from afflux.group.staged_calls import StagedCalls, device_of
from afflux.group.store.notices import CallRecord, Notices, behind
from afflux.observe.observation import Observation
from afflux.observe.observers import Observers
from afflux_drivers.errors import AffluxError

__all__ = ["Group"]

_log = logging.getLogger("afflux")

_BARRIER = Call("barrier", "-", "barrier", "barrier")


class Group(BackendMethods):
    """Ranks that share a reducer, with Gloo for what the engine does not do.

    Its collectives have the names and arguments of c10d's `Backend`, and return a Work. torch
    reaches them through an adapter (`afflux.adapters`).

    One operation has the turn at a time, whichever way it takes, and the ranks compare what they
    call: at an aggregator before each operation; in shared memory within each of its operations,
    which also compares the calls to Gloo since the one before. So a rank that calls something else
    causes an error at every rank, not a hang or a wrong sum. Sends and receives, in which only two
    ranks take part, go straight to Gloo.

    Args:
        membership: Of this rank.
        parts: Turn and Works of the adapter.
        form: Meets the other ranks, and makes what the group consists of.

    Attributes:
        observers: Its calls are reported to them.

    Raises:
        AffluxError: The group's ranks do not all reach the aggregator; at every rank.
    """

    def __init__(
        self,
        membership: Membership,
        parts: Parts = PYTHON_PARTS,
        form: Callable[[Membership, Settings, ListKeys | None], Formed] = form,
    ) -> None:
        rank, size, name = membership.rank, membership.size, membership.name
        self.membership = membership
        self.shrinks = 0
        self.rank, self.size, self.name = rank, size, name
        self.global_ranks = list(membership.global_ranks) or list(range(size))
        self.pid = os.getpid()
        self.timeout_s = membership.timeout.total_seconds()
        # Groups that are made of this one's ranks start from the same.
        self.pg_options = membership.pg_options
        self._parts = parts
        self._more_counts: Callable[[], dict[str, int]] = dict
        self._let_go: Callable[[], None] = _nothing
        self.held: list[Any] = []  # must live as long as the group
        try:
            self.settings = settings_for(membership.pg_options)
            trace = self.settings.trace
            self.observers = Observers(name, "", rank, size, self.global_ranks, trace=trace)
        except (SettingsError, TypeError, ValueError, OSError) as error:
            decline(membership, str(error))
            kind = TypeError if isinstance(error, TypeError) else SettingsError
            raise kind(f"rank {rank}: {error}") from None
        try:
            formed = form(membership, self.settings, parts.list_keys)
        except AffluxError as error:
            # Its text says all; each rank would show two stacks of places in Afflux besides.
            _log.debug("rank %d: the group could not be formed", rank, exc_info=True)
            raise error.with_traceback(None) from None
        self.reducer = formed.reducer
        self.gloo = formed.gloo
        self.fallback = formed.fallback
        self.store = formed.keys.store
        self.closed = False
        keys = self._keys = formed.keys
        self._witness = formed.witness
        self.observers.measure(self.reducer.statistics, self.reducer.engine)
        self._progress = Progress(
            Notices(keys, rank, size),
            keys,
            self.reducer.give_up,
            self._finish,
            self._has_failed,
            parts,
            rank,
            size,
            f"afflux-{name}-rank{rank}",
            self._witness.lost,
            continued(self.reducer),
        )
        self.turn = self._progress.turn
        of_group = self.reducer, self.fallback, self._progress.interrupted
        self._calls = EngineCalls(*of_group, self.turn, self._progress.wake, size)
        self.sums = SparseSums(*of_group, rank, size, self.turn.count_engine_operation)
        self.staged_blocks = StagedBlocks(self.sums, self.settings.device_blocks)
        staging = self._calls, self.staged_blocks, self._progress.interrupted
        self._staged = StagedCalls(*staging, size)
        self.reducer.follow(self.turn)
        open_groups.add(self)

    def barrier(self, options: dist.BarrierOptions) -> Any:
        """Agree with every rank that it is here; that is all it takes."""
        if self.reducer.comparison is Comparison.NEVER:
            return self._fall_back("barrier", (options,))
        limit_s = limit_of(options, self.timeout_s)
        seen = self._observe(_BARRIER.name, _BARRIER.text, "engine", [], [], limit_s)
        work = self._begin(seen, _BARRIER, [], (options,), limit_s)
        if work is not None:
            return work
        meet = self._calls.meet, _BARRIER, limit_s
        return self._do(seen, _BARRIER.text, not options.asyncOp, *meet)

    def monitored_barrier(self, limit: Any, wait_all_ranks: bool = False) -> None:
        """See `torch.distributed.monitored_barrier`.

        Args:
            limit: A timedelta, or options with one; None for the group's timeout.
            wait_all_ranks: Whether rank 0 names all ranks that have not come, not the first only.

        Raises:
            RanksMissing: At rank 0: ranks have not come; the error names them.
            AffluxError: At another rank: rank 0 has raised an error, or has not come.
        """
        self.check()
        wish = getattr(limit, "timeout", limit)
        # torch's mark for "the group's" is negative; none at all is a limit like others.
        own = wish is None or wish < NO_TIMEOUT
        timeout = timedelta(seconds=self.timeout_s) if own else wish
        seconds = timeout.total_seconds()

        def step() -> None:
            monitored_barrier(self.gloo, self.global_ranks, timeout, wait_all_ranks)

        # Gloo numbers what all ranks call, and the barrier is two such calls.
        self._progress.outside("monitored_barrier", step, seconds)

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit the operations that are submitted from now on."""
        self.timeout_s = timeout.total_seconds()
        self.gloo._set_default_timeout(timeout)

    def shutdown(self) -> None:
        """End the group: operations in flight are carried out, or fail within bounded time."""
        self._close(self.settings.close_timeout_s, self.settings.close_timeout_s)

    def abort(self) -> None:
        """End the group without waiting for operations in flight or for other ranks."""
        self._close(0.0, 0.0)

    @property
    def sequence(self) -> int:
        """Number of the latest collective, from 1; 0 before the first."""
        return self.turn.sequence

    @property
    def engine_operations(self) -> int:
        """Operations that the reducer has carried out."""
        return self.turn.engine_operations

    @property
    def failure(self) -> Exception | None:
        """The error that ended the group, if one did."""
        return self._progress.failure

    @property
    def error_kind(self) -> str:
        """The error that has ended the group, as a name of torch's `ErrorType`."""
        return error_kind(self.failure)

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Make flat zeros, which every rank reaches if the group shares memory. Collective.

        Raises:
            AffluxError: Ranks asked for different sizes or dtypes, or there is no memory.
        """
        words = f"empty {dtype_name(dtype)} {elements}"
        call = Call("empty", dtype_name(dtype), words, words)
        seen = self._observe(call.name, call.text, "engine", [], [], self.timeout_s)
        # Not by the Work, which the group's thread may hold for a moment longer than its waiter:
        # the memory goes back with the caller's last tensor.
        made: list[torch.Tensor] = []
        arguments = call, elements, dtype, self.timeout_s, made
        self._do(seen, call.text, True, self._calls.allocate, *arguments).wait()
        return made.pop()

    def attach(self, gloo_counts: Callable[[], dict[str, int]], let_go: Callable[[], None]) -> None:
        """Take what an adapter has that calls Gloo itself. When the group closes it is dropped.

        Args:
            gloo_counts: Returns the calls to Gloo, by "<collective> <dtype>".
            let_go: Makes the adapter let go of Gloo.
        """
        self._more_counts = gloo_counts
        self._let_go = let_go

    def gloo_counts(self) -> dict[str, int]:
        """Return the number of calls to Gloo, by "<collective> <dtype>"."""
        counts = self.fallback.counts + collections.Counter(self._more_counts())
        return dict(counts)

    # For the adapter in C++, which begins what is simple and leaves the rest to this class.

    def known_call(self, method: str, arguments: tuple[Any, ...]) -> KnownCall:
        """Return what C++ has to know to begin such calls."""
        return self._calls.known(method, arguments)

    def wake(self, given_up: str) -> None:
        """See `Progress.wake`."""
        self._progress.wake(given_up)

    def abandon(self, reason: str) -> None:
        """See `Progress.abandon`."""
        self._progress.abandon(reason)

    def may_block(self) -> bool:
        """See `Progress.may_block`."""
        return self._progress.may_block()

    def _finish(self, handed: HandedCall) -> list[torch.Tensor]:
        limit_s = handed.limit_s if handed.limit_s > 0 else self.timeout_s
        return self._calls.finish(handed, limit_s)

    def check(self) -> None:
        """Raise what keeps the group from taking operations.

        Raises:
            AffluxError: It has failed, is closed, or belongs to the process that forked this one.
        """
        self._progress.check()

    def _collective(self, method: str, arguments: tuple[Any, ...]) -> Any:
        with self._refusing():
            found = self._calls.plan(method, arguments)
        if found is None:
            if device_of(arguments) is not None:
                return self._stage(method, arguments, True)
            sparse = sparse_call(method, arguments)
            if sparse is not None:
                return self._sum_sparse(sparse, *arguments)
            return self._fall_back(method, arguments)
        call, planned = found
        options = arguments[-1]
        more = f" and {len(planned) - 1} more" if len(planned) > 1 else ""
        limit_s = limit_of(options, self.timeout_s)
        seen = None
        if self.observers.active:
            outputs = [tensor for part, _ in planned for tensor in part.outputs]
            inputs = [tensor for part, _ in planned for tensor in part.inputs or part.outputs]
            seen = self._observe(call.name, call.text + more, "engine", inputs, outputs, limit_s)
        work = self._begin(seen, call, planned, arguments, limit_s)
        if work is not None:
            return work
        reduce = self._calls.reduce, planned, arguments, limit_s
        return self._do(seen, call.text + more, not options.asyncOp, *reduce)

    def _sum_sparse(self, call: Call, tensors: list[torch.Tensor], options: Any) -> Any:
        limit_s = limit_of(options, self.timeout_s)
        seen = self._observe(call.name, call.text, "engine", tensors, tensors, limit_s)
        at_once = not options.asyncOp
        return self._do(seen, call.text, at_once, self.sums.replace, call, tensors[0], limit_s)

    def _stage(self, method: str, arguments: tuple[Any, ...], native: bool) -> Any:
        """Carry out a call on tensors of a device; see `StagedCalls.take`."""
        with self._refusing():
            staged = self._staged.take(method, arguments, native)
        text, options = staged.call.text, arguments[-1]
        limit_s = limit_of(options, self.timeout_s)
        way = "gloo" if staged.planned is None else "engine"
        seen = self._observe(staged.call.name, text, way, *sides(arguments), limit_s)
        waits = not getattr(options, "asyncOp", True)
        run = self._staged.carry_out, staged, limit_s
        return self._do(seen, text, waits, *run, stream=staged.copies.up)

    def _fall_back(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if device_of(arguments) is not None:
            return self._stage(method, arguments, False)
        call = describe(method, arguments)
        options = arguments[-1] if arguments and hasattr(arguments[-1], "timeout") else None
        at_once = not getattr(options, "asyncOp", True)
        limit_s = limit_of(options, self.timeout_s)
        inputs, outputs = sides(arguments)
        seen = self._observe(call.name, call.text, "gloo", inputs, outputs, limit_s)
        run = self._calls.run_gloo, method, arguments, call, limit_s
        return self._do(seen, call.text, at_once, *run)

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Let the others know if what is wrong with a call is wrong only here."""
        try:
            yield
        except ValueError as error:
            self._progress.refuse(error)
            raise

    def refuse(self, error: str) -> None:
        """Let the others know that Gloo has refused a call here, which C++ has passed on."""
        self._progress.refuse(ValueError(error), begun=True)

    def _observe(
        self,
        name: str,
        text: str,
        way: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
    ) -> Observation | None:
        """Report a call that has been asked for; None if nobody observes."""
        if not self.observers.active:
            return None
        sequence = self.turn.sequence + self.turn.pending + 1
        return self.observers.begin(sequence, name, text, way, inputs, outputs, timeout_s)

    def _begin(
        self,
        seen: Observation | None,
        call: Call,
        planned: Planned,
        arguments: tuple[Any, ...],
        limit_s: float,
    ) -> Any:
        """Carry out a synchronous call at once, if it may; None if it is to be queued."""
        if seen is not None or arguments[-1].asyncOp:
            return None
        make_work = functools.partial(self._progress.new_work, call.text, True)
        return self._calls.begin(call, planned, arguments, make_work, limit_s)

    def _do(
        self,
        seen: Observation | None,
        text: str,
        waits: bool,
        step: Any,
        *arguments: Any,
        stream: torch.Stream | None = None,
    ) -> Any:
        """Queue an operation."""
        if seen is not None:
            arguments = seen, step, *arguments
            step = self._observed
        return self._progress.submit(text, waits, step, *arguments, stream=stream)

    def _observed(self, seen: Observation, step: Any, *arguments: Any) -> list[torch.Tensor]:
        """Carry out one step, and report its beginning and its end."""
        self.observers.started(seen, self.turn.sequence)
        try:
            tensors: list[torch.Tensor] = step(*arguments)
        except BaseException as error:
            self.observers.end(seen, error)
            raise
        self.observers.end(seen)
        return tensors

    def _has_failed(self, error: Exception, records: dict[int, CallRecord]) -> None:
        if not isinstance(error, GroupClosed):
            doing = {rank: str(record) for rank, record in records.items()}
            missing = () if hasattr(error, "ranks") else behind(records, self.size)
            self.observers.failed(error, missing, doing)

    def _pass_on(self, method: str, tensors: list[torch.Tensor], *rest: int) -> Any:
        return pass_on(self, method, tensors, *rest)

    def _free_gloo(self, at_exit: bool) -> None:
        held = [self.gloo]
        del self.gloo

        def free() -> None:
            self._let_go()
            held.clear()
            self._let_go = _nothing

        if at_exit or is_exiting():
            free()
        else:
            # It takes Gloo about ten milliseconds to end its threads. The interpreter waits for
            # this one before it ends.
            threading.Thread(target=free, name=f"afflux-{self.name}-free").start()

    def close_at_exit(self, seconds: float) -> None:
        """End the group with the interpreter: operations in flight have so long."""
        self._close(seconds, seconds, at_exit=True)

    def _close(self, drain_s: float, confirm_s: float, at_exit: bool = False) -> None:
        if self.closed or os.getpid() != self.pid:
            return
        if drain_s:
            end_users(self)
        self.closed = True
        open_groups.discard(self)
        reducer = self.reducer
        ended = self._progress.stop(drain_s)
        self._witness.leave(self._progress.carried_out)
        if ended or (reducer.holds and isinstance(self._progress.failure, GroupClosed)):
            limit_s = confirm_s if reducer.tickets else None
            self._progress.confirm_end(limit_s, reducer.holds)
        if self.fallback.close():
            self._free_gloo(at_exit)
        self.observers.close()
        self.reducer.leave()
        self._witness.close()
        self._keys.release(left=True)
        last = self._more_counts()
        self._more_counts = lambda: last


def _nothing() -> None:
    return None

"""Sums by an aggregator of streams that go on when it ends.

The ranks have streams to each other besides, and only larger all-reduces are the aggregator's.
Its results come over TCP: a piece of them is put in its place as a whole, so that each block of a
tensor is either a result or what the rank has contributed.

A call among the ranks needs no aggregator. It goes to its end, also if others have gone on to one
in which they hear of the change: what they have sent still comes. But a rank that has heard while
it had not called it will not do so before the change, and then nobody can end it: so it is left,
and carried out anew.

Tested: `tests/host/test_fail_over_streams.py`.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from afflux.group.call.collectives import Asked
from afflux.group.call.tensors import plain
from afflux.group.reducers.continued_reducer import ContinuedReducer, Replace
from afflux.group.reducers.direct_reducer import DirectReducer
from afflux.group.reducers.fail_back import FailBack
from afflux.group.reducers.recovery import State
from afflux.group.reducers.reducer import Begun, Interruption, Reducer
from afflux.group.reducers.streams_reducer import StreamsReducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.store.epoch import Epoch
from afflux_drivers._native import Turn
from afflux_drivers.c_api import Collective
from afflux_drivers.collectives.call import REDUCED_DTYPES, REDUCTIONS, GroupCall
from afflux_drivers.errors import AggregatorUnreachable
from afflux_drivers.streams.worker import StreamsWorker

__all__ = ["ContinuedStreamsReducer"]

_DTYPES = {number: getattr(torch, name) for name, number in REDUCED_DTYPES.items()}
_REDUCTIONS = {number: name for name, number in REDUCTIONS.items()}
_REDUCED = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
_READ = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


class ContinuedStreamsReducer(ContinuedReducer, StreamsReducer):
    """A `StreamsReducer` that goes on over another reducer when its aggregator ends.

    Args:
        worker: This rank's end, which keeps results.
        url, topology: As for `StreamsReducer`.
        rank: Own rank.
        size: Ranks of the group.
        epoch: The change to the other reducer.
        replace: Makes that.
        timeout_s: The group's timeout, for what no call waits for.
        back: The way back to aggregators.
        peer_timeout_s: So long an aggregator may acknowledge nothing.
    """

    def __init__(
        self,
        worker: StreamsWorker,
        url: AggregatorUrl,
        topology: Topology,
        rank: int,
        size: int,
        epoch: Epoch,
        replace: Replace,
        timeout_s: float,
        back: FailBack,
        peer_timeout_s: float,
    ) -> None:
        StreamsReducer.__init__(self, worker, url, topology)
        of_group = rank, size, epoch, replace, timeout_s, back
        ContinuedReducer.__init__(self, worker.results, *of_group)
        self._alone = worker
        self._peer_timeout_s = peer_timeout_s
        self._counts: dict[str, Any] | None = None
        # The call that is running, or was last.
        self._call = GroupCall.barrier()

    def run(
        self,
        plan: GroupCall,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """See `DirectReducer`. The elements stay in one place, whoever ends the sum."""
        deadline = time.monotonic() + timeout_s
        taken = outputs
        if plan.collective == Collective.ALL_REDUCE:
            taken = [plain(outputs[0])]
        run = partial(super().run, plan, inputs, taken, timeout_s, self._watching(interrupted))
        self._carry_out(run, plan, inputs, taken, deadline, interrupted)
        for own, each in zip(outputs, taken, strict=True):
            if each is not own:
                with torch.inference_mode(own.is_inference()):
                    own.data.copy_(each)
        return True

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """See `DirectReducer`."""
        deadline = time.monotonic() + timeout_s
        agree = partial(super().agree, number, timeout_s, self._watching(interrupted))
        self._carry_out(agree, self.agreement(number), [], [], deadline, interrupted)

    def finish(self, begun: Begun, timeout_s: float, interrupted: Interruption) -> None:
        """See `DirectReducer`. C++ cannot begin what comes after a change, and hands it over."""
        deadline = begun.began_s + timeout_s
        finish = partial(super().finish, begun, timeout_s, self._watching(interrupted))
        inputs = list(begun.inputs) if begun.call.collective in _READ else []
        outputs = list(begun.outputs)
        self._carry_out(finish, begun.call, inputs, outputs, deadline, interrupted)

    def _carry_out(
        self,
        step: Callable[[], Any],
        call: GroupCall,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        deadline: float,
        interrupted: Interruption,
    ) -> None:
        """Carry out a call by the streams, or what is left of it by the reducer that goes on."""
        if self._works():
            self._busy = True
            self._call = call
            try:
                step()
                return
            except AggregatorUnreachable as death:
                if self._go_over(death, deadline, interrupted):
                    return
            finally:
                self._busy = False
        self._do_by_other(call, inputs, outputs, deadline, interrupted)

    def _do_by_other(
        self,
        call: GroupCall,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        deadline: float,
        interrupted: Interruption,
    ) -> None:
        with self._calling_other(deadline, interrupted) as (other, until):
            timeout_s = max(0.0, until - time.monotonic())
            if call.collective == Collective.BARRIER:
                other.agree(call.fingerprint, timeout_s, interrupted)
            elif isinstance(other, DirectReducer):
                other.run(call, inputs, outputs, timeout_s, interrupted)
            else:
                collective = Collective(call.collective)
                reduction = _REDUCTIONS[call.reduction] if collective in _REDUCED else ""
                small = inputs[0] if collective is Collective.ALL_GATHER else outputs[0]
                of_call = small.dtype, (small.numel(),), reduction, call.root
                plan = other.plan(Asked(collective.name.lower(), *of_call))
                # It has not got the tensor's shape, which ranks compare.
                other.agree(call.fingerprint, timeout_s, interrupted)
                timeout_s = max(0.0, until - time.monotonic())
                other.run(plan, inputs, outputs, timeout_s, interrupted)
            self._name(other)

    def _come_back(self, interrupted: Interruption, wait: bool) -> Reducer[Any] | None:
        made = super()._come_back(interrupted, wait)
        if made is not None:
            made.follow(self._turn)
        return made

    def _watching(self, interrupted: Interruption) -> Interruption:
        """Return what also raises if the ranks go on without the aggregator, or are to."""
        silent_since: float | None = None

        def watching() -> str | None:
            nonlocal silent_since
            declared = self._epoch.declared()
            if declared is not None and self._leaves_the_call():
                raise AggregatorUnreachable(str(declared))
            silence = self._alone.silence()
            if not silence:
                silent_since = None
            elif silent_since is None:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since >= self._peer_timeout_s:
                raise AggregatorUnreachable(f"timed out: rank {self._rank}: {silence}")
            return interrupted()

        return watching

    def _leaves_the_call(self) -> bool:
        """Return whether the running call cannot come to its end: see the module."""
        if self._journal.taken:
            return True
        over = self._journal.over
        others = [rank for rank in range(self._size) if rank != self._rank]
        try:
            states = [State.of(each) for each in self._epoch.states(others).values()]
        except RuntimeError:
            # A call that waits for this ends by its own timeout.
            return False
        return any(each.over < over or (each.over == over and not each.running) for each in states)

    def _fence(self) -> None:
        self._alone.leave_off()

    def _call_text(self) -> str:
        return self._call.name

    def _kind(self) -> tuple[torch.dtype, str]:
        return _DTYPES[self._call.dtype], _REDUCTIONS[self._call.reduction]

    def _retire(self, other: Reducer[Any]) -> None:
        # Calls of Gloo that the ranks have not compared yet.
        other.follow(self._turn)
        self._counts = super().statistics()
        self._alone.close()

    def follow(self, turn: Turn) -> None:
        """See `DirectReducer`."""
        super().follow(turn)
        if self._other is not None:
            self._other.follow(turn)

    def give_up(self, reason: str) -> None:
        """Wake the others where they wait for one another."""
        if self._other is not None:
            self._other.give_up(reason)
        else:
            super().give_up(reason)

    def statistics(self) -> dict[str, Any]:
        """Return the counts of all streams so far, and how often that has changed."""
        counts = super().statistics() if self._counts is None else self._counts
        return {**self._counts_of_all(counts), **self._changes()}

    def leave(self) -> None:
        """Let go of both reducers."""
        self._leave_other()
        super().leave()

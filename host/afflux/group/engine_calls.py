"""The calls of a group that its reducer carries out: how they are planned, begun, and ended.

A call that is simple may begin in the calling thread, in C++ and without Python: by the adapter in
C++, or by `begin`. A call that is not over within a moment goes on in the group's thread
(`finish`).
"""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from afflux.group.call.collectives import Asked, Part, parts_of
from afflux.group.call.description import (
    Call,
    HandedCall,
    KnownCall,
    describe,
    sides,
    tensors_in,
)
from afflux.group.call.plain import PlainCalls, Planned
from afflux.group.call.tensors import check_writable, lies_plainly
from afflux.group.call.work import FinishedWork, LateWork
from afflux.group.reducers.exact_sums import few_chunks
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo_forms import taken_as_is
from afflux.group.reducers.reducer import Begun, Comparison, Interruption, Reducer
from afflux_drivers._native import DirectCalls, Turn

__all__ = ["EngineCalls"]

_PLANS_MAX = 4096
"""Kinds of calls that a group remembers; a training loop has some hundreds."""

_SLICE_S = 0.1
"""So long an operation is tried in the calling thread."""


class EngineCalls:
    """The calls that the reducer of one group carries out, and what goes to Gloo from C++.

    Args:
        reducer: The group's.
        fallback: The group's Gloo.
        interrupted: See `Reducer.run`.
        turn: The group's.
        wake: See `Progress.wake`.
        size: Ranks of the group.
    """

    def __init__(
        self,
        reducer: Reducer[Any],
        fallback: GlooFallback,
        interrupted: Interruption,
        turn: Any,
        wake: Callable[[str], None],
        size: int,
    ) -> None:
        self._reducer = reducer
        self._fallback = fallback
        self._interrupted = interrupted
        self._turn = turn
        self._size = size
        self._pid = os.getpid()
        self._plans: dict[Asked, Any] = {}
        self._plain = PlainCalls()
        self._direct: DirectCalls | None = None
        # The adapter in C++ has a turn of its own.
        if reducer.native is not None and isinstance(turn, Turn):
            self._direct = DirectCalls(turn, reducer.native.calls(), wake)

    def plan(self, method: str, arguments: tuple[Any, ...]) -> tuple[Call, Planned] | None:
        """Return a call and its collectives, with the reducer's plans; None if it is Gloo's.

        Raises:
            ValueError: Its tensors do not fit one another, or cannot be written.
        """
        found = self._plain.find(method, arguments)
        if found is not None:
            return found
        planned = self.plan_on("cpu", method, arguments)
        if planned is None:
            return None
        call = describe(method, arguments)
        for part, _ in planned:
            check_writable(call.text, part.outputs)
        self._plain.keep(method, arguments, call, planned)
        return call, planned

    def plan_on(self, device_type: str, method: str, arguments: tuple[Any, ...]) -> Planned | None:
        """Return a call's collectives with the reducer's plans; None if it is Gloo's.

        Args:
            device_type: That of all its tensors; if one has another, the call is Gloo's.
            method: Of the group.
            arguments: Its arguments.

        Raises:
            ValueError: Its tensors do not fit one another.
        """
        for tensor in tensors_in(arguments):
            if tensor.device.type != device_type or tensor.layout is not torch.strided:
                return None
        planned = []
        for part in parts_of(method, arguments, self._size) or ():
            plan = self._plan_of(part.asked)
            if plan is None:
                return None
            planned.append((part, plan))
        return planned or None

    def _plan_of(self, asked: Asked) -> Any:
        # Another thread may clear them in the middle.
        plan = self._plans.get(asked, self)
        if plan is self:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[asked] = self._reducer.plan(asked)
        return plan

    def known(self, method: str, arguments: tuple[Any, ...]) -> KnownCall:
        """Return what the adapter in C++ has to know of such calls."""
        native = self._reducer.native
        call = describe(method, arguments)
        if native is not None:
            if method == "barrier":
                agreement = native.agreement(call.agreed_number)
                return KnownCall(call.text, "native", agreement, "", call)
            planned = self.plan_on("cpu", method, arguments)
            if planned is not None:
                ((part, plan),) = planned
                prepared = native.prepared(plan)
                size = sum(tensor.nbytes for tensor in part.outputs + part.inputs)
                way = "python" if prepared is None else "native"
                return KnownCall(call.text, way, prepared, "", call, size)
        agreed = self._reducer.comparison is not Comparison.BEFORE
        way, summed = few_chunks(method, arguments, self._size)
        if not way and taken_as_is(method, arguments, self._size):
            way = "gloo"
        counted = self._fallback.name_count(call)
        return KnownCall(call.text, way if agreed and way else "python", summed, counted, call)

    def begin(
        self,
        call: Call,
        planned: Planned,
        arguments: tuple[Any, ...],
        make_work: Callable[[], Any],
        limit_s: float,
    ) -> Any:
        """Carry out a call of one collective in the calling thread, if none is before it.

        Args:
            call: The call.
            planned: Its collectives; none for a barrier.
            arguments: Of the method that was called.
            make_work: Makes a Work for what is not over at once.
            limit_s: The call's timeout.

        Returns:
            The call's Work; None if it must be queued, then nothing has been done.
        """
        native = self._reducer.native
        if self._direct is None or native is None or len(planned) > 1 or os.getpid() != self._pid:
            return None
        inputs: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        if planned:
            ((part, plan),) = planned
            inputs, outputs, prepared = part.inputs, part.outputs, native.prepared(plan)
        else:
            prepared = native.agreement(call.agreed_number)
        if prepared is None or not all(lies_plainly(each) for each in (*inputs, *outputs)):
            return None
        slice_s = min(_SLICE_S, limit_s)
        work = LateWork(make_work)
        known = KnownCall(call.text, "native", prepared, "", call)
        over = self._direct.run(
            call.text,
            prepared,
            [each.data_ptr() for each in inputs],
            [each.data_ptr() for each in outputs],
            int(slice_s * 1e9),
            (work, known, arguments, limit_s, None, slice_s),
        )
        if over is None:
            return None
        return FinishedWork(_written(arguments)) if over else work.get()

    def finish(self, handed: HandedCall, limit_s: float) -> list[torch.Tensor]:
        """Bring a call to its end that C++ has begun; see `HandedCall`."""
        native = self._reducer.native
        known = handed.known
        if handed.gloo is not None:
            of_call = handed.arguments, known.call, limit_s
            self._fallback.finish(handed.gloo, *of_call, self._interrupted)
        else:
            assert native is not None
            began_s = time.monotonic() - min(limit_s, handed.tried_s)
            of_operation = handed.operation, handed.status, handed.text
            inputs, outputs = sides(handed.arguments)
            begun = Begun(known.prepared, *of_operation, began_s, outputs, inputs)
            native.finish(begun, limit_s, self._interrupted)
            self._turn.count_engine_operation()
        return _written(handed.arguments)

    def reduce(
        self, planned: Planned, arguments: tuple[Any, ...], timeout_s: float
    ) -> list[torch.Tensor]:
        """Carry out a call's collectives, one after the other, in the group's thread."""
        for part, plan in planned:
            self._run(part, plan, timeout_s)
        return _written(arguments)

    def reduce_piece(self, part: Part, timeout_s: float) -> None:
        """Carry out one collective, or a piece of one for which the reducer has a plan."""
        self._run(part, self._plan_of(part.asked), timeout_s)

    def _run(self, part: Part, plan: Any, timeout_s: float) -> None:
        if self._reducer.run(plan, part.inputs, part.outputs, timeout_s, self._interrupted):
            self._turn.count_engine_operation()

    def allocate(
        self,
        call: Call,
        elements: int,
        dtype: torch.dtype,
        timeout_s: float,
        made: list[torch.Tensor],
    ) -> list[torch.Tensor]:
        """Add a tensor that every rank reaches; see `Reducer.empty`."""
        self.agree(call, timeout_s)
        made.append(self._reducer.empty(elements, dtype))
        return []

    def agree(self, call: Call, timeout_s: float) -> None:
        """Return when every rank has made the same call."""
        self._reducer.agree(call.agreed_number, timeout_s, self._interrupted)

    def meet(self, call: Call, timeout_s: float) -> list[torch.Tensor]:
        """Carry out a barrier."""
        self.agree(call, timeout_s)
        self._turn.count_engine_operation()
        return []

    def compare(self, call: Call, timeout_s: float) -> None:
        """Compare what the ranks call, at once or within the next operation."""
        if self._reducer.comparison is Comparison.BEFORE:
            self.agree(call, timeout_s)
        else:
            # To meet before the call would cost ranks that share memory as much as some of Gloo's
            # calls, which do not all wait for all ranks.
            self._turn.note(call.agreed_number)

    def run_gloo(
        self, method: str, arguments: tuple[Any, ...], call: Call, timeout_s: float
    ) -> list[torch.Tensor]:
        """Carry out a call by Gloo, which the ranks compare as the reducer says."""
        self.compare(call, timeout_s)
        self._fallback.run(method, arguments, call, timeout_s, self._interrupted)
        return _written(arguments)


def _written(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensors that a call writes: its first argument's."""
    return tensors_in(arguments[0]) if arguments else []

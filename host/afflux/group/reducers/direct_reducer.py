"""Collectives among the ranks themselves, without an aggregator."""

from typing import Any

import torch

from afflux.group.call.collectives import Asked
from afflux.group.call.tensors import dtype_name, lies_plainly
from afflux.group.reducers.reducer import Begun, Comparison, Interruption, refused
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers._native import Turn
from afflux_drivers.c_api import Collective, Status
from afflux_drivers.collectives.call import REDUCED_DTYPES, REDUCTIONS, GroupCall
from afflux_drivers.collectives.worker import GroupWorker
from afflux_drivers.control.tickets import JobTicket

__all__ = ["DirectReducer"]

_COLLECTIVES = {each.name.lower(): each for each in Collective}

_NO_PRODUCT = (torch.float32, torch.float16, torch.bfloat16)


class DirectReducer:
    """A `Reducer` whose ranks are all in one group of `GroupWorker`s.

    Args:
        worker: This rank's.
        url: AFFLUX_AGGREGATOR.
        engine: Kind of engine: "shm" or "streams".
        topology: Which way the sums take, and why.
    """

    tickets: tuple[JobTicket, ...] = ()
    holds = False
    comparison = Comparison.WITHIN

    def __init__(
        self, worker: GroupWorker, url: AggregatorUrl, engine: str, topology: Topology
    ) -> None:
        self.url = url
        self.engine = engine
        self.topology = topology
        self._worker = worker
        self._turn = Turn()

    @property
    def native(self) -> "DirectReducer":
        """It is that itself."""
        return self

    def follow(self, turn: Turn) -> None:
        """Compare, within each operation, what the group has called of Gloo before."""
        self._turn = turn

    def plan(self, asked: Asked) -> GroupCall | None:
        """Return the call with its fingerprint."""
        collective = _COLLECTIVES[asked.collective]
        dtype = dtype_name(asked.dtype)
        if not asked.reduction:
            itemsize = asked.dtype.itemsize
            return GroupCall.moving(collective, dtype, itemsize, asked.shape, asked.root)
        if dtype not in REDUCED_DTYPES or asked.reduction not in REDUCTIONS:
            return None
        if asked.reduction == "product" and asked.dtype in _NO_PRODUCT:
            return None
        return GroupCall.reducing(collective, dtype, asked.reduction, asked.shape)

    def run(
        self,
        plan: GroupCall,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Carry it out straight from and to the tensors' memory where they are contiguous."""
        if plan.collective == Collective.ALL_REDUCE and lies_plainly(outputs[0]):
            with refused(plan.name):
                address, history = outputs[0].data_ptr(), self._turn.history
                self._worker.run((), address, plan, timeout_s, interrupted, history)
            return True
        given = [_contiguous(each) for each in inputs]
        # A tensor that is reduced in place is also read.
        taken = [each if lies_plainly(each) else _contiguous(each.data) for each in outputs]
        taken = [
            each.clone() if each is not own and each.data_ptr() == own.data_ptr() else each
            for each, own in zip(taken, outputs, strict=True)
        ]
        sources = [each.data_ptr() for each in given]
        targets = [each.data_ptr() for each in taken]
        with refused(plan.name):
            self._worker.run(sources, targets, plan, timeout_s, interrupted, self._turn.history)
        for own, each in zip(outputs, taken, strict=True):
            if each is not own:
                # A tensor that was made in inference mode may be written only there.
                with torch.inference_mode(own.is_inference()):
                    own.data.copy_(each.view(own.shape))
        return True

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Go through one phase of the ranks, without data."""
        call = self._worker.agreement(number)
        self._worker.run((), (), call, timeout_s, interrupted, self._turn.history)

    def agreement(self, number: int) -> GroupCall:
        """Return the call of `agree`."""
        return self._worker.agreement(number)

    def prepared(self, plan: GroupCall) -> GroupCall:
        """Return the plan: C++ takes it as it is."""
        return plan

    def calls(self) -> Any:
        """Return the capsule through which C++ calls."""
        return self._worker.calls()

    def finish(self, begun: Begun, timeout_s: float, interrupted: Interruption) -> None:
        """Bring an operation that C++ has begun to its end.

        Args:
            begun: The operation.
            timeout_s: How long it may take, from its beginning.
            interrupted: As for `run`.

        Raises:
            CallRefused: As for `run`.
            AffluxError: As for `run`.
        """
        call = begun.call
        with refused(call.name):
            if begun.status != Status.NOT_YET:
                raise self._worker.failure_of(begun.status, call, begun.text)
            waited_s = begun.waited_s
            self._worker.finish(call, begun.operation, timeout_s, interrupted, waited_s)

    def give_up(self, reason: str) -> None:
        """Wake the other ranks from their operations."""
        self._worker.fail(reason)

    def leave(self) -> None:
        """Let go of the group."""
        self._worker.close()


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    # .data: a collective is not a step of autograd and leaves version counters alone, like Gloo.
    return tensor.data.resolve_conj().resolve_neg().contiguous()

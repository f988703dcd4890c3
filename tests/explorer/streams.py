"""Streams between ranks in virtual time: what they carry arrives, in order, unless a rank dies."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from afflux.group.call.collectives import Asked
from afflux.group.reducers.topology import Topology
from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import Interrupted
from tests.explorer.scheduler import Bell, Scheduler

__all__ = ["Mesh", "VirtualStreams"]

_LOOK_S = 0.1


class Mesh:
    """What all ranks of one mesh have in common.

    Attributes:
        calls: By number and rank what a rank contributes, and what it says that it calls.
    """

    def __init__(self) -> None:
        self.calls: dict[int, dict[int, tuple[str, torch.Tensor]]] = {}


class VirtualStreams:
    """A rank's reducer over streams, as `StreamsReducer`.

    Args:
        mesh: That of all.
        rank, size: Own rank, and how many there are.
        scheduler: Of all.
        delay: Draws how long a contribution travels.
        gone: Returns the ranks that are known to have ended.
        reduce: Reduces tensors exactly.
        topology: How it is called.
    """

    engine = "streams"
    tickets: tuple[Any, ...] = ()
    holds = False
    native = None

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        size: int,
        scheduler: Scheduler,
        delay: Callable[[], float],
        gone: Callable[[], Sequence[int]],
        reduce: Callable[[Sequence[torch.Tensor], str], torch.Tensor],
        topology: str,
    ) -> None:
        self.topology = Topology(topology, "virtual")
        self._mesh, self._rank, self._size = mesh, rank, size
        self._scheduler, self._delay, self._gone, self._reduce = scheduler, delay, gone, reduce
        self._number = 0

    def plan(self, asked: Asked) -> Asked:
        """Return the call itself."""
        return asked

    def run(
        self,
        plan: Asked,
        _inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> bool:
        """All-reduce a tensor in place."""
        (tensor,) = outputs
        called = f"{plan.dtype} {tuple(plan.shape)} {plan.reduction}"
        found = self._exchange(called, tensor.clone(), timeout_s, interrupted)
        tensor.copy_(self._reduce(found, plan.reduction))
        return True

    def agree(self, number: int, timeout_s: float, interrupted: Callable[[], str | None]) -> None:
        """Wait for all ranks."""
        self._exchange(f"agree {number}", torch.empty(0), timeout_s, interrupted)

    def _exchange(
        self,
        called: str,
        tensor: torch.Tensor,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> list[torch.Tensor]:
        here = self._mesh.calls.setdefault(self._number, {})
        self._number += 1
        scheduler, deadline = self._scheduler, self._scheduler.now + timeout_s
        scheduler.at(
            scheduler.now + self._delay(), lambda: here.update({self._rank: (called, tensor)})
        )
        while len(here) < self._size:
            lost = [rank for rank in self._gone() if rank not in here]
            if lost:
                raise RanksEnded(f"rank(s) {lost} ended or left the group", tuple(lost))
            reason = interrupted()
            if reason is not None:
                raise Interrupted(reason)
            assert scheduler.now < deadline, f"rank {self._rank} waits for others in {called}"
            scheduler.wait(Bell(), scheduler.now + min(_LOOK_S, 10 * self._delay()))
        scheduler.sleep(self._delay())
        assert len({each for each, _ in here.values()}) == 1, f"the ranks disagree: {here}"
        return [here[rank][1] for rank in range(self._size)]

    def follow(self, _turn: object) -> None:
        """Do nothing."""

    def give_up(self, _reason: str) -> None:
        """Do nothing: ranks hear of it otherwise."""

    def statistics(self) -> dict[str, Any]:
        """Return no counts."""
        return {}

    def leave(self) -> None:
        """Do nothing."""

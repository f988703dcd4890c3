"""The reducer of a group that has no engine: all of its collectives are Gloo's."""

from typing import Any

import torch

from afflux.group.call.collectives import Asked
from afflux.group.reducers.reducer import Comparison, Interruption
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers._native import Turn
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AffluxError

__all__ = ["GlooReducer"]


class GlooReducer:
    """A `Reducer` that reduces nothing: where ranks share no memory and name no aggregator.

    Args:
        url: AFFLUX_AGGREGATOR.
        topology: That of Gloo, with the reason.
    """

    engine = "gloo"
    tickets: tuple[JobTicket, ...] = ()
    holds = False
    native = None
    comparison = Comparison.NEVER
    notices_ends = False

    def __init__(self, url: AggregatorUrl, topology: Topology) -> None:
        self.url = url
        self.topology = topology

    def follow(self, turn: Turn) -> None:
        """Do nothing: there are no operations to number."""

    def plan(self, asked: Asked) -> None:
        """Return None: this call is not for the engine."""

    def run(
        self,
        plan: None,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Raise an error: there is no plan with which to call this."""
        raise AffluxError("a group without an engine reduces nothing: its calls are Gloo's")

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Do nothing: what ranks call is not compared, as with Gloo alone. It is not a barrier."""

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory."""
        return torch.zeros(elements, dtype=dtype)

    def give_up(self, reason: str) -> None:
        """Do nothing: the others look at the group's notices while they wait."""

    def statistics(self) -> dict[str, Any]:
        """Return nothing: there is no engine that counts."""
        return {}

    def leave(self) -> None:
        """Do nothing: there is nothing to give back."""

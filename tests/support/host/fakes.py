"""A group of one rank whose every seam is a fake: no network, other process, or thread at rest."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore

from afflux.group.call.collectives import Asked
from afflux.group.core import Group
from afflux.group.forming.formation import Formed
from afflux.group.liveness.witness import Witness
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.reducer import Comparison
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.keys import GroupStore
from afflux_drivers.control.tickets import JobTicket

__all__ = ["FakeFallback", "FakeReducer", "fake_group"]


class FakeReducer:
    """Doubles float32 tensors that it all-reduces, and notes all that it is asked for.

    Args:
        comparison: See `Reducer`.

    Attributes:
        done: The requests to it: "run all_reduce sum", "agree", …
        trouble: Raised by the next operation, if it is an exception; called, if it is a function.
    """

    url = AggregatorUrl("auto")
    engine = "fake"
    tickets: tuple[JobTicket, ...] = ()
    topology = Topology("fake", "a test")
    notices_ends = True
    holds = False
    native = None

    def __init__(self, comparison: Comparison = Comparison.BEFORE) -> None:
        self.comparison = comparison
        self.done: list[str] = []
        self.trouble: BaseException | Callable[[], None] | None = None

    def follow(self, turn: Any) -> None:
        """Do nothing."""

    def plan(self, asked: Asked) -> Asked | None:
        """Take what sums float32."""
        return asked if asked.dtype is torch.float32 and asked.reduction == "sum" else None

    def run(
        self,
        plan: Asked,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> bool:
        """Double the tensor."""
        self._note(f"run {plan.collective} {plan.reduction}")
        outputs[0].mul_(2)
        return True

    def agree(self, number: int, timeout_s: float, interrupted: Callable[[], str | None]) -> None:
        """Note it."""
        self._note("agree")

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory."""
        return torch.zeros(elements, dtype=dtype)

    def give_up(self, reason: str) -> None:
        """Note it."""
        self.done.append("give up")

    def statistics(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def leave(self) -> None:
        """Note it."""
        self.done.append("leave")

    def _note(self, what: str) -> None:
        self.done.append(what)
        trouble, self.trouble = self.trouble, None
        if isinstance(trouble, BaseException):
            raise trouble
        if trouble is not None:
            trouble()


class FakeFallback(GlooFallback):
    """Notes what would be Gloo's.

    Attributes:
        done: The methods that were called.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.counts = {}  # type: ignore[assignment]

    def run(self, method: str, *_arguments: Any) -> None:
        """Note it."""
        self.done.append(method)

    def close(self) -> bool:
        """Do nothing."""
        return True


def fake_group(reducer: FakeReducer) -> Group:
    """Make a group of one rank over this reducer. The caller shuts it down."""
    store = HashStore()

    def form(membership: Membership, settings: Settings, _list_keys: Any) -> Formed:
        keys = GroupStore(membership.store, "life", 0, 1)
        return Formed(reducer, object(), FakeFallback(), keys, Witness())

    return Group(Membership(store, 0, 1, timedelta(seconds=10), "fake"), form=form)

"""The carrier of a group's collectives: the interface, as the group and C++ use it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from afflux.group.call.collectives import Asked
from afflux.group.call.errors import CallRefused
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers._native import Turn
from afflux_drivers.control.tickets import JobTicket

__all__ = [
    "Begun",
    "Comparison",
    "Interruption",
    "NativeCalls",
    "Reducer",
    "refused",
]

Interruption = Callable[[], str | None]
"""Called while waiting; if it returns a text, the operation ends with that text as error."""

_Plan = TypeVar("_Plan")
_Taken = TypeVar("_Taken", contravariant=True)


class Comparison(Enum):
    """When the ranks of a group compare what they call of Gloo."""

    BEFORE = auto()
    """Before each call, by `Reducer.agree`."""
    WITHIN = auto()
    """Within the reducer's next operation, by the history of the turn that it follows."""
    NEVER = auto()
    """Never: the reducer has no operations, and `Reducer.agree` does nothing."""


class Reducer(Protocol[_Plan]):
    """A group's interface to an aggregator, or to memory that its ranks share.

    Its type parameter is what `plan` gives and `run` takes.

    Attributes:
        url: AFFLUX_AGGREGATOR.
        engine: Kind of engine: "shm", "soft", "rtl", …
        tickets: The jobs, one for each aggregator that shares the columns; none without one.
        topology: Which way the sums take, and why.
        comparison: When the ranks compare what they call of Gloo.
        notices_ends: Whether ranks that wait in its operations notice that another one has ended.
    """

    url: AggregatorUrl
    engine: str
    tickets: tuple[JobTicket, ...]
    topology: Topology
    comparison: Comparison
    notices_ends: bool

    @property
    def native(self) -> "NativeCalls[_Plan] | None":
        """How C++ can begin its operations; None if it cannot."""

    def follow(self, turn: Turn) -> None:
        """Have the numbers and the history of the group's operations from its turn."""

    @property
    def holds(self) -> bool:
        """Whether what the others need, such as their job, ends with this rank: it waits then."""

    def plan(self, asked: Asked) -> _Plan | None:
        """Prepare what is the same for all calls of a kind; None if it is for Gloo."""

    def run(
        self,
        plan: _Plan,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Carry out a collective with these tensors, whatever their strides; see `Part`.

        Returns:
            Whether the engine did; if not, Gloo has.

        Raises:
            CallRefused: There can be no such call. Nothing has happened.
            AffluxError: As the worker raises it. The reducer has failed.
        """

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Wait until all ranks have called this with the same number, at most 32 bits wide.

        Raises:
            AffluxError: As for `run`.
        """

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a flat tensor: zeros that all ranks can reach, if they share memory. Collective."""

    def give_up(self, reason: str) -> None:
        """Let the other ranks know that operations will not end. For any thread."""

    def statistics(self) -> dict[str, Any]:
        """Return what this rank has done, by name."""

    def leave(self) -> None:
        """Give everything back. If it `holds`, all ranks must be done with that."""


class Begun(NamedTuple):
    """An operation that C++ has begun and has not brought to a good end.

    Attributes:
        call: The call, as `NativeCalls.prepared` gave it.
        operation: Its number.
        status: The return value of the C++ call.
        text: Why, if the status says that it failed.
        began_s: When it began, as `time.monotonic` has it.
        outputs: The tensors that the call writes.
        inputs: Those that it reads, if it has others.
    """

    call: Any
    operation: int
    status: int
    text: str
    began_s: float
    outputs: Sequence[torch.Tensor] = ()
    inputs: Sequence[torch.Tensor] = ()

    @property
    def waited_s(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began_s


class NativeCalls(Protocol[_Taken]):
    """A group's interface to a reducer whose operations C++ can begin (`c_api.h`)."""

    def calls(self) -> Any:
        """Return the capsule through which C++ calls."""

    def agreement(self, number: int) -> Any:
        """Return the call of `agree`, prepared."""

    def prepared(self, plan: _Taken) -> Any:
        """Return a plan's call as C++ takes it; None if it needs Python."""

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


@contextmanager
def refused(call: str) -> Iterator[None]:
    """Raise what a worker refuses as an error of the call, not of the group."""
    try:
        yield
    except ValueError as error:
        raise CallRefused(f"{call}: {error}") from error

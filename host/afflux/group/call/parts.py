"""An adapter's parts of a group: its turn and its Works, in Python or in C++."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch

from afflux.group.call.work import NO_TIMEOUT, AffluxWork, FinishedWork
from afflux_drivers._native import Turn

__all__ = ["PYTHON_PARTS", "Parts", "PendingWork"]


class PendingWork(Protocol):
    """The Work of an operation that a progress thread carries out; see `AffluxWork`."""

    call: str

    def succeed(self, tensors: list[torch.Tensor]) -> None:
        """End with a result, if it has not ended."""

    def fail(self, error: BaseException) -> None:
        """End with an error, if it has not ended."""

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> Any:
        """Block until the end; raise the error that it has ended with."""

    def is_completed(self) -> bool:
        """Return whether it has ended."""


class Parts(Protocol):
    """Makes the parts of one group."""

    def turn(self) -> Turn:
        """Make a turn, or what behaves like one."""

    def pending_work(
        self,
        call: str,
        may_block: Callable[[], bool],
        give_up: Callable[[str], None] | None = None,
        devices: Sequence[torch.device] = (),
    ) -> PendingWork:
        """Make the Work of an operation that is queued; see `AffluxWork`."""

    def finished_work(self, tensors: list[torch.Tensor]) -> Any:
        """Make the Work of an operation that is over."""


class _PythonParts:
    turn = staticmethod(Turn)
    pending_work = staticmethod(AffluxWork)
    finished_work = staticmethod(FinishedWork)


PYTHON_PARTS: Parts = _PythonParts()
"""They work everywhere; DDP's built-in FP16 hook, which wants a typed future, excepted."""

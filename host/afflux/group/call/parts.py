"""An adapter's parts of a group: its turn and its Works, in Python or in C++."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import Store

from afflux.group.call.work import NO_TIMEOUT, AffluxWork, FinishedWork
from afflux_drivers._native import Turn

__all__ = ["PYTHON_PARTS", "ListKeys", "Parts", "PendingWork"]


ListKeys = Callable[[Store], list[str]]
"""Returns the names of all keys of a store. torch's own method keeps Python's lock until the store
has answered (torch 2.13), so all threads of a process would wait for a store that does not."""


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

    @property
    def list_keys(self) -> ListKeys | None:
        """Lists a store without Python's lock; None if there is no such way."""


class _PythonParts:
    turn = staticmethod(Turn)
    pending_work = staticmethod(AffluxWork)
    finished_work = staticmethod(FinishedWork)
    list_keys = None


PYTHON_PARTS: Parts = _PythonParts()
"""They work everywhere; DDP's built-in FP16 hook, which wants a typed future, excepted."""

"""The queue of a group's thread: what may stand in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch

from afflux.group.call.parts import PendingWork

__all__ = ["Changed", "Kind", "News", "Step", "Task", "Woken"]

Step = Callable[..., list[torch.Tensor]]
"""Carries out one operation: it takes the task's arguments, and returns the tensors written."""


class Kind(Enum):
    """Which part of an operation a task is."""

    OPERATION = auto()
    BEGUN = auto()
    """An operation that another thread has begun."""
    OUTSIDE = auto()
    """No operation of the group's: its errors end nothing."""


@dataclass
class Task:
    """An operation, or what else a group's thread is to do.

    Attributes:
        call: The call, for messages.
        step: Carries it out.
        arguments: For that.
        work: Its Work.
        kind: Of the task.
        stream: Stream of a device at whose end the results are there; None for the CPU.
        claims: Empty when somebody has decided what becomes of it.
    """

    call: str
    step: Step
    arguments: tuple[Any, ...]
    work: PendingWork
    kind: Kind = Kind.OPERATION
    stream: torch.Stream | None = None
    claims: list[None] = field(default_factory=lambda: [None])

    def claim(self) -> bool:
        """Return whether the calling thread is the first that decides what becomes of it."""
        # Without a lock, which a signal handler might find held.
        try:
            self.claims.pop()
        except IndexError:
            return False
        return True


class News:
    """In the queue of tasks: there are notices for this rank."""


class Changed:
    """In the queue of tasks: the group is to go on without its aggregators."""


class Woken:
    """In the queue of tasks: the turn has been handed over, with an operation that has begun."""

"""The errors of a group, and what torch calls them."""

import copy

import torch.distributed as dist

from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import AffluxError, DeadlineExceeded

__all__ = [
    "CallRefused",
    "GroupClosed",
    "GroupFailed",
    "OperationTimeout",
    "another",
    "error_kind",
    "without_frames",
]


class CallRefused(AffluxError):
    """The arguments of one call are wrong in a way that shows only when it is carried out.

    Its Work fails, the group goes on.
    """


class GroupFailed(AffluxError, dist.DistBackendError):
    """An earlier operation of the group, or another rank, failed; the message gives the reason.

    Args:
        text: The message.
        elsewhere: Whether another rank's failure is what ended the group here.
    """

    def __init__(self, text: str, elsewhere: bool = False) -> None:
        super().__init__(text)
        self.elsewhere = elsewhere


class GroupClosed(AffluxError, dist.DistBackendError):
    """The group has been destroyed, or its process is ending."""


class OperationTimeout(DeadlineExceeded, dist.DistBackendError):
    """A thread has waited in vain: for an operation, or for its turn. The operation goes on."""

    @classmethod
    def of_wait(cls, call: str, seconds: float) -> "OperationTimeout":
        """Return the error of a `Work.wait(timeout)` that timed out after `seconds`."""
        return cls(f"{call}: wait() timed out after {seconds:g} s; the operation goes on")


def error_kind(failure: Exception | None) -> str:
    """Return the name of torch's `ErrorType` for what ended a group; "SUCCESS" if none did."""
    if failure is None or isinstance(failure, GroupClosed):
        return "SUCCESS"
    if isinstance(failure, RanksEnded) or getattr(failure, "elsewhere", False):
        return "REMOTE_ERROR"
    return "TIMEOUT" if isinstance(failure, DeadlineExceeded) else "COMM_ERROR"


def without_frames(error: BaseException) -> BaseException:
    """Return an error that has no traceback any more, nor has what it comes from.

    Frames hold tensors, and the group: who keeps such an error keeps both.
    """
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and not any(each is one for one in found):
            found.append(each.with_traceback(None))
            waiting += [each.__cause__, each.__context__]
    return error


def another(error: BaseException) -> BaseException:
    """Return an error like this one, for one more who raises it.

    The traceback of a wait for a Work has the frame that waits, and with it the Work and the group.
    If the error that the Work keeps had that traceback, they would keep each other: Python
    cannot look into those that are made in C++, and would free none of them.
    """
    try:
        found = copy.copy(error)
    except Exception:
        # A class of somebody else's, whose constructor takes other arguments.
        return error.with_traceback(None)
    if type(found) is not type(error):
        return error.with_traceback(None)
    found.__cause__ = error.__cause__
    return found

"""The errors of a group, and what torch calls them."""

import torch.distributed as dist

from afflux_drivers.collectives.worker import RanksEnded
from afflux_drivers.errors import AffluxError, DeadlineExceeded

__all__ = ["CallRefused", "GroupClosed", "GroupFailed", "OperationTimeout", "error_kind"]


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

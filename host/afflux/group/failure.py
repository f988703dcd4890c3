"""Puts what every rank knows about a failure into one error message."""

import torch.distributed as dist

from afflux.group.notices import CallRecord, numbered
from afflux_drivers.errors import AffluxError, DeadlineExceeded

__all__ = ["CallRefused", "GroupClosed", "GroupFailed", "OperationTimeout", "explain"]


class CallRefused(AffluxError):
    """The arguments of one call are wrong in a way that shows only when it is carried out.

    Its Work fails, the group goes on.
    """


class GroupFailed(AffluxError, dist.DistBackendError):
    """An earlier operation of the group, or another rank, failed; the message gives the reason."""


class GroupClosed(AffluxError, dist.DistBackendError):
    """The group has been destroyed, or its process is ending."""


class OperationTimeout(DeadlineExceeded, dist.DistBackendError):
    """`Work.wait(timeout)` timed out."""


def explain(
    own: AffluxError, first: CallRecord, records: dict[int, CallRecord], size: int
) -> AffluxError:
    """Add what the other ranks were doing to this rank's error.

    Args:
        own: What ended the operation here.
        first: The rank that failed first, maybe this one.
        records: The records of the ranks that answered, by rank.
        size: Ranks of the group.
    """
    lines = [
        str(records[rank]) if rank in records else f"rank {rank}: does not answer"
        for rank in range(size)
    ]
    message = str(own)
    if first.error and first.error not in message:
        # Most often the same operation failed there: it is named already.
        same = f"{numbered(first.call, first.sequence)}: "
        error = first.error.removeprefix(same) if message.startswith(same) else first.error
        message = f"{message}; first failure, at rank {first.rank}: {error}"
    # Attributes such as the missing ranks stay what they are.
    own.args = (f"{message} [{'; '.join(lines)}]",)
    return own

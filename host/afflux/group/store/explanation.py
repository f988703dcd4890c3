"""Puts what every rank knows about a failure into one error message."""

from collections.abc import Collection

from afflux.group.store.notices import CallRecord, numbered
from afflux_drivers.errors import AffluxError

__all__ = ["explain"]


def explain(
    own: AffluxError,
    first: CallRecord,
    records: dict[int, CallRecord],
    size: int,
    silence: str = "",
    departed: Collection[int] = (),
) -> AffluxError:
    """Add what the other ranks were doing to this rank's error.

    Args:
        own: The error that ended the operation here.
        first: The rank that failed first, maybe this one.
        records: The records of the ranks that answered, by rank.
        size: Ranks of the group.
        silence: That the store does not answer, through which records come.
        departed: The ranks that have left the group.
    """
    lines = [
        str(records[rank])
        if rank in records
        else f"rank {rank}: {'has left the group' if rank in departed else 'does not answer'}"
        for rank in range(size)
    ]
    message = str(own)
    if first.error and first.error not in message:
        # Most often the same operation failed there: it is named already.
        same = f"{numbered(first.call, first.sequence)}: "
        error = first.error.removeprefix(same) if message.startswith(same) else first.error
        message = f"{message}; first failure, at rank {first.rank}: {error}"
    # Attributes such as the missing ranks stay what they are.
    own.args = (f"{message} [{silence or '; '.join(lines)}]",)
    return own

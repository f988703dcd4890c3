"""Numbers about a group: what this rank has done, and what the aggregator has counted."""

from typing import Any

import torch.distributed as dist

from afflux_drivers.control.client import describe, read_counters

__all__ = ["engine_counters", "engine_description", "group_of", "statistics"]

_COUNTERS_TIMEOUT_S = 10.0


def group_of(group: Any) -> Any:
    """Return the Afflux group that `group` is, or the default one for None.

    Raises:
        TypeError: It is another backend's.
        ValueError: It has been destroyed.
    """
    from afflux.process_group import AffluxProcessGroup

    found = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(found, AffluxProcessGroup):
        raise TypeError(f"not a group of the backend afflux: {found!r}")
    if found.closed:
        raise ValueError("the group has been destroyed")
    return found


def statistics(group: Any = None) -> dict[str, Any]:
    """Return what this rank has done in `group` (default: the default group) since it was made.

    Keys: `rank`, `world_size`, `aggregator` (AFFLUX_AGGREGATOR), `engine` ("shm", "soft", …),
    `lanes`, `operations_engine` and `operations_gloo` (collectives by way), and `gloo` (calls by
    "<collective> <dtype>"). With an aggregator also `slots`, the fields of
    `afflux_drivers.worker.statistics.WorkerStatistics`, `frame_bytes_sent` and
    `frame_bytes_received`; with shared memory the counts of
    `afflux_drivers.shared.worker.SharedWorker.statistics`.
    """
    found = group_of(group)
    reducer = found.reducer
    return {
        "rank": found.rank(),
        "world_size": found.size(),
        "aggregator": str(reducer.url),
        "engine": reducer.engine,
        "operations_engine": found.engine_operations,
        "operations_gloo": sum(found.fallback.counts.values()),
        "gloo": dict(found.fallback.counts),
        **reducer.statistics(),
    }


def engine_counters(group: Any = None) -> dict[str, int]:
    """Read the aggregator's counters, over all its jobs, named as in section 11 of the protocol.

    Raises:
        ValueError: The group has no aggregator: its ranks share memory.
        AffluxError: The aggregator does not answer.
    """
    return read_counters(_aggregator_of(group), _COUNTERS_TIMEOUT_S)


def engine_description(group: Any = None) -> dict[str, Any]:
    """Return `engine`, `workers`, `lanes`, `jobs`, `slots`, `port`, `protocol` of the aggregator.

    A simulated one also reports how many clock `cycles` have passed.

    Raises:
        ValueError: The group has no aggregator: its ranks share memory.
        AffluxError: The aggregator does not answer.
    """
    return describe(_aggregator_of(group), _COUNTERS_TIMEOUT_S)


def _aggregator_of(group: Any) -> tuple[str, int]:
    ticket = group_of(group).reducer.ticket
    if ticket is None:
        raise ValueError("the group's ranks share memory: there is no aggregator to ask")
    return ticket.host, ticket.port

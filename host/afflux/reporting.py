"""Numbers about a group: what this rank did, and what the aggregator counted."""

from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from afflux_drivers.control import describe, read_counters

__all__ = ["engine_counters", "engine_description", "statistics"]

_COUNTERS_TIMEOUT_S = 10.0


def _group(group: Any) -> Any:
    from afflux.process_group import AffluxProcessGroup

    found = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(found, AffluxProcessGroup):
        raise TypeError(f"not a group of the backend afflux: {found!r}")
    if found.membership is None:
        raise ValueError("the group has been destroyed")
    return found


def statistics(group: Any = None) -> dict[str, Any]:
    """What this rank has done in `group` (default: the default group) since it was made.

    Keys: `rank`, `world_size`, `aggregator` (its URL), `engine` ("soft", "rtl", …), `lanes`,
    `slots`, `operations_engine` and `operations_gloo` (collectives by way), `gloo` (calls by
    "<collective> <dtype>"), and the fields of `afflux_drivers.statistics.WorkerStatistics`, with
    `frame_bytes_sent` and `frame_bytes_received`.
    """
    found = _group(group)
    membership = found.membership
    worker = membership.worker.statistics
    return {
        "rank": found.rank(),
        "world_size": found.size(),
        "aggregator": membership.url,
        "engine": membership.ticket.engine,
        "lanes": membership.ticket.lanes,
        "slots": membership.ticket.slots,
        "operations_engine": found.engine_operations,
        "operations_gloo": sum(found.fallback.counts.values()),
        "gloo": dict(found.fallback.counts),
        **asdict(worker),
        "frame_bytes_sent": worker.frame_bytes_sent,
        "frame_bytes_received": worker.frame_bytes_received,
    }


def engine_counters(group: Any = None) -> dict[str, int]:
    """The aggregator's counters, over all its jobs, by the names of the protocol's section 11.

    Raises:
        AffluxError: The aggregator does not answer.
    """
    ticket = _group(group).membership.ticket
    return read_counters((ticket.host, ticket.port), _COUNTERS_TIMEOUT_S)


def engine_description(group: Any = None) -> dict[str, Any]:
    """What the aggregator is: `engine`, `workers`, `lanes`, `jobs`, `slots`, `port`, `protocol`.

    A simulated one also says how many clock `cycles` have passed.

    Raises:
        AffluxError: The aggregator does not answer.
    """
    ticket = _group(group).membership.ticket
    return describe((ticket.host, ticket.port), _COUNTERS_TIMEOUT_S)

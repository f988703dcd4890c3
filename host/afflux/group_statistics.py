"""Numbers about a group: the counts of this rank, and those of the aggregator."""

from collections import Counter
from typing import Any

import torch.distributed as dist

from afflux.group.backend_lookup import cpu_backend
from afflux.group.core import Group
from afflux.group.settings.variables import Settings
from afflux_drivers.control.client import describe, read_counters
from afflux_drivers.control.secret import secret_of_text

__all__ = ["engine_counters", "engine_description", "find_group", "group_of", "statistics"]

_COUNTERS_TIMEOUT_S = 10.0


def group_of(group: dist.ProcessGroup | None) -> Group:
    """Return the group behind a process group of the backend "afflux"; for None, the default one.

    Raises:
        TypeError: It is another backend's.
        ValueError: It has been destroyed.
    """
    core = find_group(group)
    if core is None:
        raise TypeError(f"not a group of the backend afflux: {group!r}")
    if core.closed:
        raise ValueError("the group has been destroyed")
    return core


def find_group(group: Any) -> Group | None:
    """Return the group behind a process group, for None the default one; None if it is not ours."""
    core = getattr(cpu_backend(group), "core", None)
    return core if isinstance(core, Group) else None


def statistics(group: Any = None) -> dict[str, Any]:
    """Return what this rank has done in `group` (default: the default group) since it was made.

    Keys:
        rank, world_size: Of this rank in the group.
        aggregator: AFFLUX_AGGREGATOR.
        engine: Kind of engine: "shm", "soft", …
        topology: Which way sums take (`afflux.group.reducers.topology`).
        topology_reason: Why it was chosen, in words.
        lanes: Most blocks in a packet; 0 where there are none.
        operations_engine: Operations that the engine has carried out.
        operations_gloo: Calls that went to Gloo; a send and a receive count as one each, at the
            rank that calls it.
        gloo: The same by "<collective> <dtype>".
        sparse: Of sums of sparse tensors, by kind: `calls` by form, and of the latest the `form`,
            the `density` of the rank with most rows, the expected `union` as a share of all rows,
            its `overlap` (less than 1 if ranks have the same rows), `index_bytes` and `value_bytes`
            that each rank receives, and `expected_ms` by the cost model (`docs/schemes/zen.md`).
        device_blocks: Of all-reduces on a device by their blocks that are not zeros
            (`docs/devices.md`): `looked`, at how many tensors; `taken`, of how many only these
            blocks came to the host; `blocks` of the latter, and `blocks_taken` of them.
        calls: By "<collective> <way>", of the calls that somebody observed (`docs/observing.md`):
            `calls`, `bytes` of the larger side of each, in or out, and `seconds` from their
            beginnings to their ends, waiting for other ranks included.

    With an aggregator also `aggregators`, how many share the columns, `slots`, `fail_overs` (1 if
    its ranks have gone on without it, after which other counts stand still), the fields of
    `afflux_drivers.worker.statistics.WorkerStatistics`, `frame_bytes_sent` and
    `frame_bytes_received`; without one the counts of the
    worker (`statistics` of `SharedWorker`, `StreamsWorker`, `HostsWorker`), and with one of streams
    `fail_overs`, too.
    """
    found = group_of(group)
    reducer = found.reducer
    gloo = found.gloo_counts()
    return {
        "rank": found.rank,
        "world_size": found.size,
        "aggregator": str(reducer.url),
        "engine": reducer.engine,
        "topology": reducer.topology.name,
        "topology_reason": reducer.topology.reason,
        "operations_engine": found.engine_operations,
        "operations_gloo": sum(gloo.values()),
        "gloo": gloo,
        "sparse": found.sums.kinds.statistics(),
        "device_blocks": found.staged_blocks.statistics(),
        "calls": found.observers.counts.as_dict(),
        **reducer.statistics(),
    }


def engine_counters(group: Any = None) -> dict[str, int]:
    """Read the aggregator's counters, over all its jobs, named as in section 11 of the protocol.

    Of several that share the columns, the sums.

    Raises:
        ValueError: The group has no aggregator: its ranks share memory.
        AffluxError: The aggregator does not answer.
    """
    found: Counter[str] = Counter()
    for address, secret in _aggregators_of(group):
        found.update(read_counters(address, _COUNTERS_TIMEOUT_S, secret))
    return dict(found)


def engine_description(group: Any = None) -> dict[str, Any]:
    """Return `engine`, `workers`, `lanes`, `jobs`, `slots`, `port`, `protocol` of the aggregator.

    A simulated one also reports how many clock `cycles` have passed. Of several that share the
    columns it is the first one's.

    Raises:
        ValueError: The group has no aggregator: its ranks share memory.
        AffluxError: The aggregator does not answer.
    """
    address, secret = _aggregators_of(group)[0]
    return describe(address, _COUNTERS_TIMEOUT_S, secret)


def _aggregators_of(group: Any) -> list[tuple[tuple[str, int], bytes | None]]:
    """Return the addresses of the group's aggregators, and the secrets of their channels."""
    tickets = group_of(group).reducer.tickets
    if not tickets:
        topology = group_of(group).reducer.topology
        raise ValueError(f"there is no aggregator to ask: the group's way of sums is {topology}")
    # In a tree, several jobs are at the own leaf.
    secrets = {ticket.control: ticket.secret for ticket in tickets}
    named = None if all(secrets.values()) else Settings.from_environment().control_secret()
    return [(address, secret_of_text(own) if own else named) for address, own in secrets.items()]

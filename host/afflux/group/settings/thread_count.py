"""How many threads move a rank's data between hosts, where nobody has said it."""

import os
from pathlib import Path

from afflux.group.settings.host_address import name_of_interface

__all__ = ["link_mbit", "thread_count"]

_MBIT_A_THREAD = 10_000
"""So much one thread sends and receives, sums included, on the machines that were measured."""

_MOST = 8


def thread_count(address: str, ranks_here: int) -> int:
    """Return how many threads fill the port of an address, if there are processors for them.

    Args:
        address: Of this host.
        ranks_here: Ranks of this host, which share its processors.
    """
    processors = len(os.sched_getaffinity(0)) // ranks_here
    return max(1, min(link_mbit(address) // _MBIT_A_THREAD, processors, _MOST))


def link_mbit(address: str) -> int:
    """Return the speed of the port that has an address, in Mbit/s; 0 if it is not known."""
    name = name_of_interface(address)
    try:
        # A link that is down has -1.
        return max(0, int(Path(f"/sys/class/net/{name}/speed").read_text(encoding="ascii")))
    except (OSError, ValueError):
        # No such interface, or one without a speed, such as a bridge.
        return 0

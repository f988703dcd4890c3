"""How many threads move a rank's data between hosts, where nobody has said it."""

import os
from pathlib import Path

from afflux.group.settings.host_address import name_of_interface

__all__ = ["thread_count"]

_MBIT_A_THREAD = 10_000
"""So much one thread sends and receives, sums included, on the machines that were measured."""

_MOST = 8


def thread_count(address: str, ranks_here: int) -> int:
    """Return how many threads fill the port of an address, if there are processors for them.

    Args:
        address: Of this host.
        ranks_here: Ranks of this host, which share its processors.
    """
    name = name_of_interface(address)
    try:
        speed = int(Path(f"/sys/class/net/{name}/speed").read_text(encoding="ascii"))
    except (OSError, ValueError):
        # No such interface, or one without a speed, such as a bridge.
        speed = 0
    processors = len(os.sched_getaffinity(0)) // ranks_here
    return max(1, min(speed // _MBIT_A_THREAD, processors, _MOST))

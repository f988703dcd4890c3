"""The barrier that names the ranks that have not come: Gloo's, with their ranks in the world."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from afflux_drivers.errors import AffluxError, RanksMissing

__all__ = ["monitored_barrier"]

# "[Rank 0]: Rank 2 failed to pass monitoredBarrier", or "Ranks 1, 2 failed" if it waits for all.
_MISSING = re.compile(r"Ranks? (\d+(?:, \d+)*) failed to pass monitoredBarrier")


def monitored_barrier(
    gloo: Any, global_ranks: Sequence[int], timeout: timedelta, wait_all_ranks: bool
) -> None:
    """Return when all ranks have called this.

    Rank 0 of the group hears of each of the others. If one does not come it raises an error that
    names it, and so do, without the name, those that have come. Gloo closes connections by this: no
    later call of the group's through Gloo can succeed.

    Args:
        gloo: The group's ProcessGroupGloo.
        global_ranks: Its members' ranks in the world, by rank.
        timeout: How long rank 0 waits. The others wait for rank 0 as long as the group may.
        wait_all_ranks: Whether rank 0 names all ranks that have not come, not the first only.

    Raises:
        RanksMissing: At rank 0; `ranks` are those of the group.
        AffluxError: At another rank: rank 0 has raised an error, or has not come.
    """
    try:
        gloo.monitored_barrier(timeout, wait_all_ranks)
    except RuntimeError as error:
        text = str(error)
        found = _MISSING.search(text)
        if found is None:
            raise AffluxError(f"monitored_barrier: {text}") from None
        ranks = tuple(map(int, found[1].split(", ")))
        world = tuple(global_ranks[rank] for rank in ranks)
        names = f" (in the world: {', '.join(map(str, world))})" if world != ranks else ""
        raise RanksMissing(f"monitored_barrier timed out{names}: {text}", ranks) from None

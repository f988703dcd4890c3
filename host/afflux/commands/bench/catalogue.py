"""The collectives, types and backends that `afflux bench` knows: facts that need no torch.

Sizes and counts are those of nccl-tests: the size of all_gather and reduce_scatter is that of the
larger buffer, their count that of one rank's part, which is a multiple of 16 bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["COLLECTIVES", "COMPARED", "REPLAYS", "TYPES", "Collective"]

COMPARED = ("gloo", "mpi")
"""The values of --compare."""
REPLAYS = ("decode",)
"""The values of --replay."""

TYPES = {
    "float": "float32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int32": "int32",
    "int64": "int64",
}
"""The types that Afflux sums: torch's names by those in nccl-tests; int64 only in shared memory."""

_ALIGNMENT_BYTES = 16


@dataclass(frozen=True)
class Collective:
    """The facts about a collective that are known before anything runs.

    Attributes:
        name: In the command line and in rows.
        program: The program of nccl-tests.
        bus_factor: Busbw by algbw, for a number of ranks.
        reduces: Whether it has a reduction.
        parts: Whether one of its buffers consists of a part for each rank.
        copies: Whether out of place is a copy and then a call in place.
        root: As nccl-tests shows it; -1: none.
        sized: Whether it has data at all.
    """

    name: str
    program: str
    bus_factor: Callable[[int], float]
    reduces: bool = False
    parts: bool = False
    copies: bool = False
    root: int = -1
    sized: bool = True

    def count(self, size: int, itemsize: int, ranks: int) -> int:
        """Return the elements that nccl-tests would show for `size` bytes; at least 1 if sized."""
        if not self.sized:
            return 0
        if not self.parts:
            return max(1, size // itemsize)
        step = max(1, _ALIGNMENT_BYTES // itemsize)
        return max(1, size // itemsize // ranks // step * step)

    def bytes(self, count: int, itemsize: int, ranks: int) -> int:
        """Return the size that nccl-tests would show for a count."""
        return count * itemsize * (ranks if self.parts else 1)


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = {
    each.name: each
    for each in (
        Collective(
            "all_reduce", "all_reduce_perf", lambda n: 2 * _share(n), reduces=True, copies=True
        ),
        Collective("broadcast", "broadcast_perf", lambda _: 1.0, copies=True, root=0),
        Collective("all_gather", "all_gather_perf", _share, parts=True),
        Collective("reduce_scatter", "reduce_scatter_perf", _share, reduces=True, parts=True),
        Collective("barrier", "barrier_perf", lambda _: 0.0, sized=False),
    )
}

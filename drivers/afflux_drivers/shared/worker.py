"""A rank's end of a shared-memory group: collectives, and memory that all ranks reach."""

import os
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collectives.worker import GroupWorker

__all__ = ["SharedWorker"]


class SharedWorker(GroupWorker):
    """One rank of one group of ranks that share memory; see `GroupWorker`.

    Reachable tensors that still exist when it is closed keep their memory.

    Args:
        descriptor: File descriptor of the group's segment, which belongs to the worker from now on.
        rank: Own rank.
        ranks: Number of ranks in the group.
        names: The ranks' names in messages and errors, in order: their numbers in a larger group.
            None: as they are numbered here.

    Raises:
        OSError: The segment cannot be mapped.
        ValueError: It is not one for so many ranks, or the rank's place is taken.
    """

    def __init__(
        self, descriptor: int, rank: int, ranks: int, names: Sequence[int] | None = None
    ) -> None:
        names = tuple(range(ranks)) if names is None else tuple(names)
        self._memory = _native.SharedGroup(descriptor, rank, ranks, list(names))
        super().__init__(self._memory, rank, names, "shared memory")
        self._next_offset = 0

    @property
    def native(self) -> _native.SharedGroup:
        """The native part."""
        return self._memory

    def allocate(self, length: int) -> NDArray[Any]:
        """Return zeroed memory that all ranks reach. Collective: all ranks pass the same length.

        Args:
            length: Number of bytes.

        Returns:
            1-D uint8, of whole pages. The memory goes back to the system with the last array or
            tensor that refers to it.
        """
        return self._memory.allocate(*self._next_slices(length))

    def allocate_all(self, length: int) -> list[NDArray[Any]]:
        """Do the same as `allocate`; return the memory of every rank, this one's among it."""
        return self._memory.allocate_all(*self._next_slices(length))

    def _next_slices(self, length: int) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        whole = max(-(-length // page), 1) * page
        offset = self._next_offset
        # Never used again, as another rank may still have the old one; a hole in a memfd is free.
        self._next_offset += whole * self.ranks
        return offset, whole

    def statistics(self) -> dict[str, int]:
        """Return counts since the worker was made. Any thread."""
        return dict(self._memory.statistics())

"""The topologies: which ways the sums of a group can take.

topology             sums are made
memory               in the memory that the ranks of one host share
aggregator           by one aggregator, or by several that share the columns
tree                 by aggregators below a parent
aggregator by host   as above; where a host has several ranks they first share memory, and one of
                     them sends for all (`afflux.group.reducers.host_worker`)
streams              by the ranks themselves, each of which has a stream to each other one; larger
                     ones by an aggregator of streams, if one is named
streams by host      likewise: the ranks of a host share memory, and have streams to one rank of
                     each other host
gloo                 by Gloo

By host, a host with a hundred ranks sends one tensor, else a hundred.
"""

from typing import NamedTuple

__all__ = ["BY_HOST", "Topology"]

BY_HOST = " by host"


class Topology(NamedTuple):
    """The way of a group's sums.

    Attributes:
        name: As in the table above.
        reason: Why it was chosen, in words.
    """

    name: str
    reason: str

    @property
    def streamed(self) -> bool:
        """Whether the ranks sum over streams."""
        return self.name.startswith("streams")

    @property
    def by_host(self) -> bool:
        """Whether the ranks of a host send one stream."""
        return self.name.endswith(BY_HOST)

    def flat(self) -> "Topology":
        """Return the same for hosts whose ranks cannot share memory."""
        return self._replace(name=self.name.removesuffix(BY_HOST))

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"

"""Which way the sums of a group take: the topologies that there are, and the choice of one.

topology         sums are made
memory           in the memory that the ranks of one host share
aggregator       by one aggregator, or by several that share the columns
tree             by aggregators below a parent
shards           by a software aggregator in each host, all of which share the columns
sharded tree     as with shards; in each host a leaf first sums what the host's own ranks send
gloo             by Gloo

A host with a hundred ranks sends its tensor once in a sharded tree, a hundred times with shards.
"""

from collections.abc import Sequence
from typing import NamedTuple

from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.exchange import Introduction

__all__ = ["Topology", "choose", "hosts_of", "names_of_hosts"]


class Topology(NamedTuple):
    """The way of a group's sums.

    Attributes:
        name: As in the table above.
        reason: Why it was chosen, in words.
    """

    name: str
    reason: str

    @property
    def sharded(self) -> bool:
        """Whether each host has a shard."""
        return self.name in ("shards", "sharded tree")

    @property
    def tree(self) -> bool:
        """Whether aggregators have a parent."""
        return self.name in ("tree", "sharded tree")

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def hosts_of(everyone: Sequence[Introduction]) -> list[list[int]]:
    """Return the ranks of each host, in order of their least ranks."""
    hosts: dict[str, list[int]] = {}
    for rank, each in enumerate(everyone):
        hosts.setdefault(each.host, []).append(rank)
    return list(hosts.values())


def names_of_hosts(hosts: Sequence[Sequence[int]]) -> str:
    """Say which ranks are together."""
    return " | ".join(",".join(map(str, ranks)) for ranks in hosts)


def choose(url: AggregatorUrl, hosts: Sequence[Sequence[int]], unshared: str) -> Topology:
    """Choose the way of ranks that do not share memory. Rank 0 does it for all.

    Args:
        url: AFFLUX_AGGREGATOR.
        hosts: The ranks of each host.
        unshared: Why memory is not shared, if it was tried.
    """
    if url.scheme == "udp" and url.parent is not None:
        return Topology("tree", f"AFFLUX_AGGREGATOR={url}")
    if url.scheme == "shards":
        return Topology(_sharded(hosts), f"AFFLUX_AGGREGATOR={url}")
    if url.scheme == "gloo":
        return Topology("gloo", f"AFFLUX_AGGREGATOR={url}")
    if url.scheme != "auto":
        return Topology("aggregator", f"AFFLUX_AGGREGATOR={url}")
    if len(hosts) == 1:
        return Topology("gloo", unshared or "the ranks of one host cannot share memory")
    apart = f"rank {hosts[1][0]} is on another host or in another network namespace than rank 0"
    # If paths and leaders allow it, and if a contest with Gloo does not tell otherwise.
    return Topology(_sharded(hosts), apart)


def _sharded(hosts: Sequence[Sequence[int]]) -> str:
    alone = len(hosts) == 1 or all(len(ranks) == 1 for ranks in hosts)
    return "shards" if alone else "sharded tree"

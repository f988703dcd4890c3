"""Which way the sums of a group take: the topologies that there are, and the choice of one.

topology             sums are made
memory               in the memory that the ranks of one host share
aggregator           by one aggregator, or by several that share the columns
tree                 by aggregators below a parent
shards               by a software aggregator in each host, all of which share the columns
aggregator by host   as above; where a host has several ranks they first share memory, and one of
shards by host       them sends for all (`afflux.group.host_worker`)
gloo                 by Gloo

By host, a host with a hundred ranks sends one tensor, else a hundred.
"""

from collections.abc import Sequence
from typing import NamedTuple

from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.exchange import Introduction

__all__ = ["Topology", "choose", "hosts_of", "names_of_hosts"]


_BY_HOST = " by host"


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
        return self.name.startswith("shards")

    @property
    def by_host(self) -> bool:
        """Whether the ranks of a host send one stream."""
        return self.name.endswith(_BY_HOST)

    def flat(self) -> "Topology":
        """Return the same for hosts whose ranks cannot share memory."""
        return self._replace(name=self.name.removesuffix(_BY_HOST))

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
        return Topology("shards" + _suffix(hosts), f"AFFLUX_AGGREGATOR={url}")
    if url.scheme == "udp":
        return Topology("aggregator" + _suffix(hosts), f"AFFLUX_AGGREGATOR={url}")
    if url.scheme == "gloo":
        return Topology("gloo", f"AFFLUX_AGGREGATOR={url}")
    if url.scheme != "auto":
        return Topology("aggregator", f"AFFLUX_AGGREGATOR={url}")
    if len(hosts) == 1:
        return Topology("gloo", unshared or "the ranks of one host cannot share memory")
    apart = f"rank {hosts[1][0]} is on another host or in another network namespace than rank 0"
    # If paths and leaders allow it, and if a contest with Gloo does not tell otherwise.
    return Topology("shards" + _suffix(hosts), apart)


def _suffix(hosts: Sequence[Sequence[int]]) -> str:
    # Who names an aggregator for the ranks of one host wants to see it work.
    alone = len(hosts) == 1 or all(len(ranks) == 1 for ranks in hosts)
    return "" if alone else _BY_HOST

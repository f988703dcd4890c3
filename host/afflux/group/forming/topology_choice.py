"""The choice of the way that the sums of a new group take, and its inputs."""

from collections.abc import Sequence

from afflux.group.reducers.topology import BY_HOST, Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.store.introduction import Introduction

__all__ = ["choose", "hosts_of", "names_of_hosts"]


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
    if url.scheme == "streams":
        return _among_ranks(hosts, f"AFFLUX_AGGREGATOR={url}")
    if url.scheme == "udp":
        return Topology("aggregator" + _suffix(hosts), f"AFFLUX_AGGREGATOR={url}")
    if url.scheme == "gloo":
        return Topology("gloo", f"AFFLUX_AGGREGATOR={url}")
    if url.scheme != "auto":
        return Topology("aggregator", f"AFFLUX_AGGREGATOR={url}")
    if len(hosts) == 1:
        return Topology("gloo", unshared or "the ranks of one host cannot share memory")
    apart = f"rank {hosts[1][0]} is on another host or in another network namespace than rank 0"
    return _among_ranks(hosts, apart)


def _among_ranks(hosts: Sequence[Sequence[int]], reason: str) -> Topology:
    """Return the topology without an aggregator of its own."""
    return Topology("streams" + _suffix(hosts), reason)


def _suffix(hosts: Sequence[Sequence[int]]) -> str:
    # A user that names an aggregator for the ranks of one host wants to see it work.
    alone = len(hosts) == 1 or all(len(ranks) == 1 for ranks in hosts)
    return "" if alone else BY_HOST

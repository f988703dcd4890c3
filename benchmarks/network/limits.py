"""The wire's limit: the least seconds of an all-reduce between hosts, headers included.

Bytes are counted as the ports of `benchmarks.network.namespaces` count them: from the Ethernet
header on. Links are full duplex, tensors long, and the hosts' own work costs nothing.

The blocks of a slot's lanes go together, at the pace of the union of all ranks' blocks: in each
round a host sends the header and those of the F blocks that it has, and receives the header and
F blocks (`docs/protocol.md`, section 4).
"""

from dataclasses import dataclass

from afflux_hdl.contract import wire
from benchmarks.network.cases import Case, Setup

__all__ = ["LONG_BYTES", "gloo_limit_s", "limit_s"]

LONG_BYTES = 1 << 20
"""Shorter tensors take the time of round trips, not of bytes: they have no limit here."""

_TCP_HEADERS = 52
"""IPv4 20, TCP 20, time stamps 12."""

_ETHERNET = wire.ETHERNET_BYTES


def gloo_limit_s(setup: Setup, case: Case) -> float:
    """Return the seconds of a ring over TCP, which moves all blocks."""
    if setup.gbit is None:
        return 0.0
    share = 2 * (setup.ranks - 1) / setup.ranks
    sent = share * case.bytes * (setup.mtu + _ETHERNET) / (setup.mtu - _TCP_HEADERS)
    return sent * 8 / (setup.gbit * 1e9)


@dataclass(frozen=True)
class _Streams:
    """Bytes of one host for a whole tensor.

    Attributes:
        sent: To whoever sums.
        received: From there.
    """

    sent: float
    received: float

    @classmethod
    def of(cls, setup: Setup, case: Case) -> "_Streams":
        """Count them, with the ranks of a host summed before anything is sent."""
        lanes = min(wire.LANES_MAX, wire.lanes_for_mtu(setup.mtu))
        host = _union(case, setup.ranks_per_host)
        union = _union(case, setup.ranks)
        rounds = union * case.bytes / (lanes * wire.BLOCK_BYTES)
        headers = rounds * wire.FRAME_BYTES_MIN
        return cls(headers + host * case.bytes, headers + union * case.bytes)


def _union(case: Case, ranks: int) -> float:
    """Return which share of blocks at least one of some ranks has.

    Whole tensors have as many blocks of any size, if those are whole numbers of the wire's blocks.
    """
    if case.overlap == "full":
        return case.density
    return 1 - (1 - case.density) ** ranks


def limit_s(setup: Setup, case: Case, topology: str) -> float:
    """Return the seconds of Afflux's way; 0 if there is no limit.

    The time of the busiest link, in the direction that carries more.

    Args:
        setup: The network.
        case: The tensor.
        topology: "udp", "udp_host", "tcp": one aggregator with a port of its own; "soft": one
            beside rank 0; else each host sums a share of the blocks; "two": likewise, on all of its
            links.
    """
    if setup.gbit is None or case.bytes < LONG_BYTES or case.kind != "all_reduce":
        return 0.0
    streams = _Streams.of(setup, case)
    busier = max(streams.sent, streams.received)
    hosts = setup.hosts
    if topology in ("udp", "udp_host", "tcp"):
        times = [busier / setup.gbit]
        if setup.aggregator_gbit is not None:
            times.append(hosts * busier / setup.aggregator_gbit)
        return max(times) * 8 / 1e9
    if topology == "soft":
        return (hosts - 1) * busier * 8 / (setup.gbit * 1e9)
    both = (hosts - 1) / hosts * (streams.sent + streams.received)
    links = setup.links if topology == "two" else 1
    return both * 8 / (setup.gbit * links * 1e9)

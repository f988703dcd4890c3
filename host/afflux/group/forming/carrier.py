"""The carrier of a group's streams: their TCP connections, or UCX.

Every rank publishes the reasons that keep it from UCX, and all make the same choice by them. Then
each makes its lanes ready and publishes their addresses (ucx/<r>), and connects with the others
(endpoints/<r>).
"""

import logging
import socket
from collections.abc import Mapping, Sequence

from afflux.group.settings.carrier import Lacks
from afflux.group.store.exchange import Exchange, StepFailed
from afflux_drivers import _native
from afflux_drivers.streams.ucx import find_ucx

__all__ = ["connect_ucx", "takes_ucx"]

_log = logging.getLogger("afflux")


def takes_ucx(carrier: str, ranks: Mapping[int, Lacks], aggregator: bool) -> bool:
    """Return whether UCX carries the streams. The same at all ranks.

    Args:
        carrier: AFFLUX_CARRIER, on which the ranks agree.
        ranks: Their lacks.
        aggregator: Whether there is an aggregator of streams, to which there is only TCP.

    Raises:
        StepFailed: It was asked for, and cannot be had.
    """
    if carrier == "tcp":
        return False
    if carrier == "auto":
        return not aggregator and not any(each.rdma for each in ranks.values())
    if aggregator:
        raise StepFailed(
            "AFFLUX_CARRIER=ucx, but an aggregator of streams has TCP connections alone"
        )
    missing = [f"rank {rank}: {each.ucx}" for rank, each in ranks.items() if each.ucx]
    if missing:
        raise StepFailed(f"AFFLUX_CARRIER=ucx, but {'; '.join(missing)}")
    return True


def connect_ucx(
    exchange: Exchange,
    rank: int,
    members: Sequence[int],
    mesh: Sequence[int],
    lanes: Sequence[Sequence[socket.socket | None]],
    patience_s: float,
) -> _native.UcxLanes | None:
    """Let UCX carry these lanes. Collective among all members.

    Args:
        exchange: The group's.
        rank: Own.
        members: Ranks that have streams.
        mesh: Those that have streams with this one, in order; empty if it has none.
        lanes: The connected sockets, by lane and by rank of the mesh.
        patience_s: For each step.

    Returns:
        The lanes; None for a rank that has no streams.

    Raises:
        StepFailed: A rank could not; at every rank.
        RendezvousError: Ranks did not come.
    """
    ready: _native.UcxLanes | None = None

    def make() -> list[str]:
        nonlocal ready
        sockets = [[-1 if each is None else each.fileno() for each in lane] for lane in lanes]
        ucx = find_ucx()
        ready = _native.UcxLanes(ucx.path, sockets)
        _log.info("rank %d: UCX %s carries the streams (%s)", rank, ucx.version, ucx.path)
        return [address.hex() for address in ready.addresses()]

    published = exchange.share("ucx", members, make, patience_s)
    addresses = dict(zip(members, published, strict=True))

    def connect() -> None:
        assert ready is not None
        for member, other in enumerate(mesh):
            if other == rank:
                continue
            try:
                ready.connect(member, [bytes.fromhex(each) for each in addresses[other]])
            except RuntimeError as error:
                raise OSError(f"to rank {other}: {error}") from error

    exchange.share("endpoints", members, connect, patience_s)
    return ready

"""Tells a group which of its ranks are gone: their processes have ended, or have left the group.

Each rank publishes where its process listens, then there is a connection between each two of them
(`links`). Ranks of one host meet at the loopback interface, those of several at the address that
they have for one another. These are the steps in the store:

    every rank   writes its process and host                      witness/<r>
    every rank   writes where it listens, once it knows where     listens/<r>
"""

import logging
import os
import time
from collections.abc import Iterator

from afflux.group.liveness.link import Address, Link
from afflux.group.liveness.links import Links, acquire_links, release_links
from afflux.group.settings.host_address import address_among
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.exchange import Exchange
from afflux.group.store.introduction import host_identity
from afflux.group.store.keys import GroupStore, master_of
from afflux_drivers.collectives.worker import RanksEnded

__all__ = ["Witness"]

_log = logging.getLogger("afflux")

_CONNECT_S = 5.0
"""Gloo, which every group has, connects the same ranks; without these links it takes longer to
notice that one is gone, that is all."""

_GRACE_S = 0.05
"""Packets that a rank has sent before it ended may still be on their way through the aggregator."""

_LOOPBACK = "127.0.0.1"


class Witness:
    """One rank's connections with the others of its group; none before `meet`.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._incarnation = ""
        self._mine: Links | None = None
        self._links: dict[int, Link] = {}
        self._awaited: dict[int, str] = {}

    def meet(self, membership: Membership, keys: GroupStore, settings: Settings) -> None:
        """Connect with the other ranks. Collective.

        A rank that cannot be reached is not watched; a warning says so.

        Args:
            membership: Of this rank.
            keys: The group's.
            settings: Own.

        Raises:
            RendezvousError: Ranks did not come.
        """
        self._incarnation = keys.incarnation
        rank, size = membership.rank, membership.size
        # Apart from steps that have failed, after which all go on with Gloo.
        own_keys = keys.asked.under("witness")
        exchange = Exchange(own_keys, rank, size, membership.timeout.total_seconds())
        patience_s = settings.start_timeout_s + settings.connect_timeout_s
        links = self._mine = acquire_links()
        own = host_identity()
        hosts = exchange.share("witness", range(size), lambda: own, patience_s)
        master = master_of(keys.store) or os.environ.get("MASTER_ADDR", "")
        where = ""

        def others() -> Iterator[str]:
            # A rank on the host of the store's server may need the others to find its address.
            if own == hosts[0]:
                further = [each for each in range(size) if hosts[each] != own]
                for fields in exchange.parts("listens", further, patience_s):
                    if fields is not None:
                        yield Address(*fields).host

        def listen() -> Address | None:
            nonlocal where
            try:
                where = _LOOPBACK
                if len(set(hosts)) > 1:
                    url = settings.aggregator
                    towards = url.host if url.scheme == "udp" else master
                    where = address_among(settings.interface, towards, others)
                return links.listen(where)
            except OSError as error:
                where = ""
                _log.warning("rank %d: the other ranks are not watched: %s", rank, error)
                return None

        found = exchange.share("listens", range(size), listen, patience_s)
        deadline = time.monotonic() + _CONNECT_S
        for other, fields in enumerate(found):
            if fields is None or not where or fields[0] == links.identity:
                continue
            address = Address(*fields)
            link = links.link(address, where, hosts[other] != own, deadline)
            if link is not None:
                self._links[other] = link
                continue
            self._awaited[other] = address.identity
            _log.warning(
                "rank %d: rank %d at %s port %d cannot be reached by TCP so far: if it ends, that "
                "is noticed only when an operation times out",
                rank, other, address.host, address.port,
            )  # fmt: skip

    def lost(self, sequence: int) -> RanksEnded | None:
        """Return the error if ranks will not come to an operation.

        Args:
            sequence: Number of the operation.
        """
        seen: dict[int, str] = {}
        now = time.monotonic()
        links = self._known()
        for rank, link in links.items():
            left = link.left.get(self._incarnation)
            if left is None:
                if link.ended and now - link.ended_at >= _GRACE_S:
                    seen[rank] = link.ended
            elif sequence > left:
                seen[rank] = f"it has left the group after operation {left}"
        if not seen:
            return None
        ranks = ", ".join(map(str, seen))
        what = "; ".join(f"rank {each} at {links[each].peer}: {why}" for each, why in seen.items())
        return RanksEnded(f"rank(s) {ranks} ended or left the group: {what}", tuple(sorted(seen)))

    def leave(self, sequence: int) -> None:
        """Tell the others that this rank has left the group.

        Args:
            sequence: Number of the last operation that it has carried out.
        """
        if os.getpid() != self._pid:
            return
        for link in self._known().values():
            link.leave(self._incarnation, sequence)

    def close(self) -> None:
        """Let go of the connections, after `leave`. May be called more than once."""
        links, self._mine = self._mine, None
        self._links = {}
        self._awaited = {}
        if links is not None:
            release_links(links)

    def _known(self) -> dict[int, Link]:
        """Return the links, with those of ranks that have connected late."""
        links = self._mine
        if self._awaited and links is not None:
            waits = self._awaited.items()
            late = {rank: link for rank, who in waits if (link := links.at(who)) is not None}
            # Other threads may be going through the old ones.
            self._links = {**self._links, **late}
            self._awaited = {rank: who for rank, who in waits if rank not in late}
        return self._links

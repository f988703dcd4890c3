"""The end of a rank that accepts: the connections of higher ranks."""

import asyncio
import socket
from collections.abc import Sequence

from afflux_drivers.streams.handshake import Claim, Member, Verdict, answer, examine
from afflux_drivers.streams.strangers import Stranger, Strangers

__all__ = ["Acceptor", "has_ended"]


class Acceptor:
    """The connections of a rank with higher ones, which they make.

    Args:
        listener: The socket at which they connect.
        member: This rank.
        hosts: Names of all ranks' hosts, as `peer_name` has them.
        names: The ranks' numbers in messages.

    Attributes:
        sockets: Those that have come, by rank and link.
        due: Those that are to come.
    """

    def __init__(
        self, listener: socket.socket, member: Member, hosts: set[str], names: Sequence[int]
    ) -> None:
        self._member, self._names = member, names
        self._strangers = Strangers(listener, self._welcome, frozenset(hosts))
        higher = range(member.rank + 1, member.ranks)
        self._places = [(peer, link) for peer in higher for link in range(member.links)]
        self.sockets: dict[tuple[int, int], socket.socket] = {}
        self.due = set(self._places)
        self._all_came = asyncio.Event()

    @property
    def turned_away(self) -> str:
        """The peers that were turned away, as `Strangers` has them."""
        return self._strangers.turned_away

    async def run(self) -> None:
        """Accept connections until none is due."""
        if not self.due:
            return
        try:
            self._strangers.listen()
            await self._all_came.wait()
        finally:
            await self._strangers.end()

    async def _welcome(self, stranger: Stranger) -> str:
        """Return why a connection does not belong to the group; empty if it does."""
        tcp = stranger.tcp
        claim, codes = await examine(tcp, self._member.secret)
        verdict = self._judge(claim)
        place = (claim.connecting, claim.link)
        if verdict == Verdict.ACCEPTED:
            if place in self.sockets:
                self.sockets[place].close()
            self.sockets[place] = tcp
        try:
            await answer(tcp, codes, verdict)
        except BaseException:
            if self.sockets.get(place) is tcp:
                del self.sockets[place]
            raise
        if verdict != Verdict.ACCEPTED:
            known = claim.connecting < len(self._names)
            number = self._names[claim.connecting] if known else claim.connecting
            return f"rank {number} at {stranger.where}: {verdict.reason}"
        self.due.discard(place)
        if not self.due:
            # One whose verdict was lost comes again.
            self.due = {each for each in self._places if has_ended(self.sockets[each])}
            if not self.due:
                self._all_came.set()
        return ""

    def _judge(self, claim: Claim) -> Verdict:
        verdict = self._member.judge(claim)
        taken = self.sockets.get((claim.connecting, claim.link))
        # The peer tries again where the verdict was lost, over a connection that has ended.
        if verdict == Verdict.ACCEPTED and taken is not None and not has_ended(taken):
            return Verdict.OCCUPIED
        return verdict


def has_ended(tcp: socket.socket) -> bool:
    """Return whether a peer sends nothing more behind what has come."""
    try:
        return not tcp.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True

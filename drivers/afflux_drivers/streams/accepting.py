"""The end that accepts: the connections of higher ranks, and strangers at the same port.

A peer is a stranger until it has proved that it knows the group's secret (`handshake`). A stranger
has 3 s, and one of 128 places. If all are taken, a new one gets the place of the oldest stranger of
the address that has most of them, but the hosts of the group's ranks keep their places for as long
as other addresses have some.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from afflux_drivers.addresses import authority, named, peer_name, resolve
from afflux_drivers.errors import NotAuthenticated
from afflux_drivers.sockets import set_up_tcp
from afflux_drivers.streams.handshake import Claim, Member, Verdict, answer, examine

__all__ = ["Acceptor", "Listener"]

_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted: a flood must not lose those of ranks,
whose kernels would try again after a second only."""

_STRANGERS = 128
_HANDSHAKE_S = 3.0
_ACCEPTED_AT_ONCE = 16
"""Between two looks at those that have been accepted: a rank's handshake takes two or three looks,
and 128 places last for eight."""

_NO_ROOM_S = 0.05


class Listener:
    """A TCP port of this host, at which ranks that are higher than this one connect.

    Args:
        host: Own address, or a name of it.

    Attributes:
        endpoint: Address and port, for the other ranks.
        tcp: The socket, non-blocking.

    Raises:
        OSError: It is not an address of this host.
    """

    def __init__(self, host: str) -> None:
        family, where = resolve(host, 0, socket.SOCK_STREAM)[0]
        self.tcp = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.tcp.setblocking(False)
            self.tcp.bind(where)
            self.tcp.listen(_BACKLOG)
            self.endpoint = named(self.tcp.getsockname())
        except BaseException:
            self.tcp.close()
            raise

    def close(self) -> None:
        """Close the port; connections stay."""
        self.tcp.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Stranger:
    """A peer that has connected and proved nothing yet.

    Attributes:
        tcp: The socket.
        where: Its address and port, for messages.
        host: Its name among addresses, by `peer_name`: strangers are counted by it.
    """

    tcp: socket.socket
    where: str
    host: str


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
        turned_away: Number of peers that were turned away, and the last one with the reason; for
            messages, and empty if there were none.
    """

    def __init__(
        self, listener: socket.socket, member: Member, hosts: set[str], names: Sequence[int]
    ) -> None:
        self._listener, self._member, self._hosts, self._names = listener, member, hosts, names
        higher = range(member.rank + 1, member.ranks)
        self._places = [(peer, link) for peer in higher for link in range(member.links)]
        self.sockets: dict[tuple[int, int], socket.socket] = {}
        self.due = set(self._places)
        self.turned_away = ""
        # In the order in which they came.
        self._strangers: dict[asyncio.Task[bool], _Stranger] = {}
        self._all_came = asyncio.Event()
        self._refusals = 0

    async def run(self) -> None:
        """Accept connections until none is due."""
        if not self.due:
            return
        try:
            self._listen()
            await self._all_came.wait()
        finally:
            asyncio.get_running_loop().remove_reader(self._listener)
            strangers = list(self._strangers)
            for task in strangers:
                task.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                tcp, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # It stays in the queue, and would be tried again at once.
                    loop.remove_reader(self._listener)
                    loop.call_later(_NO_ROOM_S, self._listen)
                    return
                continue
            where = named(address)
            self._admit(_Stranger(tcp, authority(*where), peer_name(where[0])))

    def _admit(self, stranger: _Stranger) -> None:
        """Begin the handshake with whoever has connected."""
        if len(self._strangers) >= _STRANGERS:
            self._make_room()
        task = asyncio.get_running_loop().create_task(self._welcome(stranger))
        self._strangers[task] = stranger
        task.add_done_callback(lambda done: self._dismiss(done, stranger))

    def _make_room(self) -> None:
        has = Counter(each.host for each in self._strangers.values())
        # The first of equals, which is the oldest.
        task = max(
            self._strangers,
            key=lambda each: (
                (host := self._strangers[each].host) not in self._hosts,
                has[host],
            ),
        )
        del self._strangers[task]
        task.cancel()

    def _dismiss(self, task: asyncio.Task[bool], stranger: _Stranger) -> None:
        self._strangers.pop(task, None)
        # A task that is cancelled before it has begun closes nothing itself.
        if task.cancelled() or not task.result():
            stranger.tcp.close()

    async def _welcome(self, stranger: _Stranger) -> bool:
        """Return whether a connection belongs to the group."""
        tcp = stranger.tcp
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                set_up_tcp(tcp)
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
        except NotAuthenticated as error:
            return self._turn_away(stranger, str(error))
        except TimeoutError:
            return self._turn_away(stranger, f"its handshake took more than {_HANDSHAKE_S:g} s")
        except OSError as error:
            return self._turn_away(stranger, error.strerror or str(error))
        if verdict != Verdict.ACCEPTED:
            known = claim.connecting < len(self._names)
            number = self._names[claim.connecting] if known else claim.connecting
            name = f"rank {number} at {stranger.where}"
            return self._turn_away(stranger, verdict.reason, name)
        self.due.discard(place)
        if not self.due:
            # One whose verdict was lost comes again.
            self.due = {each for each in self._places if _has_ended(self.sockets[each])}
            if not self.due:
                self._all_came.set()
        return True

    def _turn_away(self, stranger: _Stranger, reason: str, name: str = "") -> bool:
        self._refusals += 1
        name = name or stranger.where
        self.turned_away = f"{self._refusals} others were turned away, last {name}: {reason}"
        return False

    def _judge(self, claim: Claim) -> Verdict:
        verdict = self._member.judge(claim)
        taken = self.sockets.get((claim.connecting, claim.link))
        # The peer tries again where the verdict was lost, over a connection that has ended.
        if verdict == Verdict.ACCEPTED and taken is not None and not _has_ended(taken):
            return Verdict.OCCUPIED
        return verdict


def _has_ended(tcp: socket.socket) -> bool:
    try:
        return not tcp.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True

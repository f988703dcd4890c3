"""The port at which streams come, and the peers there that have proved nothing yet.

A peer is a stranger until it has proved that it knows the secret (`handshake`). A stranger has 3 s,
and one of 128 places. If all are taken, a new one gets the place of the oldest stranger of the
address that has most of them, but preferred hosts keep their places for as long as other addresses
have some.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from afflux_drivers.addresses import authority, named, peer_name, resolve
from afflux_drivers.errors import NotAuthenticated
from afflux_drivers.sockets import set_up_tcp

__all__ = ["Listener", "Stranger", "Strangers"]

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
    """A TCP port of this host, at which streams come.

    Args:
        host: Own address, or a name of it.
        port: 0 takes a free one.

    Attributes:
        endpoint: Address and port, for those who connect.
        tcp: The socket, non-blocking.

    Raises:
        OSError: It is not an address of this host, or the port is taken.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        family, where = resolve(host, port, socket.SOCK_STREAM)[0]
        self.tcp = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.tcp.setblocking(False)
            if port:
                # Closed connections of an earlier server must not hold the port.
                self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
class Stranger:
    """A peer that has connected and proved nothing yet.

    Attributes:
        tcp: The socket.
        where: Its address and port, for messages.
        host: Its name among addresses, by `peer_name`: strangers are counted by it.
    """

    tcp: socket.socket
    where: str
    host: str


class Strangers:
    """Accepts connections in the running event loop, and makes them known or turns them away.

    Args:
        listener: The socket at which they come.
        welcome: Carries out the handshake, and returns why the peer is turned away; empty if its
            connection is kept. Others are closed.
        preferred: Names of hosts that keep their places, as `peer_name` has them.

    Attributes:
        turned_away: Number of peers that were turned away, and the last one with the reason; for
            messages, and empty if there were none.
    """

    def __init__(
        self,
        listener: socket.socket,
        welcome: Callable[[Stranger], Awaitable[str]],
        preferred: frozenset[str] = frozenset(),
    ) -> None:
        self._listener, self._welcome, self._preferred = listener, welcome, preferred
        self.turned_away = ""
        # In the order in which they came.
        self._strangers: dict[asyncio.Task[bool], Stranger] = {}
        self._refusals = 0

    def listen(self) -> None:
        """Begin to accept."""
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def end(self) -> None:
        """Accept no more, and turn those away that are still strangers."""
        asyncio.get_running_loop().remove_reader(self._listener)
        strangers = list(self._strangers)
        for task in strangers:
            task.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)

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
                    loop.call_later(_NO_ROOM_S, self.listen)
                    return
                continue
            where = named(address)
            self._admit(Stranger(tcp, authority(*where), peer_name(where[0])))

    def _admit(self, stranger: Stranger) -> None:
        """Begin the handshake with whoever has connected."""
        if len(self._strangers) >= _STRANGERS:
            self._make_room()
        task = asyncio.get_running_loop().create_task(self._introduced(stranger))
        self._strangers[task] = stranger
        task.add_done_callback(lambda done: self._dismiss(done, stranger))

    def _make_room(self) -> None:
        has = Counter(each.host for each in self._strangers.values())
        # The first of equals, which is the oldest.
        task = max(
            self._strangers,
            key=lambda each: (
                (host := self._strangers[each].host) not in self._preferred,
                has[host],
            ),
        )
        del self._strangers[task]
        task.cancel()

    def _dismiss(self, task: asyncio.Task[bool], stranger: Stranger) -> None:
        self._strangers.pop(task, None)
        # A task that is cancelled before it has begun closes nothing itself.
        if task.cancelled() or not task.result():
            stranger.tcp.close()

    async def _introduced(self, stranger: Stranger) -> bool:
        """Return whether a connection is kept."""
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                set_up_tcp(stranger.tcp)
                reason = await self._welcome(stranger)
        except NotAuthenticated as error:
            reason = f"{stranger.where}: {error}"
        except TimeoutError:
            reason = f"{stranger.where}: its handshake took more than {_HANDSHAKE_S:g} s"
        except OSError as error:
            reason = f"{stranger.where}: {error.strerror or error}"
        if reason:
            self._refusals += 1
            self.turned_away = f"{self._refusals} others were turned away, last {reason}"
        return not reason

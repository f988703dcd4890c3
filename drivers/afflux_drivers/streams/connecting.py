"""The connections of a group whose ranks are on several hosts: some between each two ranks.

Of two ranks the higher one connects and the lower one accepts (`accepting`). A connection belongs
to the group once both ends have proved that they know its secret (`handshake`).
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future

from afflux_drivers.addresses import authority, peer_name, resolve
from afflux_drivers.errors import NotAuthenticated, RankRefused, RanksMissing, timed_out
from afflux_drivers.sockets import set_up_tcp
from afflux_drivers.streams.accepting import Acceptor, Listener
from afflux_drivers.streams.handshake import Member, Verdict, introduce

__all__ = ["connect_mesh"]

_RETRY_S = 0.02
_RETRY_MAX_S = 0.5
_LOOK_S = 0.01


def connect_mesh(
    listener: Listener,
    rank: int,
    endpoints: Sequence[tuple[str, int]],
    secret: bytes,
    group: str,
    links: int,
    timeout_s: float,
    names: Sequence[int] = (),
) -> list[list[socket.socket]]:
    """Connect this rank with each other one of a group. Collective.

    It may be called in a thread that runs an event loop, which it blocks. All that it opens is
    closed if it fails.

    Args:
        listener: Of this rank; it stays open.
        rank: Of this process.
        endpoints: Of the listeners of all ranks.
        secret: Known to all ranks and nobody else.
        group: Name of this incarnation of the group, the same at all ranks.
        links: Connections between each two ranks.
        timeout_s: For all of it.
        names: The ranks' numbers in messages and errors, in order, if they are other ones.

    Returns:
        By rank and link, connected sockets: non-blocking, without Nagle's algorithm, with
        keepalive, not inherited by programs that are started. None with this rank itself. They have
        no TCP_USER_TIMEOUT: Linux ends by it also a connection whose peer has not read for so long,
        and a rank may be late.

    Raises:
        RanksMissing: Ranks have not come, or could not be reached, in time.
        RankRefused: A rank is in another group, or has another number of ranks or links.
        NotAuthenticated: The program at a rank's endpoint does not know the secret.
        OSError: An endpoint's host has no address.
    """
    member = Member(secret, group, rank, len(endpoints), links)
    mesh = _Mesh(listener.tcp, member, endpoints, names or range(len(endpoints)))
    return _make_in_thread(mesh, timeout_s)


class _Mesh:
    """The connections of one rank while they are made."""

    def __init__(
        self,
        listener: socket.socket,
        member: Member,
        endpoints: Sequence[tuple[str, int]],
        names: Sequence[int],
    ) -> None:
        self._member, self._endpoints, self._names = member, endpoints, names
        self._places = [resolve(*each, socket.SOCK_STREAM)[0] for each in endpoints]
        hosts = {peer_name(place.host) for place in self._places}
        self._acceptor = Acceptor(listener, member, hosts, names)
        # With lower ranks, and why the last attempt at one that is not there has failed.
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        self._failures: dict[tuple[int, int], str] = {}

    async def make(self, timeout_s: float) -> list[list[socket.socket]]:
        """Make all connections, and return them as `connect_mesh` does. Leaves some if it fails."""
        tasks = [
            asyncio.create_task(self._connect(peer, link))
            for peer in range(self._member.rank)
            for link in range(self._member.links)
        ]
        tasks.append(asyncio.create_task(self._acceptor.run()))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*tasks)
        except TimeoutError:
            raise self._missing(timeout_s) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        sockets = self._sockets | self._acceptor.sockets
        links = range(self._member.links)
        return [
            [sockets[peer, link] for link in links if peer != self._member.rank]
            for peer in range(self._member.ranks)
        ]

    def close(self) -> None:
        """Close the connections."""
        for tcp in (*self._sockets.values(), *self._acceptor.sockets.values()):
            tcp.close()

    def _name(self, peer: int) -> str:
        return f"rank {self._names[peer]} at {authority(*self._endpoints[peer])}"

    async def _connect(self, peer: int, link: int) -> None:
        """Make a connection with a lower rank, however often it takes."""
        wait_s = _RETRY_S
        while True:
            try:
                self._sockets[peer, link] = await self._attempt(peer, link)
                return
            except NotAuthenticated as error:
                raise NotAuthenticated(
                    f"{self._name(peer)} does not prove that it knows the group's secret: {error}, "
                    "or is another program"
                ) from None
            except OSError as error:
                self._failures[peer, link] = _reason(error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _RETRY_MAX_S)

    async def _attempt(self, peer: int, link: int) -> socket.socket:
        family, where = self._places[peer]
        tcp = socket.socket(family, socket.SOCK_STREAM)
        try:
            set_up_tcp(tcp)
            self._failures.setdefault((peer, link), "it does not answer")
            await asyncio.get_running_loop().sock_connect(tcp, where)
            if tcp.getsockname() == tcp.getpeername():
                # A port that nobody listens at may become the own one of a connection to it.
                raise ConnectionRefusedError("nobody listens there")
            self._failures[peer, link] = "it has accepted the connection, and does not answer"
            claim = self._member.claim(peer, link)
            verdict = await introduce(tcp, self._member.secret, claim)
            if verdict == Verdict.OCCUPIED:
                raise ConnectionRefusedError(verdict.reason)
            if verdict != Verdict.ACCEPTED:
                own = self._names[self._member.rank]
                raise RankRefused(
                    f"{self._name(peer)} refuses the connection of rank {own}: {verdict.reason}"
                )
        except BaseException:
            tcp.close()
            raise
        return tcp

    def _missing(self, timeout_s: float) -> RanksMissing:
        """Return the error that tells which connections there are not, and why."""
        rank, links = self._names[self._member.rank], self._member.links
        # Those that have come and ended are not meant: their ranks have given up, too.
        due = Counter(peer for peer, _ in self._acceptor.due)
        lost = {peer: f"{links - count} of {links} are there" for peer, count in due.items()}
        lost |= {
            peer: reason
            for (peer, link), reason in self._failures.items()
            if (peer, link) not in self._sockets
        }
        peers = sorted(lost)
        text = (
            f"{timed_out(timeout_s)}: rank {rank} waited for connections "
            f"with {', '.join(f'{self._name(peer)} ({lost[peer]})' for peer in peers)}"
        )
        turned_away = self._acceptor.turned_away
        ranks = tuple(self._names[peer] for peer in peers)
        return RanksMissing(f"{text}; {turned_away}" if turned_away else text, ranks)


def _reason(error: OSError) -> str:
    # asyncio has words of its own for what the kernel says.
    return os.strerror(error.errno) if error.errno else str(error)


def _make_in_thread(mesh: _Mesh, timeout_s: float) -> list[list[socket.socket]]:
    """Make a mesh in a loop of its own; an exception in this thread, as by Ctrl-C, ends that."""
    outcome: Future[list[list[socket.socket]]] = Future()
    loops: list[asyncio.AbstractEventLoop] = []
    given_up = threading.Event()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                loops.append(runner.get_loop())
                if given_up.is_set():
                    return
                sockets = runner.run(mesh.make(timeout_s))
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(sockets)

    def cancel() -> None:
        # The loop runs, so there is the task of `make`.
        for task in asyncio.all_tasks():
            task.cancel()

    thread = threading.Thread(target=run, name="afflux-streams")
    try:
        thread.start()
        sockets = outcome.result()
        thread.join()
    except BaseException:
        given_up.set()
        # It may be about to begin: either it sees that it is given up, or it has a loop by then.
        while thread.is_alive():
            if loops:
                # That is closed if the exception is its own.
                with contextlib.suppress(RuntimeError):
                    loops[0].call_soon_threadsafe(cancel)
                thread.join()
            thread.join(_LOOK_S)
        mesh.close()
        raise
    return sockets

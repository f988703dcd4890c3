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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from afflux_drivers.addresses import Place, authority, peer_name, resolve
from afflux_drivers.errors import (
    AggregatorRefused,
    AggregatorUnreachable,
    NotAuthenticated,
    RankRefused,
    RanksMissing,
    timed_out,
)
from afflux_drivers.sockets import set_up_tcp
from afflux_drivers.streams.accepting import Acceptor
from afflux_drivers.streams.handshake import Claim, Member, Verdict, introduce
from afflux_drivers.streams.strangers import Listener

__all__ = ["connect_aggregator", "connect_mesh"]

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
    names = names or range(len(endpoints))
    member = Member(secret, group, rank, len(endpoints), links, names[rank])
    return _make_in_thread(_Mesh(listener.tcp, member, endpoints, names), timeout_s)


def connect_aggregator(
    endpoint: tuple[str, int],
    member: Member,
    own: Sequence[str],
    timeout_s: float,
) -> list[socket.socket]:
    """Connect this rank with the aggregator of a mesh.

    Args:
        endpoint: Of the aggregator.
        member: This rank in the mesh; its secret is the aggregator's for it.
        own: Address of this host that each link takes.
        timeout_s: For all of it.

    Returns:
        A socket for each link, as those of `connect_mesh`.

    Raises:
        AggregatorUnreachable: The aggregator has not answered in time.
        AggregatorRefused: It answered, and refused.
        NotAuthenticated: The program at the endpoint does not know the secret.
        OSError: The endpoint's host has no address.
    """
    (sockets,) = _make_in_thread(_ToAggregator(endpoint, member, own), timeout_s)
    return sockets


class _Stairs:
    """Waiting times between attempts."""

    def __init__(self) -> None:
        self._wait_s = _RETRY_S

    async def wait(self) -> None:
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _RETRY_MAX_S)


async def _attempt(
    place: Place, secret: bytes, claim: Claim, note: Callable[[str], None], own: str = ""
) -> tuple[socket.socket, Verdict]:
    """Connect, and carry out the handshake; return the socket and the verdict, not OCCUPIED.

    Args:
        place: Where the other end listens.
        secret: The group's.
        claim: The connection's place in the group.
        note: Told how far it has come, for messages.
        own: Address of this host that it takes; empty for any.
    """
    tcp = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        set_up_tcp(tcp)
        if own:
            tcp.bind(resolve(own, 0, socket.SOCK_STREAM)[0].where)
        note("it does not answer")
        await asyncio.get_running_loop().sock_connect(tcp, place.where)
        if tcp.getsockname() == tcp.getpeername():
            # A port that nobody listens at may become the own one of a connection to it.
            raise ConnectionRefusedError("nobody listens there")
        note("it has accepted the connection, and does not answer")
        verdict = await introduce(tcp, secret, claim)
        if verdict == Verdict.OCCUPIED:
            raise ConnectionRefusedError(verdict.reason)
    except BaseException:
        tcp.close()
        raise
    return tcp, verdict


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
        stairs = _Stairs()
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
            await stairs.wait()

    async def _attempt(self, peer: int, link: int) -> socket.socket:
        member = self._member

        def note(how_far: str) -> None:
            # How an earlier attempt has ended says more than that this one has begun.
            if how_far != "it does not answer" or (peer, link) not in self._failures:
                self._failures[peer, link] = how_far

        claim = member.claim(peer, link)
        tcp, verdict = await _attempt(self._places[peer], member.secret, claim, note)
        if verdict != Verdict.ACCEPTED:
            tcp.close()
            raise RankRefused(
                f"{self._name(peer)} refuses the connection of rank {member.number}: "
                f"{verdict.reason}"
            )
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


class _ToAggregator:
    """The connections of one rank with an aggregator while they are made."""

    def __init__(self, endpoint: tuple[str, int], member: Member, own: Sequence[str]) -> None:
        self._member, self._own = member, own
        self._name = f"the aggregator at {authority(*endpoint)}"
        self._place = resolve(*endpoint, socket.SOCK_STREAM)[0]
        self._sockets: dict[int, socket.socket] = {}
        self._why = ""

    async def make(self, timeout_s: float) -> list[list[socket.socket]]:
        """Make all connections, and return them. Leaves some if it fails."""
        links = range(self._member.links)
        tasks = [asyncio.create_task(self._connect(link)) for link in links]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*tasks)
        except TimeoutError:
            raise AggregatorUnreachable(
                f"{timed_out(timeout_s)}: rank {self._member.number} waited for {self._name}: "
                f"{self._why}"
            ) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [[self._sockets[link] for link in links]]

    def close(self) -> None:
        """Close the connections."""
        for tcp in self._sockets.values():
            tcp.close()

    async def _connect(self, link: int) -> None:
        member, stairs = self._member, _Stairs()
        while True:
            try:
                tcp, verdict = await _attempt(
                    self._place, member.secret, member.claim(member.ranks, link), self._note,
                    self._own[link],
                )  # fmt: skip
            except NotAuthenticated as error:
                raise NotAuthenticated(
                    f"{self._name} does not prove that it knows the secret: {error}, or is "
                    "another program"
                ) from None
            except OSError as error:
                self._why = _reason(error)
                await stairs.wait()
                continue
            if verdict != Verdict.ACCEPTED:
                tcp.close()
                raise AggregatorRefused(
                    f"{self._name} refuses the connection of rank {member.number}: {verdict.reason}"
                )
            self._sockets[link] = tcp
            return

    def _note(self, how_far: str) -> None:
        self._why = how_far if how_far != "it does not answer" else self._why or how_far


class _Connecting(Protocol):
    """Connections that `_make_in_thread` makes."""

    async def make(self, timeout_s: float) -> list[list[socket.socket]]: ...

    def close(self) -> None: ...


def _reason(error: OSError) -> str:
    # asyncio has words of its own for what the kernel says.
    return os.strerror(error.errno) if error.errno else str(error)


def _make_in_thread(mesh: _Connecting, timeout_s: float) -> list[list[socket.socket]]:
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

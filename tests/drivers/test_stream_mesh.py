"""Connections between the ranks of a group: all there are, or an error that names what lacks."""

import asyncio
import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from threading import Event
from types import SimpleNamespace

import pytest

from afflux_drivers.errors import NotAuthenticated, RankRefused, RanksMissing
from afflux_drivers.streams import connecting
from afflux_drivers.streams.connecting import connect_mesh
from afflux_drivers.streams.strangers import Listener
from tests.support.drivers.meshes import GROUP, SECRET, Meshes, is_connected, open_ports

# A socket that is left to the garbage collector is a leak.
pytestmark = [
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_files_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("ranks", "links"), [(2, 1), (2, 8), (3, 2), (5, 1), (8, 3)])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_each_two_ranks_are_connected(ranks, links, host):
    with Meshes(ranks, host, links=links) as meshes:
        meshes.start(*range(ranks))
        assert is_connected(meshes.wait(), links)


def test_a_rank_that_is_alone_has_no_connections():
    with Listener("127.0.0.1") as listener:
        assert connect_mesh(listener, 0, [listener.endpoint], SECRET, GROUP, 2, 5.0) == [[]]


def test_the_sockets_are_ready_for_a_stream():
    with Meshes(2) as meshes:
        meshes.start(0, 1)
        for mesh in meshes.wait():
            (tcp,) = chain.from_iterable(mesh)
            assert not tcp.getblocking()
            assert not os.get_inheritable(tcp.fileno())
            options = [
                tcp.getsockopt(level, option)
                for level, option in (
                    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    (socket.IPPROTO_TCP, socket.TCP_NODELAY),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                )
            ]
            assert options == [1, 1, 10, 5, 3, 0]


def test_what_is_sent_at_once_is_not_taken_for_the_handshake():
    """The rank that accepts sends before the one that connects has read the verdict."""
    with Meshes(2, links=4) as meshes:
        meshes.start(0)
        meshes.start(1)
        (accepting,) = meshes.wait(0)
        for tcp in accepting[1]:
            tcp.sendall(b"x" * 1000)
        (connecting_mesh,) = meshes.wait(1)
        for tcp in connecting_mesh[0]:
            tcp.settimeout(5)
            assert tcp.recv(2000) == b"x" * 1000


def test_it_may_be_called_where_an_event_loop_runs():
    async def call() -> None:
        with Meshes(2) as meshes:
            meshes.start(0)
            listener, endpoints = meshes.listeners[1], meshes.endpoints
            (tcp,), _ = connect_mesh(listener, 1, endpoints, SECRET, GROUP, 1, 10.0)
            tcp.close()

    asyncio.run(call())


def test_ranks_may_come_late():
    """One whose port is not open yet, and one that is open and has not begun."""
    with Meshes(3) as meshes:
        late = meshes.listeners[0]
        late.tcp.close()
        late.tcp = socket.socket()
        late.tcp.setblocking(False)
        late.tcp.bind(("127.0.0.1", 0))
        late.endpoint = late.tcp.getsockname()
        meshes.endpoints[0] = late.endpoint
        meshes.start(2)
        time.sleep(0.1)
        meshes.start(1)
        time.sleep(0.1)
        late.tcp.listen(8)
        time.sleep(0.1)
        meshes.start(0)
        assert is_connected([meshes.wait(rank)[0] for rank in range(3)], 1)


def within(limit_s: float, meshes: Meshes, *ranks: int) -> list[BaseException]:
    """Return the errors of ranks that fail in time."""
    start = time.monotonic()
    outcomes = meshes.wait(*ranks)
    assert time.monotonic() - start < limit_s
    return outcomes


def test_a_rank_that_never_comes_is_named_by_all():
    """Its port is open, as that of a rank that hangs, and nobody answers there."""
    with Meshes(4, links=2, timeout_s=1.0) as meshes:
        meshes.start(0, 2, 3)
        errors = within(2.0, meshes, 0, 2, 3)
        address = f"127.0.0.1:{meshes.endpoints[1][1]}"
        for rank, error in zip((0, 2, 3), errors, strict=True):
            assert type(error) is RanksMissing
            assert error.ranks == (1,)
            text = str(error)
            assert text.startswith(
                f"Timed out waiting 1000ms (timeout 1 s): rank {rank} waited for "
                f"connections with rank 1 at {address} ("
            )
        assert "(0 of 2 are there)" in str(errors[0])
        assert "(it has accepted the connection, and does not answer)" in str(errors[1])


def test_ranks_have_the_names_of_a_larger_group():
    with Meshes(2, timeout_s=0.3, names=[4, 7]) as meshes:
        meshes.start(0)
        (error,) = within(2.0, meshes, 0)
        assert error.ranks == (7,)
        assert ": rank 4 waited for connections with rank 7 at 127.0.0.1:" in str(error)


def test_a_rank_whose_port_is_closed_is_named():
    with Meshes(2, timeout_s=0.3) as meshes:
        meshes.listeners[0].close()
        meshes.start(1)
        (error,) = within(2.0, meshes, 1)
        assert type(error) is RanksMissing
        assert error.ranks == (0,)
        assert str(error).endswith(
            f"rank 0 at 127.0.0.1:{meshes.endpoints[0][1]} (Connection refused)"
        )


def test_a_rank_at_another_kind_of_address_is_named():
    with Meshes(2, timeout_s=1.0) as meshes, ExitStack() as stack:
        (other,) = open_ports(stack, 1, "::1")
        meshes.start(0, 1, endpoints=[*meshes.endpoints, other.endpoint])
        for error in within(2.0, meshes, 0, 1):
            assert type(error) is RanksMissing
            assert error.ranks == (2,)
            assert f"rank 2 at [::1]:{other.endpoint[1]} (0 of 1 are there)" in str(error)


def test_a_rank_with_another_secret_gets_nowhere():
    with Meshes(2, timeout_s=1.5) as meshes:
        start = time.monotonic()
        meshes.start(0)
        meshes.start(1, secret=b"another horse's battery", timeout_s=20.0)
        (refused,) = meshes.wait(1)
        assert time.monotonic() - start < 5
        assert type(refused) is NotAuthenticated
        assert str(refused) == (
            f"rank 0 at 127.0.0.1:{meshes.endpoints[0][1]} does not prove that it knows the "
            "group's secret: it has another secret, or is another program"
        )
        (missing,) = meshes.wait(0)
        assert type(missing) is RanksMissing
        assert missing.ranks == (1,)
        assert "; 1 others were turned away, last 127.0.0.1:" in str(missing)
        assert str(missing).endswith("before its claim, as a rank with another secret does")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"group": "00f1e2d3c4b5a698"}, "it is in another group, or in another incarnation"),
        ({"links": 2}, "it is another rank, or has another number of ranks or connections"),
        ({"links": 1}, "it is another rank, or has another number of ranks or connections"),
    ],
)
def test_a_rank_of_another_incarnation_is_refused_and_does_not_try_again(changed, reason):
    with Meshes(2, links=3, timeout_s=1.5) as meshes:
        start = time.monotonic()
        meshes.start(0)
        meshes.start(1, timeout_s=20.0, **changed)
        (refused,) = meshes.wait(1)
        assert time.monotonic() - start < 5
        assert type(refused) is RankRefused
        text = f"rank 0 at 127.0.0.1:{meshes.endpoints[0][1]} refuses the connection of rank 1: "
        assert str(refused).startswith(text + reason)
        (missing,) = meshes.wait(0)
        assert type(missing) is RanksMissing
        # Each link at most once: the first answer ends all.
        count = int(str(missing).partition("; ")[2].partition(" others")[0])
        assert 1 <= count <= changed.get("links", 3)


def test_ranks_that_count_ranks_differently_refuse():
    with Meshes(3, timeout_s=1.0) as meshes:
        meshes.start(0)
        meshes.start(1, endpoints=meshes.endpoints[:2], timeout_s=20.0)
        (refused,) = meshes.wait(1)
        assert type(refused) is RankRefused


def test_an_endpoint_without_address_is_an_error():
    with Listener("127.0.0.1") as listener, pytest.raises(OSError, match="link-local"):
        connect_mesh(listener, 0, [listener.endpoint, ("fe80::1", 4)], SECRET, GROUP, 1, 5.0)


def test_a_listener_needs_an_own_address():
    with pytest.raises(OSError, match="Cannot assign requested address"):
        Listener("192.0.2.1")


class _Alarm(Exception):
    pass


def test_an_exception_in_the_caller_ends_it():
    """As Ctrl-C is one."""

    def ring(*_: object) -> None:
        raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with Meshes(3) as meshes:
            meshes.start(2, timeout_s=0.5)
            start = time.monotonic()
            with pytest.raises(_Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                connect_mesh(meshes.listeners[1], 1, meshes.endpoints, SECRET, GROUP, 1, 20.0)
            assert time.monotonic() - start < 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Late(threading.Thread):
    """A thread that begins after an exception has ended its start."""

    def start(self) -> None:
        self.timer = threading.Timer(0.1, super().start)
        self.timer.start()
        raise _Alarm


class _Interrupted(threading.Thread):
    """A thread whose start is ended by an exception before its first line."""

    def start(self) -> None:
        super().start()
        raise _Alarm

    def run(self) -> None:
        time.sleep(0.1)
        super().run()


@pytest.mark.parametrize("kind", [_Late, _Interrupted])
def test_an_exception_before_it_has_begun_leaves_nothing(kind, monkeypatch):
    made = []

    def make(**arguments: object) -> threading.Thread:
        made.append(kind(**arguments))
        return made[0]

    with Meshes(2) as meshes:
        monkeypatch.setattr(connecting, "threading", SimpleNamespace(Thread=make, Event=Event))
        with pytest.raises(_Alarm):
            connect_mesh(meshes.listeners[1], 1, meshes.endpoints, SECRET, GROUP, 1, 20.0)
        if kind is _Late:
            made[0].timer.join()
        made[0].join(2)
        assert not made[0].is_alive()
        with pytest.raises(BlockingIOError):
            meshes.listeners[0].tcp.accept()


class _Scarce(socket.socket):
    """A listening socket for which this process has no open files left, at first."""

    refusals = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_a_process_that_has_no_open_files_left_accepts_later():
    with Meshes(2) as meshes:
        listener = meshes.listeners[0]
        scarce = _Scarce(fileno=listener.tcp.detach())
        scarce.setblocking(False)
        listener.tcp = scarce
        meshes.start(0, 1)
        assert is_connected(meshes.wait(), 1)
        assert scarce.refusals == 0

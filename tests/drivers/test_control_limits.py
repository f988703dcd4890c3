"""Floods of the control channel: a client that reaches the port takes nothing that ranks need."""

import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest

from afflux_drivers import addresses
from afflux_drivers.addresses import peer_name
from afflux_drivers.aggregator import control_server, peers
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.job_commands import NoRoom
from afflux_drivers.aggregator.jobs import JobTable
from afflux_drivers.aggregator.peers import Peers, may_take
from afflux_drivers.control.client import create_job, describe
from tests.support.drivers.planted_control import NOTICED, plant
from tests.support.drivers.raw_control import RawControl, coded
from tests.support.drivers.served import Served

SECRET = b"correct horse battery staple"
STRANGER = "127.0.0.2"
"""Another host's address, as far as the server can see."""

CREATE = {"request": "create", "protocol": 2, "workers": 1, "lanes": 1, "slots": 10_000}


@contextmanager
def serving(**access: Any) -> Iterator[Served]:
    running = Served(SoftEngine(jobs=8, slots=512), access=Access(**access))
    try:
        yield running
    finally:
        running.stop()


def assert_a_rank_is_served(served: Served, secret: bytes | None = None) -> None:
    """Create a job at another address than strangers', and end it, long before a timeout."""
    start = time.monotonic()
    with closing(create_job(served.address, 2, 16, 32, 10.0, secret=secret)) as lease:
        assert lease.ticket.slots >= 16
    assert time.monotonic() - start < 3


def test_one_peer_cannot_take_all_jobs_and_slots():
    """It takes what it gets, in jobs as large as they come, one to a connection."""
    with serving() as served, ExitStack() as held:
        slots = []
        while True:
            raw = held.enter_context(RawControl(served.address, STRANGER))
            answer = raw.ask(**CREATE)
            if not answer["ok"]:
                break
            slots.append(answer["slots"])
        assert "peer 127.0.0.2 has" in answer["error"]
        assert "left for others (--peer-share 0.875)" in answer["error"]
        # Each gets half of what is left to its peer, but 16 if there are so many.
        assert slots == [224, 112, 56, 28, 16, 12]
        assert_a_rank_is_served(served)
        # It may have again the room that it gives back.
        held.close()
        with RawControl(served.address, STRANGER) as raw:
            for _ in range(100):
                if raw.ask(**CREATE)["ok"]:
                    break
                time.sleep(0.02)
            else:
                pytest.fail("the jobs of closed connections are still there")


def test_one_connection_has_16_jobs_at_most():
    served = Served(SoftEngine(jobs=64, slots=512))
    try:
        with RawControl(served.address) as raw:
            wish = {**CREATE, "slots": 1}
            tickets = [raw.ask(**wish) for _ in range(16)]
            assert all(ticket["ok"] for ticket in tickets)
            assert "this connection of peer 127.0.0.1 has 16 jobs" in raw.ask(**wish)["error"]
            closed = {name: tickets[3][name] for name in ("job", "key")}
            assert raw.ask(request="close", **closed)["ok"]
            assert raw.ask(**wish)["ok"]
    finally:
        served.stop()


@pytest.mark.parametrize("share", [0.5, 0.875, 1.0])
@pytest.mark.parametrize("pool", [1, 2, 8, 64, 512, 2048])
def test_the_share_of_a_peer_is_what_it_gets_one_by_one(pool, share):
    """Each is taken while less is had than share / (1 − share) times what is free."""
    exact = Fraction(share)
    for others in (0, pool // 3, pool - 1):
        taken = 0
        while taken < pool - others and (1 - exact) * taken < exact * (pool - others - taken):
            taken += 1
        assert may_take(0, pool - others, share) == taken
        assert may_take(taken, pool - others - taken, share) == 0


def test_a_second_peer_gets_its_share_of_the_rest():
    table = JobTable(SoftEngine(jobs=64, slots=8192), room_bytes=1 << 40)
    granted: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for peer, jobs in granted.items():
        with pytest.raises(NoRoom, match=f"peer {peer} has .*left for others|all 64 jobs"):
            while True:
                jobs.append(table.create(1, 1, 32, peer=peer).slots)
    assert [len(jobs) for jobs in granted.values()] == [56, 7, 1]
    assert set(granted["a"]) == {32}


def test_silent_connections_do_not_keep_ranks_out():
    """More than the server takes at all, again and again, by one that knows no secret."""
    with serving(secret=SECRET) as served, ExitStack() as held:
        lease = held.enter_context(closing(create_job(served.address, 1, 1, 1, 5.0, secret=SECRET)))
        for _ in range(600):
            held.enter_context(socket.create_connection(served.address, 5, (STRANGER, 0)))
        assert_a_rank_is_served(served, SECRET)
        # It has cost no connection of a client that is known.
        lease.close()
        assert describe(served.address, 5.0, SECRET)["ok"]
        assert len(served.server._control._strangers) <= 128


def test_a_slow_client_keeps_its_place_among_many_strangers():
    """A new connection takes the place of one of the peer that has most."""
    with serving(secret=SECRET) as served, ExitStack() as held:
        slow = held.enter_context(RawControl(served.address))
        flood = [
            held.enter_context(socket.create_connection(served.address, 5, (STRANGER, 0)))
            for _ in range(300)
        ]
        # The kernel takes them before the server does: wait until it has dropped the older half.
        while flood[150].recv(4096):
            pass
        assert slow.prove(SECRET) == {"ok": True}


def test_ranks_come_through_a_flood_of_connections():
    """A stranger connects and says hello, some thousand times in a second, from several addresses.

    There are 128 places, and a new one takes the oldest's: so no stranger keeps one for long.
    """
    with serving(secret=SECRET) as served:
        over = threading.Event()
        made = 0

        def flood() -> None:
            nonlocal made
            kept: deque[socket.socket] = deque()
            while not over.is_set():
                # The server's thread needs Python's lock, too.
                time.sleep(2e-4)
                with suppress(OSError):
                    source = (f"127.0.0.{10 + made % 7}", 0)
                    kept.append(socket.create_connection(served.address, 5, source))
                    kept[-1].sendall(b'{"request": "hello", "nonce": "' + 32 * b"0" + b'"}\n')
                    made += 1
                if len(kept) > 200:
                    kept.popleft().close()
            for each in kept:
                each.close()

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            while made < 200:
                time.sleep(0.01)
            for _ in range(5):
                assert_a_rank_is_served(served, SECRET)
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_line_that_never_ends_gets_no_time(secret):
    """A byte now and then keeps no connection."""
    with serving(secret=secret, prove_s=0.3) as served:
        client = socket.create_connection(served.address, 5, (STRANGER, 0))
        client.settimeout(0.05)
        start = time.monotonic()
        with client:
            while time.monotonic() < start + 3:
                try:
                    client.sendall(b" ")
                    if client.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            assert time.monotonic() - start < 3
        assert_a_rank_is_served(served, secret)


def test_a_known_client_that_never_ends_its_line_is_dropped(monkeypatch):
    monkeypatch.setattr("afflux_drivers.aggregator.control_server._IDLE_S", 0.3)
    with serving(secret=SECRET) as served, RawControl(served.address, STRANGER) as raw:
        raw.prove(SECRET)
        raw.socket.settimeout(0.05)
        start = time.monotonic()
        while time.monotonic() < start + 3:
            try:
                raw.socket.sendall(b"0")
                if raw.socket.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("secret", [None, SECRET])
@pytest.mark.parametrize("length", [4097, 8000, 100_000])
def test_lines_that_are_too_long_are_not_read(secret, length):
    with serving(secret=secret) as served:
        for line in (
            b"x" * length,
            json.dumps({"request": "describe", "x": "x" * length}).encode(),
        ):
            with RawControl(served.address, STRANGER) as raw:
                try:
                    raw.send(line)
                    assert raw.line() == b""
                except OSError:
                    pass
        assert_a_rank_is_served(served, secret)


def test_a_flood_of_questions_is_answered_later_and_others_at_once():
    """One peer asks as fast as it can by many connections."""
    rate = 100.0
    with serving(secret=SECRET, requests_per_s=rate) as served, ExitStack() as held:
        greedy = [held.enter_context(RawControl(served.address, STRANGER)) for _ in range(4)]
        for raw in greedy:
            raw.prove(SECRET)
        start = time.monotonic()
        for raw in greedy:
            raw.socket.sendall(
                b"".join(
                    coded(raw.client_key, number, b'{"request": "describe"}') + b"\n"
                    for number in range(1, 81)
                )
            )
        assert_a_rank_is_served(served, SECRET)
        for raw in greedy:
            for _ in range(80):
                assert b'"engine": "soft"' in raw.line()
        # The burst is two seconds' worth.
        assert time.monotonic() - start > (4 * 80 - 2 * rate) / rate - 0.1


def test_the_connections_of_one_peer_are_bounded(monkeypatch):
    monkeypatch.setattr("afflux_drivers.aggregator.control_server._CONNECTIONS", 16)
    with serving(secret=SECRET) as served, ExitStack() as held:
        refused = []
        for _ in range(20):
            raw = held.enter_context(RawControl(served.address, STRANGER))
            raw.prove(SECRET)
            # The refusal comes after the answer to the proof, and then the end.
            raw.socket.settimeout(0.05)
            try:
                refused.append(raw.line())
            except TimeoutError:
                continue
        assert len(refused) == 20 - 14
        assert all(b"peer 127.0.0.2 has 14 of 16 connections" in line for line in refused)
        assert all(b"(--peer-share 0.875)" in line for line in refused)
        assert_a_rank_is_served(served, SECRET)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::/64"),
        ("fd00:1:2:3::1", "fd00:1:2:3::/64"),
    ],
)
def test_what_counts_as_one_peer(address, name):
    assert peer_name(address) == name


def test_peers_are_forgotten_once_they_are_as_good_as_new():
    peers = Peers(requests_per_s=1e9)
    held = peers.get("10.0.0.1")
    held.connections = 1
    for number in range(5000):
        peers.take(peers.get(f"10.1.{number >> 8}.{number & 255}"))
    assert peers.get("10.0.0.1") is held
    assert len(peers._peers) <= 1024


BUGS: dict[str, tuple[ModuleType, str, str, Callable[[], None]]] = {
    "a peer may have everything": (
        peers,
        "share * free - (1 - share) * has",
        "free",
        test_one_peer_cannot_take_all_jobs_and_slots,
    ),
    "each address of a network is a peer": (
        addresses,
        "_IPV6_BITS = 64",
        "_IPV6_BITS = 128",
        lambda: test_what_counts_as_one_peer("fd00:1:2:3::1", "fd00:1:2:3::/64"),
    ),
    "no rate": (
        peers,
        "        peer.tokens -= 1.0\n",
        "",
        test_a_flood_of_questions_is_answered_later_and_others_at_once,
    ),
    "the oldest stranger is dropped, whoever's it is": (
        control_server,
        "next(each for each in self._strangers if each.peer.strangers == most)",
        "next(iter(self._strangers))",
        test_a_slow_client_keeps_its_place_among_many_strangers,
    ),
    "a byte is progress": (
        control_server,
        "        connection.incoming += data\n",
        "        connection.incoming += data\n        connection.since = time.monotonic()\n",
        lambda: test_a_line_that_never_ends_gets_no_time(SECRET),
    ),
    "a line may have any length": (
        control_server,
        "> _LINE_BYTES:\n            return False",
        "> 1 << 20:\n            return False",
        lambda: test_lines_that_are_too_long_are_not_read(None, 4097),
    ),
    "strangers count among the known": (
        control_server,
        "len(self._strangers) >= _STRANGERS",
        "False",
        test_silent_connections_do_not_keep_ranks_out,
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, right, wrong, test = BUGS[name]
    plant(monkeypatch, module, right, wrong, sys.modules[__name__])
    with pytest.raises(NOTICED):
        test()

"""Strangers at the ports of ranks: they get nowhere, keep nobody out, and cost little."""

import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType

import pytest

from afflux_drivers.errors import NotAuthenticated, RanksMissing
from afflux_drivers.streams import accepting, connecting, handshake, strangers
from tests.support.drivers.meshes import GROUP, SECRET, Meshes, is_connected
from tests.support.drivers.planted_control import NOTICED, plant
from tests.support.drivers.raw_stream import CHALLENGE_BYTES, CLAIM_BYTES, MAGIC, RawStream, place

pytestmark = [
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

STRANGER = "127.0.0.2"
ACCEPTED, OCCUPIED, OTHER_GROUP, OTHER_PLACE = range(4)


@pytest.fixture(autouse=True)
def no_files_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@contextmanager
def rank_0(ranks: int = 2, links: int = 1) -> Iterator[Meshes]:
    """Give rank 0 of a group, which waits for the others, and at the end let them come."""
    with Meshes(ranks, links=links) as meshes:
        meshes.start(0)
        yield meshes
        meshes.start(*range(1, ranks))
        assert is_connected([meshes.wait(rank)[0] for rank in range(ranks)], links)


def place_of(**changed: int | str) -> bytes:
    """Return a claim that rank 0 of two ranks accepts, but for what is changed."""
    right = {
        "group": GROUP, "ranks": 2, "links": 1, "connecting": 1, "accepting": 0, "link": 0,
    }  # fmt: skip
    return place(**{**right, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"\x16\x03\x01" + bytes(512),
        MAGIC,
        MAGIC + 32 * b"0",
        MAGIC + 32 * b"A",
        MAGIC + 31 * b"0" + b" ",
        MAGIC + 32 * b"\xff",
        MAGIC + 32 * b"0" + bytes(CLAIM_BYTES),
        MAGIC + 32 * b"0" + bytes(100_000),
    ],
)
@pytest.mark.parametrize("ends", ["stays", "closes", "resets"])
def test_who_knows_no_secret_gets_nowhere(said, ends, monkeypatch):
    monkeypatch.setattr(strangers, "_HANDSHAKE_S", 0.2)
    with rank_0() as meshes, RawStream(meshes.endpoints[0], STRANGER) as raw:
        with suppress(OSError):
            raw.send(said)
        if ends == "stays":
            # No more than the challenge, and soon the end.
            start = time.monotonic()
            assert len(raw.receive(1000)) in (0, CHALLENGE_BYTES)
            assert time.monotonic() - start < 2
        elif ends == "resets":
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_a_byte_now_and_then_gains_no_time(monkeypatch):
    monkeypatch.setattr(strangers, "_HANDSHAKE_S", 0.3)
    with rank_0() as meshes, RawStream(meshes.endpoints[0], STRANGER) as raw:
        raw.socket.settimeout(0.05)
        start = time.monotonic()
        for byte in MAGIC + raw.nonce:
            with suppress(OSError):
                raw.socket.sendall(bytes([byte]))
            try:
                if not raw.socket.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - start < 1.5


@pytest.mark.parametrize("source", [STRANGER, "127.0.0.1"])
def test_silent_connections_do_not_keep_a_rank_out(source):
    with rank_0() as meshes, ExitStack() as stack:
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(400):
            stack.enter_context(RawStream(meshes.endpoints[0], source))
        # All of these have been accepted when it is answered.
        stack.enter_context(RawStream(meshes.endpoints[0], source)).hello()
        # Both ends are this process's: rank 0 keeps 128 of them, and its event loop has some.
        limit = time.monotonic() + 2
        while len(os.listdir("/proc/self/fd")) > files + 401 + 128 + 8:
            assert time.monotonic() < limit
            time.sleep(0.01)


def test_the_host_of_a_rank_keeps_its_places_among_strangers_of_many_addresses():
    """It is slow, and has most connections of all."""
    with rank_0(links=3) as meshes, ExitStack() as stack:
        slow = [stack.enter_context(RawStream(meshes.endpoints[0])) for _ in range(3)]
        challenges = [raw.hello() for raw in slow]
        for number in range(300):
            source = f"127.0.{1 + number // 200}.{1 + number % 200}"
            stack.enter_context(RawStream(meshes.endpoints[0], source)).hello()
        for raw, challenge in zip(slow, challenges, strict=True):
            raw.send(raw.code_claim(challenge, SECRET, place_of(links=3, link=7)))
            assert raw.verdict() == OTHER_PLACE


def test_a_stranger_that_has_been_turned_away_takes_no_place():
    with rank_0() as meshes, RawStream(meshes.endpoints[0], STRANGER) as slow:
        challenge = slow.hello()
        for _ in range(200):
            with RawStream(meshes.endpoints[0], STRANGER) as raw:
                raw.send(b"GET / HTTP/1.1\r\n" + bytes(100))
                assert raw.receive(1) == b""
        slow.send(slow.code_claim(challenge, SECRET, place_of(link=1)))
        assert slow.verdict() == OTHER_PLACE


@pytest.mark.parametrize("sources", [["127.0.0.1"], [f"127.0.0.{n}" for n in range(2, 200)]])
def test_ranks_come_through_a_flood_of_connections(sources):
    over = threading.Event()
    made = 0

    def flood(endpoint: tuple[str, int]) -> None:
        nonlocal made
        kept: deque[socket.socket] = deque()
        while not over.is_set():
            # Rank 0's thread needs Python's lock, too.
            time.sleep(2e-4)
            with suppress(OSError):
                source = (sources[made % len(sources)], 0)
                kept.append(socket.create_connection(endpoint, 5, source))
                kept[-1].sendall(MAGIC + 32 * b"0")
                made += 1
            if len(kept) > 200:
                kept.popleft().close()
        for each in kept:
            each.close()

    with Meshes(3, links=4) as meshes:
        meshes.start(0)
        thread = threading.Thread(target=flood, args=(meshes.endpoints[0],))
        thread.start()
        try:
            while made < 300:
                time.sleep(0.01)
            start = time.monotonic()
            meshes.start(1, 2)
            assert is_connected(meshes.wait(), 4)
            assert time.monotonic() - start < 5
        finally:
            over.set()
            thread.join()


def test_a_place_that_is_taken_is_refused_until_it_is_free():
    with rank_0(links=2) as meshes:
        text = place_of(links=2)
        with RawStream(meshes.endpoints[0]) as first:
            assert first.claim(SECRET, text) == ACCEPTED
            for _ in range(3):
                with RawStream(meshes.endpoints[0]) as second:
                    assert second.claim(SECRET, text) == OCCUPIED
                    assert second.receive(1) == b""
            first.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                first.socket.recv(1)
        # Then rank 1 gets it, as one that has lost the verdict would.


def test_a_rank_waits_for_a_place_that_is_taken():
    with rank_0(ranks=3) as meshes, RawStream(meshes.endpoints[0]) as first:
        assert first.claim(SECRET, place_of(ranks=3)) == ACCEPTED
        meshes.start(1, timeout_s=1.0)
        (error,) = meshes.wait(1)
        assert type(error) is RanksMissing
        assert error.ranks == (0, 2)
        assert "(this place is taken by another connection), rank 2 at" in str(error)


def test_a_rank_that_has_come_and_died_is_missing():
    with Meshes(3, timeout_s=1.5) as meshes:
        meshes.start(0)
        with RawStream(meshes.endpoints[0]) as died:
            assert died.claim(SECRET, place_of(ranks=3)) == ACCEPTED
        meshes.start(2)
        errors = meshes.wait(0, 2)
        assert [type(each) for each in errors] == [RanksMissing] * 2
        assert [each.ranks for each in errors] == [(1,), (1,)]
        assert "(0 of 1 are there)" in str(errors[0])


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"group": "00f1e2d3c4b5a698"}, OTHER_GROUP),
        ({"group": ""}, OTHER_GROUP),
        ({"ranks": 3}, OTHER_PLACE),
        ({"links": 2}, OTHER_PLACE),
        ({"connecting": 0}, OTHER_PLACE),
        ({"connecting": 2}, OTHER_PLACE),
        ({"connecting": 0xFFFFFFFF}, OTHER_PLACE),
        ({"accepting": 1}, OTHER_PLACE),
        ({"connecting": 0, "accepting": 1}, OTHER_PLACE),
        ({"link": 1}, OTHER_PLACE),
        ({"link": 0xFFFFFFFF}, OTHER_PLACE),
    ],
)
def test_a_rank_with_a_wrong_claim_is_refused(changed, verdict):
    with rank_0() as meshes, RawStream(meshes.endpoints[0]) as raw:
        assert raw.claim(SECRET, place_of(**changed)) == verdict
        assert raw.receive(1) == b""


def test_rank_1_of_3_refuses_what_only_lower_ranks_accept():
    with Meshes(3, timeout_s=1.0) as meshes:
        meshes.start(1)
        for connecting_rank in (0, 1):
            with RawStream(meshes.endpoints[1]) as raw:
                text = place_of(ranks=3, connecting=connecting_rank, accepting=1)
                assert raw.claim(SECRET, text) == OTHER_PLACE
        (error,) = meshes.wait(1)
        assert type(error) is RanksMissing
        assert error.ranks == (0, 2)


def test_each_byte_of_a_claim_counts():
    with rank_0() as meshes:
        for number in range(CLAIM_BYTES):
            with RawStream(meshes.endpoints[0], STRANGER) as raw:
                claim = bytearray(raw.code_claim(raw.hello(), SECRET, place_of()))
                claim[number] ^= 1
                raw.send(bytes(claim))
                assert raw.verdict() is None


def test_a_claim_with_another_secret_is_not_answered():
    with rank_0() as meshes, RawStream(meshes.endpoints[0], STRANGER) as raw:
        challenge = raw.hello()
        raw.code_claim(challenge, SECRET, b"")
        with pytest.raises(AssertionError):
            raw.code_claim(challenge, secrets.token_bytes(32), b"")
        raw.send(secrets.token_bytes(CLAIM_BYTES))
        assert raw.verdict() is None


def test_what_a_rank_has_said_says_nothing_a_second_time():
    with rank_0(links=2) as meshes:
        with RawStream(meshes.endpoints[0]) as raw:
            assert raw.claim(SECRET, place_of(links=2)) == ACCEPTED
        hello, claim = raw.sent
        for frames in ((hello, claim), (hello, hello, claim), (claim, claim)):
            with RawStream(meshes.endpoints[0], STRANGER) as replay:
                with suppress(OSError):
                    for frame in frames:
                        replay.send(frame)
                # One challenge at most, which is another one, and no verdict.
                assert len(replay.receive(1000)) in (0, CHALLENGE_BYTES)


@contextmanager
def in_place_of_rank_0(meshes: Meshes, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Answer the connections to rank 0, one after the other, until the end."""
    over = threading.Event()

    def serve() -> None:
        listener = meshes.listeners[0].tcp
        while not over.is_set():
            try:
                tcp, _ = listener.accept()
            except BlockingIOError:
                time.sleep(0.01)
                continue
            with tcp, suppress(OSError):
                tcp.settimeout(5)
                answer(tcp)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def echo(tcp: socket.socket) -> None:
    while data := tcp.recv(1000):
        tcp.sendall(data)


def test_the_verdict_of_a_former_connection_is_not_taken():
    """A stranger at rank 0's endpoint says again what rank 0 has said to rank 1."""
    with rank_0(links=2) as meshes, RawStream(meshes.endpoints[0]) as raw:
        challenge = raw.hello()
        raw.send(raw.code_claim(challenge, SECRET, place_of(links=2)))
        recorded = challenge + raw.receive(66)

    with Meshes(2, timeout_s=5.0) as meshes:
        with in_place_of_rank_0(meshes, lambda tcp: tcp.sendall(recorded)):
            meshes.start(1)
            (error,) = meshes.wait(1)
        assert type(error) is NotAuthenticated
        assert f"rank 0 at 127.0.0.1:{meshes.endpoints[0][1]} does not prove" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        lambda tcp: None,
        lambda tcp: tcp.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda tcp: tcp.sendall(b"x" * 1000),
        lambda tcp: tcp.sendall(32 * b"0" + b"x" * 1000),
        echo,
    ],
)
def test_another_program_at_a_ranks_endpoint_is_no_rank(answer):
    with Meshes(2, timeout_s=0.5) as meshes, in_place_of_rank_0(meshes, answer):
        meshes.start(1)
        (error,) = meshes.wait(1)
        assert type(error) in (NotAuthenticated, RanksMissing)
        assert f"rank 0 at 127.0.0.1:{meshes.endpoints[0][1]}" in str(error)


BUGS: dict[str, tuple[ModuleType, str, str, Callable[[], None]]] = {
    "any claim is right": (
        handshake,
        "    if claim is None:\n",
        "    if claim is None:\n        claim = bytes(_CLAIM.size)\n    if not claim:\n",
        test_each_byte_of_a_claim_counts,
    ),
    "the nonce of who accepts is always the same": (
        handshake,
        "    ours = new_nonce()\n    to_accepting",
        '    ours = 32 * "0"\n    to_accepting',
        test_what_a_rank_has_said_says_nothing_a_second_time,
    ),
    "any challenge is right": (
        handshake,
        "to_connecting.check(challenge[NONCE_DIGITS:]) is None",
        "False",
        test_the_verdict_of_a_former_connection_is_not_taken,
    ),
    "a claim is for any group": (
        handshake,
        "claim.group != hashlib.sha256(self.group.encode()).digest()",
        "False",
        lambda: test_a_rank_with_a_wrong_claim_is_refused({"group": ""}, OTHER_GROUP),
    ),
    "a rank accepts lower ones": (
        handshake,
        "self.rank < claim.connecting < self.ranks",
        "claim.connecting < self.ranks",
        test_rank_1_of_3_refuses_what_only_lower_ranks_accept,
    ),
    "a place may be taken twice": (
        accepting,
        "taken is not None and not has_ended(taken)",
        "False",
        test_a_place_that_is_taken_is_refused_until_it_is_free,
    ),
    "a place stays taken": (
        accepting,
        "taken is not None and not has_ended(taken)",
        "taken is not None",
        test_a_place_that_is_taken_is_refused_until_it_is_free,
    ),
    "a connection that has ended counts": (
        accepting,
        "if has_ended(self.sockets[each])",
        "if False",
        test_a_rank_that_has_come_and_died_is_missing,
    ),
    "strangers are never forgotten": (
        strangers,
        "        self._strangers.pop(task, None)\n",
        "",
        test_a_stranger_that_has_been_turned_away_takes_no_place,
    ),
    "any number of strangers": (
        strangers,
        "len(self._strangers) >= _STRANGERS",
        "False",
        lambda: test_silent_connections_do_not_keep_a_rank_out(STRANGER),
    ),
    "the hosts of ranks have no precedence": (
        strangers,
        "(host := self._strangers[each].host) not in self._preferred",
        "(host := self._strangers[each].host) in ()",
        test_the_host_of_a_rank_keeps_its_places_among_strangers_of_many_addresses,
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, right, wrong, test = BUGS[name]
    # A rank that the bug keeps out is not waited for long.
    monkeypatch.setattr("tests.support.drivers.meshes.TIMEOUT_S", 2.0)
    plant(
        monkeypatch, module, right, wrong, strangers, accepting, connecting, sys.modules[__name__]
    )
    with pytest.raises(NOTICED):
        test()

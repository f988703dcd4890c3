"""The secret of a control channel: its owners may ask; nobody else learns or changes anything.

Where `RawControl` talks to the server, the format on the wire is as `docs/protocol.md` has it.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import ModuleType
from typing import Any

import pytest

from afflux_drivers.aggregator import conversation
from afflux_drivers.aggregator.access import Access, AccessUnset
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.control import channel, line_codes
from afflux_drivers.control.client import create_job, describe, read_counters
from afflux_drivers.control.secret import find_secret, new_secret, secret_of_file
from afflux_drivers.control.tree import create_tree
from afflux_drivers.errors import (
    AffluxError,
    AggregatorRefused,
    AggregatorUnreachable,
    NotAuthenticated,
)
from tests.support.drivers.planted_control import NOTICED, plant
from tests.support.drivers.raw_control import RawControl, coded
from tests.support.drivers.served import Served

SECRET = b"correct horse battery staple"
OTHER = b"incorrect horse battery staple"
CREATE = b'{"request": "create", "protocol": 2, "workers": 1, "lanes": 1, "slots": 1}'


@pytest.fixture
def guarded(no_threads_left: None) -> Iterator[Served]:
    running = Served(SoftEngine(), access=Access(secret=SECRET))
    try:
        yield running
    finally:
        running.stop()


def test_who_knows_the_secret_is_served(guarded):
    with closing(create_job(guarded.address, 1, 4, 4, 5.0, secret=SECRET)):
        assert describe(guarded.address, 5.0, SECRET)["engine"] == "soft"
        assert read_counters(guarded.address, 5.0, SECRET)["joins"] == 0


def test_a_client_from_the_document_alone_is_served(guarded):
    with RawControl(guarded.address) as raw:
        assert raw.prove(SECRET) == {"ok": True}
        for _ in range(3):
            assert raw.ask_coded(request="describe")["engine"] == "soft"
        assert raw.ask_coded(request="reboot")["ok"] is False


def test_the_secret_crosses_no_network():
    """The lines between both ends, as one between them sees them."""
    seen = bytearray()
    served = Served(SoftEngine(), access=Access(secret=SECRET, translated=True))
    try:

        def listen(data: bytes, _: bool) -> bytes:
            seen.extend(data)
            return data

        with between(served.address, listen) as address:
            create_job(address, 1, 4, 4, 5.0, secret=SECRET).close()
    finally:
        served.stop()
    assert len(seen) > 600
    assert SECRET not in seen
    assert SECRET.hex().encode() not in seen


@pytest.mark.parametrize(
    ("has", "given", "why"),
    [
        (SECRET, None, "it asks for a secret, and none is set here: AFFLUX_SECRET_FILE"),
        (SECRET, OTHER, "it has another secret than the one that is set here"),
        (None, SECRET, "a secret is set here (AFFLUX_SECRET_FILE), and it has none"),
    ],
)
def test_each_way_not_to_agree_has_its_error(has, given, why):
    served = Served(SoftEngine(), access=Access(secret=has))
    try:
        for name, call in (
            ("create", lambda: create_job(served.address, 1, 1, 1, 5.0, secret=given)),
            ("describe", lambda: describe(served.address, 5.0, given)),
            ("counters", lambda: read_counters(served.address, 5.0, given)),
        ):
            start = time.monotonic()
            with pytest.raises(NotAuthenticated, match=re.escape(why)) as caught:
                call()
            assert time.monotonic() - start < 2
            where = "{}:{}".format(*served.address)
            done = name if given is None else "hello" if has is None else "confirm"
            assert str(caught.value).startswith(f"{done} on the aggregator at {where}: ")
    finally:
        served.stop()


def test_a_tree_needs_the_secret_at_all_levels(guarded):
    parent = Served(SoftEngine(), access=Access(secret=SECRET))
    try:
        create_tree(parent.address, [guarded.address], 4, 2, 5.0, SECRET).close()
        with pytest.raises(NotAuthenticated):
            create_tree(parent.address, [guarded.address], 4, 2, 5.0, OTHER)
    finally:
        parent.stop()


@pytest.mark.parametrize(
    "line",
    [
        CREATE,
        b"",
        b"nonsense",
        b'{"request": "hello"}',
        b'{"request": "hello", "nonce": 5}',
        b'{"request": "hello", "nonce": "00"}',
        b'{"request": "hello", "nonce": "' + 32 * b"G" + b'"}',
        coded(SECRET, 0, CREATE),
        coded(b"", 0, CREATE),
    ],
)
def test_a_stranger_gets_one_answer_and_nothing_else(guarded, line):
    with RawControl(guarded.address) as raw:
        # A second line that comes with it is not answered.
        raw.send(line + b"\n" + CREATE)
        assert b'"secret": "required"' in raw.line()
        assert raw.line() == b""


def test_a_wrong_secret_ends_the_connection(guarded):
    with RawControl(guarded.address) as raw:
        answer = raw.prove(OTHER)
        assert (answer["ok"], answer["secret"]) == (False, "wrong")
        assert raw.line() == b""


def test_nothing_is_carried_out_before_the_proof(guarded):
    """The owner of the secret has to confirm first; so the address is always compared."""
    with RawControl(guarded.address) as raw:
        raw.hello(SECRET)
        assert "must be confirm" in raw.ask_coded(**{"request": "counters"})["error"]
        assert raw.line() == b""


def test_recorded_lines_are_worth_nothing(guarded):
    """The same lines again, on another connection, with the nonce that they were made for."""
    with RawControl(guarded.address) as honest:
        honest.prove(SECRET)
        assert honest.ask_coded(request="describe")["ok"]
        recorded = honest.sent
        with RawControl(guarded.address) as replayed:
            replayed.send(recorded[0])
            assert b'"nonce"' in replayed.line()
            replayed.send(recorded[1])
            assert b'"secret": "wrong"' in replayed.line()
            assert replayed.line() == b""
        # On its own connection a line is worth something once, and in its turn.
        honest.send(recorded[2])
        assert b'"secret": "broken"' in honest.line()
        assert honest.line() == b""


def _changed(line: bytes, place: int) -> bytes:
    return line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]


@pytest.mark.parametrize("place", [0, 63, 64, 65, 90, -1])
def test_a_line_with_one_bit_changed_is_noticed(guarded, place):
    with RawControl(guarded.address) as raw:
        raw.prove(SECRET)
        line = coded(raw.client_key, 1, CREATE)
        raw.send(_changed(line, place % len(line)))
        assert b'"secret": "broken"' in raw.line()
        assert raw.line() == b""
    assert describe(guarded.address, 5.0, SECRET)["ok"]
    with closing(create_job(guarded.address, 1, 1, 1, 5.0, secret=SECRET)) as lease:
        assert lease.ticket.job == 0


def test_an_answer_sent_back_is_no_request(guarded):
    """Each direction has its own key."""
    with RawControl(guarded.address) as raw:
        raw.prove(SECRET)
        raw.send(coded(raw.server_key, 1, CREATE))
        assert b'"secret": "broken"' in raw.line()


def test_every_nonce_is_new(guarded):
    nonces = set()
    for _ in range(8):
        with RawControl(guarded.address) as raw:
            nonces.add(raw.hello(SECRET, nonce="0" * 32)["nonce"])
    assert len(nonces) == 8


@contextmanager
def between(
    there: tuple[str, int], change: Callable[[bytes, bool], bytes]
) -> Iterator[tuple[str, int]]:
    """Pass on what one connection carries, through `change(data, to the aggregator)`."""
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def carry(source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(4096):
                target.sendall(change(data, up))
        except OSError:
            pass
        finally:
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        near, _ = listener.accept()
        far = socket.create_connection(there, 5)
        ends.extend((near, far))
        back = threading.Thread(target=carry, args=(far, near, False))
        back.start()
        carry(near, far, True)
        back.join()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        thread.join(10)
        for end in (listener, *ends):
            end.close()


def test_a_relay_is_not_taken_for_the_aggregator(guarded):
    """A stranger with the port of a dead aggregator passes the lines on to one that lives."""
    with between(guarded.address, lambda data, _: data) as address:
        host, port = address
        with pytest.raises(AggregatorRefused, match=f"reached as {host} port {port}: .*--trans"):
            create_job(address, 1, 1, 1, 5.0, secret=SECRET)


def test_lines_changed_on_their_way_are_noticed_at_both_ends():
    served = Served(SoftEngine(), access=Access(secret=SECRET, translated=True))
    swaps = {True: (b'"workers": 2', b'"workers": 3'), False: (b'"job": 0', b'"job": 1')}
    try:
        for up, why in ((True, "got a line whose code is wrong"), (False, "does not prove")):

            def change(data: bytes, way: bool, wanted: bool = up) -> bytes:
                return data.replace(*swaps[way]) if way == wanted else data

            with (
                between(served.address, change) as address,
                pytest.raises(NotAuthenticated, match=why),
            ):
                create_job(address, 2, 1, 1, 5.0, secret=SECRET)
    finally:
        served.stop()


@pytest.mark.parametrize(
    "said",
    [
        b'{"ok": true, "nonce": "00000000000000000000000000000000"}\n{"ok": true}\n',
        b'{"ok": true, "nonce": "00000000000000000000000000000000"}\n'
        + 64 * b"0"
        + b' {"ok": true}\n',
        b'{"ok": true}\n',
        b'{"ok": true, "nonce": [1]}\n',
        b'{"ok": false, "secret": "none", "error": "I have none, so tell me all without a code"}\n',
        b'{"ok": false, "secret": ["none"], "error": "x"}\n',
        b"nonsense\n",
        b"x" * 100_000,
    ],
)
def test_who_poses_as_the_aggregator_gets_no_request(said):
    """It sees a nonce and a proof for this connection, and neither a request nor a parent's key."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard = bytearray()

    def pose() -> None:
        client, _ = listener.accept()
        with client:
            client.sendall(said)
            try:
                while data := client.recv(4096):
                    heard.extend(data)
            except OSError:
                pass

    thread = threading.Thread(target=pose)
    thread.start()
    what = r"(hello|confirm) on the aggregator at 127\.0\.0\.1:"
    try:
        with pytest.raises(AffluxError, match=what):
            create_job(listener.getsockname(), 1, 1, 1, 0.5, secret=SECRET)
    finally:
        thread.join(10)
        listener.close()
    assert b"create" not in heard
    assert heard.count(b"\n") <= 2


def test_one_that_only_listens_ends_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        with pytest.raises(AggregatorUnreachable, match=r"hello on .* timed out"):
            create_job(silent.getsockname(), 1, 1, 1, 0.3, secret=SECRET)
        assert time.monotonic() - start < 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_hosts_are_let_in_only_if_somebody_says_how(host):
    with pytest.raises(AccessUnset, match=r"--secret-file or AFFLUX_SECRET_FILE.* --no-secret"):
        AggregatorServer(SoftEngine(), host)


@pytest.mark.parametrize("access", [Access(secret=SECRET), Access(no_secret=True)])
def test_then_they_are(access):
    server = AggregatorServer(SoftEngine(), "0.0.0.0", access=access)
    server.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": SECRET, "no_secret": True},
        {"peer_share": 0.0},
        {"peer_share": 1.1},
        {"requests_per_s": 0.0},
        {"requests_per_s": float("nan")},
    ],
)
def test_access_that_makes_no_sense(wrong):
    with pytest.raises(ValueError, match=r"secret|share|requests"):
        Access(**wrong)
    assert SECRET.decode() not in repr(Access(secret=SECRET))


def test_a_file_of_a_secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f" {new_secret()}\n")
    file.chmod(0o600)
    assert len(secret_of_file(str(file))) == 64
    assert find_secret(str(file), None) == secret_of_file(str(file))
    assert find_secret(None, "0123456789abcdef") == b"0123456789abcdef"
    assert find_secret(None, None) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    file = tmp_path / "secret"
    file.write_text(new_secret())
    file.chmod(mode)
    with pytest.raises(ValueError, match=f"{file} has mode {mode:04o}, .*: chmod 600 {file}"):
        secret_of_file(str(file))


def test_what_cannot_be_a_secret_is_named_and_not_shown(tmp_path):
    short = tmp_path / "short"
    short.write_text("hunter2\n")
    short.chmod(0o600)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for file, text, why in (
        (str(short), None, "short must have 16 to 1024 bytes, not 7"),
        (str(tmp_path / "none"), None, "none: No such file"),
        (str(tmp_path), None, "is not a regular file"),
        (str(pipe), None, "is not a regular file"),
        (None, "hunter2", "a secret must have 16 to 1024 bytes, not 7"),
        (None, "x" * 1025, "not 1025"),
        (str(short), "hunter2", "both set: unset one"),
    ):
        with pytest.raises(ValueError, match=re.escape(why)) as caught:
            find_secret(file, text)
        assert "hunter2" not in str(caught.value)


def test_a_file_of_another_user_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "secret"
    file.write_text(new_secret())
    file.chmod(0o600)
    own = os.geteuid()
    os.chown(file, 12345, -1) if own == 0 else monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(ValueError, match="belongs to user"):
        secret_of_file(str(file))


def with_secret(test: Callable[..., Any], *arguments: object) -> Callable[[], None]:
    """Return a test that makes its own aggregator."""

    def run() -> None:
        served = Served(SoftEngine(), access=Access(secret=SECRET))
        try:
            test(served, *arguments)
        finally:
            served.stop()

    return run


NONCE = b'{"ok": true, "nonce": "00000000000000000000000000000000"}\n'
DOCUMENT = with_secret(test_a_client_from_the_document_alone_is_served)
REPLAY = with_secret(test_recorded_lines_are_worth_nothing)

BUGS: dict[str, tuple[ModuleType, str, str, Callable[[], None]]] = {
    "lines have no numbers": (
        line_codes,
        'self._number.to_bytes(8, "big")',
        "bytes(8)",
        REPLAY,
    ),
    "any code fits": (
        line_codes,
        "text if fits else None",
        "text",
        with_secret(test_a_line_with_one_bit_changed_is_noticed, 90),
    ),
    "a code is compared but for its last digit": (
        line_codes,
        'line[: _CODE_DIGITS + 1], self._code(text) + b" "',
        "line[: _CODE_DIGITS - 1], self._code(text)[:-1]",
        with_secret(test_a_line_with_one_bit_changed_is_noticed, 63),
    ),
    "one key for both directions": (
        line_codes,
        '_SERVER = b"afflux control 1: server to client"',
        "_SERVER = _CLIENT",
        with_secret(test_an_answer_sent_back_is_no_request),
    ),
    "the server's nonce is in no key": (
        line_codes,
        " + bytes.fromhex(server_nonce)",
        "",
        REPLAY,
    ),
    "the client's nonce is in no key": (
        line_codes,
        "bytes.fromhex(client_nonce) + ",
        "",
        DOCUMENT,
    ),
    "the secret is in no key": (
        line_codes,
        "hmac.digest(secret, direction",
        'hmac.digest(b"", direction',
        DOCUMENT,
    ),
    "each nonce is the same": (
        line_codes,
        "secrets.token_hex(NONCE_DIGITS // 2)",
        'NONCE_DIGITS * "0"',
        with_secret(test_every_nonce_is_new),
    ),
    "strangers are served": (
        conversation,
        "return self._greet(line, self._secret)",
        "return self._handle(line, self.client)",
        with_secret(test_a_stranger_gets_one_answer_and_nothing_else, CREATE),
    ),
    "a stranger may go on": (
        conversation,
        'self.over = True\n            return _plain("required", "this',
        'return _plain("required", "this',
        with_secret(test_a_stranger_gets_one_answer_and_nothing_else, CREATE),
    ),
    "nobody has to confirm": (
        conversation,
        "if self.known else self._admit(text)",
        "",
        with_secret(test_nothing_is_carried_out_before_the_proof),
    ),
    "any address is the own one": (
        conversation,
        "(here or self._any_address)",
        "True",
        with_secret(test_a_relay_is_not_taken_for_the_aggregator),
    ),
    "a port is not compared": (
        conversation,
        " and port == self._own[1]",
        "",
        with_secret(test_a_relay_is_not_taken_for_the_aggregator),
    ),
    "a client believes an answer without a code": (
        channel,
        "text = self._codes[1].check(line)",
        "text = line",
        lambda: test_who_poses_as_the_aggregator_gets_no_request(NONCE + b'{"ok": true}\n'),
    ),
    "a client confirms nothing": (
        channel,
        "self.ask(confirm, max(deadline - time.monotonic(), 1e-3))",
        "pass",
        lambda: test_who_poses_as_the_aggregator_gets_no_request(NONCE + b'{"ok": true}\n'),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, right, wrong, test = BUGS[name]
    plant(monkeypatch, module, right, wrong)
    with pytest.raises(NOTICED):
        test()

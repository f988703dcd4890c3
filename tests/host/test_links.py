"""Connections between processes: one for each two, and none for strangers."""

import socket
import threading
import time

import pytest

from afflux.group.liveness import links as links_module
from afflux.group.liveness.links import Links

LIFE = "00112233445566aa"


@pytest.fixture
def two():
    made = sorted((Links(), Links()), key=lambda each: each.identity)
    yield made
    for each in made:
        each.stop()


def connect(caller, listener, limit_s=5.0):
    """Return both ends of the connection between two."""
    there, here = listener.listen("127.0.0.1"), caller.listen("127.0.0.1")
    deadline = time.monotonic() + limit_s
    link = caller.link(there, "127.0.0.1", False, deadline)
    return link, listener.link(here, "127.0.0.1", False, deadline)


def until(true, limit_s=10.0):
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_is_sent_last_arrives_before_the_end(two):
    caller, listener = two
    link, other = connect(caller, listener)
    assert link.peer == other.peer == "127.0.0.1"
    link.leave(LIFE, 7)
    caller.stop()
    until(lambda: other.ended)
    assert other.left == {LIFE: 7}
    assert other.ended == "its process has closed the connection"


def test_groups_share_a_connection(two):
    found = []
    threads = [threading.Thread(target=lambda: found.append(connect(*two))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def stranger(address, first=b""):
    tcp = socket.create_connection((address.host, address.port), timeout=10)
    tcp.sendall(first)
    return tcp


def refused(tcp):
    try:
        return tcp.recv(100) == b""
    except ConnectionResetError:
        # It had sent more than was read.
        return True


def test_strangers_do_not_keep_ranks_out(two):
    caller, listener = two
    address = listener.listen("127.0.0.1")
    silent = [stranger(address) for _ in range(links_module._HELLOS_MAX + 20)]
    link, other = connect(caller, listener)
    assert link is not None
    assert other is not None
    # Each that came too much has been closed, the oldest one first.
    assert refused(silent[0])
    for each in silent:
        each.close()


def test_a_stranger_is_no_rank_whatever_it_says(two):
    caller, listener = two
    address = listener.listen("127.0.0.1")
    link, other = connect(caller, listener)
    own, length = bytes.fromhex(caller.identity), links_module._CODE_BYTES
    hello = links_module._MAGIC + own
    code = links_module._code(
        bytes.fromhex(address.key), b"hello", own, bytes.fromhex(address.identity)
    )
    for said in (
        b"GET / HTTP/1.1\r\n" + bytes(60),
        hello + bytes(length),
        # A copy of what the rank has said.
        hello + code,
    ):
        with stranger(address, said) as tcp:
            assert refused(tcp)
    link.leave(LIFE, 3)
    until(lambda: other.left)
    assert not other.ended
    assert not link.ended


def test_who_is_answered_late_is_not_taken_for_one_that_has_ended(two, monkeypatch):
    caller, listener = two
    monkeypatch.setattr(links_module, "_HELLO_S", 1.0)
    began, read = threading.Event(), listener._read

    def slow(which):
        if not began.is_set():
            began.set()
            # The caller has gone when this is over.
            time.sleep(1.5)
        return read(which)

    monkeypatch.setattr(listener, "_read", slow)
    link, other = connect(caller, listener)
    assert began.is_set()
    assert link is not None
    assert other is not None
    link.leave(LIFE, 4)
    until(lambda: other.left)
    assert not other.ended
    assert not link.ended


def test_who_listens_in_the_place_of_a_rank_is_not_taken_for_it(two):
    caller, listener = two
    real = listener.listen("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            tcp, _ = server.accept()
            with tcp:
                tcp.recv(1000)
                tcp.sendall(bytes(links_module._CODE_BYTES))

        thread = threading.Thread(target=answer)
        thread.start()
        false = real._replace(port=server.getsockname()[1])
        assert caller.link(false, "127.0.0.1", False, time.monotonic() + 0.5) is None
        thread.join()


def test_what_is_no_frame_ends_the_connection(two):
    link, other = connect(*two)
    link.tcp.send(b"\x01\xff\xff\xff\xff")
    until(lambda: other.ended)
    assert "a frame of 4294967295 bytes" in other.ended


def test_the_thread_ends_with_the_links(two):
    connect(*two)
    for each in two:
        assert each._thread.is_alive()
        each.stop()
        assert not each._thread.is_alive()

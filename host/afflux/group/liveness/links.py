"""Connections between processes, of which the kernel says whether the other one lives.

A process has one connection with each other one that it has groups with, however many these are.
When a process ends, however it ends, its kernel closes its connections. When its host vanishes, no
kernel answers any more: so a rank with a connection to another host sends a *beat* each second,
whose acknowledgement is the other kernel's, not its process's. A process that is stopped, by a
debugger for example, thus counts as alive.

    who connects   hello: own identity, and a code that takes the other's key to make
    who accepts    welcome: another such code
    who connects   a byte: it has the welcome
    both           frames (`link.py`)

Only after the last step is the connection's end that of a process. One that is too slow for it, as
its machine has more to do than it can, may try again.

Identities and keys come from the groups' store, which no stranger reads. A connection that does not
begin with a right hello is closed, and at most so many connections may be at their hello.
"""

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from afflux.group.liveness.link import BEAT_S, Address, Link
from afflux_drivers.addresses import is_ipv6, named, resolve

__all__ = ["Links", "acquire_links", "release_links"]

_log = logging.getLogger("afflux")

_MAGIC = b"afflink1"
_ID_BYTES = 16
_CODE_BYTES = 32
_HELLO_BYTES = len(_MAGIC) + _ID_BYTES + _CODE_BYTES
_TAKEN = b"t"
_HELLO_S = 5.0
_TAKEN_S = 60.0
"""A caller that has its welcome takes the end of the connection for that of the process."""

_HELLOS_MAX = 64
"""Strangers that say nothing right: the oldest one gives way."""

_CALL_S = 1.0
_RETRY_S = 0.05
_JOIN_S = 2.0


class _Caller(NamedTuple):
    """A connection that has been accepted, until the other end has its welcome."""

    tcp: socket.socket
    host: str
    since: float
    got: bytearray

    @property
    def welcomed(self) -> bool:
        """Whether its hello was right."""
        return len(self.got) >= _HELLO_BYTES


class Links:
    """The connections of this process, and the thread that sleeps until something happens to one.

    Attributes:
        identity: Of this process, in hexadecimal.
        users: Groups that use it.
    """

    def __init__(self) -> None:
        self.users = 0
        self.owner = os.getpid()
        self._identity = secrets.token_bytes(_ID_BYTES)
        self.identity = self._identity.hex()
        self._key = secrets.token_bytes(16)
        self._links: dict[str, Link] = {}
        self._calling: set[str] = set()
        self._listeners: dict[str, socket.socket] = {}
        self._callers: dict[int, _Caller] = {}
        # Re-entrant: a signal handler may make or end a group in the middle of any of these lines.
        self._changed = threading.Condition(threading.RLock())
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._stopping = False
        self._thread: threading.Thread | None = None

    def listen(self, host: str) -> Address:
        """Listen at an address of this host, unless it is done already; return how to come here.

        Raises:
            OSError: It is none of this host's.
        """
        with self._changed:
            listener = self._listeners.get(host)
            if listener is None:
                family, where = resolve(host, 0, socket.SOCK_STREAM)[0]
                listener = socket.socket(family, socket.SOCK_STREAM)
                try:
                    listener.bind(where)
                    listener.listen(128)
                    listener.setblocking(False)
                except OSError:
                    listener.close()
                    raise
                self._listeners[host] = listener
                self._wake()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="afflux-links", daemon=True)
                self._thread.start()
            return Address(self.identity, self._key.hex(), host, named(listener.getsockname())[1])

    def link(self, other: Address, own_host: str, beats: bool, deadline: float) -> Link | None:
        """Return the connection with another process, once there is one.

        Args:
            other: As it has published it.
            own_host: Own address, from which to connect.
            beats: Whether it is on another host.
            deadline: How long to try, in seconds of the monotonic clock.

        Returns:
            None if it cannot be reached by then.
        """
        if self.identity < other.identity:
            return self._connect(other, own_host, beats, deadline)
        with self._changed:
            return self._found(other.identity, deadline, lambda: True)

    def at(self, identity: str) -> Link | None:
        """Return the connection with another process, if there is one by now."""
        return self._links.get(identity)

    def stop(self) -> None:
        """Close all, and end the thread."""
        self._stopping = True
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)
        for link in self._links.values():
            if not link.ended:
                # A socket that is closed with something unread resets the connection, and may
                # overtake what has been sent last.
                link.read()
        self.close_sockets()

    def close_sockets(self) -> None:
        """Close the sockets in this process: another one, forked from it, may have its own."""
        callers = [each.tcp for each in self._callers.values()]
        links = [each.tcp for each in self._links.values()]
        for each in (*self._listeners.values(), *callers, *links, self._waker, self._woken):
            each.close()

    def _connect(self, other: Address, own_host: str, beats: bool, deadline: float) -> Link | None:
        with self._changed:
            # Groups that are made at the same time share the connection.
            link = self._found(other.identity, deadline, lambda: other.identity in self._calling)
            if link is not None:
                return link
            self._calling.add(other.identity)
        try:
            while True:
                try:
                    link = Link(other.identity, self._call(other, own_host, deadline), beats)
                    break
                except OSError as error:
                    _log.debug("no connection with %s port %d: %s", other.host, other.port, error)
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_RETRY_S)
            with self._changed:
                self._links[other.identity] = link
            self._wake()
            return link
        finally:
            with self._changed:
                self._calling.discard(other.identity)
                self._changed.notify_all()

    def _found(self, identity: str, deadline: float, comes: Callable[[], bool]) -> Link | None:
        """Return a connection that is there, or comes in time."""
        while (link := self._links.get(identity)) is None and comes():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            self._changed.wait(min(left_s, 0.2))
        return link

    def _call(self, other: Address, own_host: str, deadline: float) -> socket.socket:
        family, where = resolve(other.host, other.port, socket.SOCK_STREAM)[0]
        tcp = socket.socket(family, socket.SOCK_STREAM)
        try:
            tcp.settimeout(min(_CALL_S, max(_CALL_S / 2, deadline - time.monotonic())))
            if is_ipv6(own_host) == is_ipv6(other.host):
                tcp.bind(resolve(own_host, 0, socket.SOCK_STREAM)[0].where)
            tcp.connect(where)
            tcp.settimeout(_HELLO_S)
            key, theirs = bytes.fromhex(other.key), bytes.fromhex(other.identity)
            hello = _code(key, b"hello", self._identity, theirs)
            tcp.sendall(_MAGIC + self._identity + hello)
            welcome = bytearray()
            while len(welcome) < _CODE_BYTES:
                found = tcp.recv(_CODE_BYTES - len(welcome))
                if not found:
                    raise OSError("closed before the welcome")
                welcome += found
            expected = _code(key, b"welcome", theirs, self._identity)
            if not hmac.compare_digest(bytes(welcome), expected):
                raise OSError("a stranger listens there")
            tcp.sendall(_TAKEN)
        except BaseException:
            tcp.close()
            raise
        return tcp

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"w")

    def _run(self) -> None:
        next_beat = time.monotonic() + BEAT_S
        while not self._stopping:
            with self._changed:
                links = [each for each in self._links.values() if not each.ended]
                listeners = list(self._listeners.values())
            poll = select.poll()
            for each in (self._woken, *listeners):
                poll.register(each, select.POLLIN)
            for caller in self._callers.values():
                poll.register(caller.tcp, select.POLLIN)
            for link in links:
                poll.register(link.tcp, select.POLLIN)
            # Where all are on one host, it sleeps until something happens.
            pause_s = _HELLO_S if self._callers else None
            now = time.monotonic()
            if any(each.beats for each in links):
                if now >= next_beat:
                    next_beat = now + BEAT_S
                    for link in links:
                        if link.beats:
                            link.beat()
                pause_s = next_beat - now
            ready = {number for number, _ in poll.poll(None if pause_s is None else 1000 * pause_s)}
            if self._woken.fileno() in ready:
                with contextlib.suppress(OSError):
                    self._woken.recv(4096)
            for link in links:
                if link.tcp.fileno() in ready:
                    link.read()
            self._hear(ready)
            for listener in listeners:
                if listener.fileno() in ready:
                    self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            tcp, where = listener.accept()
        except OSError:
            # It has gone again, or there are no more descriptors.
            time.sleep(0.001)
            return
        tcp.setblocking(False)
        strangers = [number for number, each in self._callers.items() if not each.welcomed]
        if len(strangers) >= _HELLOS_MAX:
            self._callers.pop(strangers[0]).tcp.close()
        self._callers[tcp.fileno()] = _Caller(tcp, named(where)[0], time.monotonic(), bytearray())

    def _hear(self, ready: set[int]) -> None:
        """Take in the hellos that have come, and let go of those that take too long."""
        for number, caller in list(self._callers.items()):
            limit_s = _TAKEN_S if caller.welcomed else _HELLO_S
            keep = time.monotonic() - caller.since < limit_s
            if number in ready:
                try:
                    keep = self._read(caller) and keep
                except BlockingIOError:
                    pass
                except OSError:
                    keep = False
            if not keep and self._callers.pop(number, None) is not None:
                caller.tcp.close()

    def _read(self, caller: _Caller) -> bool:
        """Take in what has come of a hello, and answer it; return whether more is to come."""
        got = caller.got
        found = caller.tcp.recv(max(_HELLO_BYTES - len(got), len(_TAKEN)))
        got.extend(found)
        if not found or len(got) < _HELLO_BYTES:
            return bool(found)
        identity = bytes(got[len(_MAGIC) : len(_MAGIC) + _ID_BYTES])
        # A process connects once: what comes again is a stranger's copy.
        if identity.hex() in self._links:
            return False
        if len(got) == _HELLO_BYTES:
            expected = _MAGIC + identity + _code(self._key, b"hello", identity, self._identity)
            right = hmac.compare_digest(bytes(got), expected)
            if right:
                caller.tcp.send(_code(self._key, b"welcome", self._identity, identity))
            return right
        own, _ = named(caller.tcp.getsockname())
        link = Link(identity.hex(), caller.tcp, beats=own != caller.host)
        del self._callers[caller.tcp.fileno()]
        with self._changed:
            self._links[link.identity] = link
            self._changed.notify_all()
        return False


def _code(key: bytes, word: bytes, one: bytes, other: bytes) -> bytes:
    return hmac.new(key, word + one + other, hashlib.sha256).digest()


class _Own:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.links: Links | None = None


_own = _Own()


def acquire_links() -> Links:
    """Return this process's links, for one more group."""
    with _own.lock:
        if _own.links is None:
            _own.links = Links()
        _own.links.users += 1
        return _own.links


def release_links(links: Links) -> None:
    """Let go of the links for one group; they end with the last one."""
    if links.owner != os.getpid():
        return
    with _own.lock:
        links.users -= 1
        if links.users:
            return
        if _own.links is links:
            _own.links = None
    links.stop()


def _forked() -> None:
    # A copy of a socket would keep the connection open when the parent ends.
    links = _own.links
    _own.__init__()  # type: ignore[misc]
    if links is not None:
        links.close_sockets()


os.register_at_fork(after_in_child=_forked)

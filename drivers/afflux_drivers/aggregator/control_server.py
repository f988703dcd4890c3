"""The control channel's end at the aggregator: TCP connections and what limits them."""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque

from afflux_drivers.addresses import named
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.conversation import Client, Conversation
from afflux_drivers.aggregator.drop_log import DropLog
from afflux_drivers.aggregator.jobs import JobTable
from afflux_drivers.aggregator.peers import Peer, Peers, may_take
from afflux_drivers.aggregator.requests import RequestHandler
from afflux_drivers.sockets import set_up_tcp

__all__ = ["BACKLOG", "ControlServer"]

_log = logging.getLogger("afflux")

_LINE_BYTES = 4096
_ANSWERS_BYTES = 1 << 16
_CONNECTIONS = 512
_STRANGERS = 128
_IDLE_S = 30.0
_TICK_S = 1.0
_LOOK_EVERY_S = 0.25
_HELD_UP_S = 2.0
_CATCH_UP_S = 1.0
_ACCEPTED_AT_ONCE = 32

BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted: a flood of them must not lose those of
ranks, whose kernels would try again after a second only."""


class _Connection:
    """One client.

    Attributes:
        client: The connection's socket.
        peer: The address whose limits count it.
        talk: The conversation so far.
        incoming: Bytes of the next line, as far as they have come.
        lines: Whole lines that are still to be answered.
        outgoing: Bytes of answers that the client has not yet taken.
        events: The events for which the selector waits; 0 if it does not look at the socket.
        since: On the monotonic clock, when the last line of a known client was answered; of a
            stranger, when it came.
    """

    def __init__(self, client: socket.socket, peer: Peer, talk: Conversation) -> None:
        self.client = client
        self.peer = peer
        self.talk = talk
        self.incoming = bytearray()
        self.lines: deque[bytes] = deque()
        self.outgoing = bytearray()
        self.events = 0
        self.since = time.monotonic()

    @property
    def wanted(self) -> int:
        """The events worth waiting for: no more lines before those that are here are answered."""
        reading = not self.lines and not self.talk.over
        return (selectors.EVENT_READ if reading else 0) | (
            selectors.EVENT_WRITE if self.outgoing else 0
        )


def _prepare(client: socket.socket) -> None:
    # A host that vanishes must not hold its job for ever: neither while nothing is sent to it, nor
    # while something is that it does not acknowledge.
    set_up_tcp(client)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000)


def _has_ended(client: socket.socket) -> bool:
    """Return whether a client sends nothing more behind what was read."""
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


class ControlServer:
    """Serves the control channel in one thread. Nothing that a client does makes another wait.

    Lines, connections, unread answers and idle time are bounded. A connection that owns a job may
    idle for ever, unless the job has a lease, and the job ends with it. Connections of strangers
    are counted apart: however many there are, those of clients that are known stay, and new ones
    can become known. One that asks too fast is answered later, and nobody else is.

    Args:
        listener: A listening TCP socket; closed when serving ends.
        table: The jobs.
        handler: Answers the requests.
        lock: Held while the engine is used.
        access: The clients that may ask, and how much.
        drops: Reports the frames that the engine drops.
    """

    def __init__(
        self,
        listener: socket.socket,
        table: JobTable,
        handler: RequestHandler,
        lock: threading.Lock,
        access: Access,
        drops: DropLog,
    ) -> None:
        self._drops = drops
        self._listener, self._table, self._handler, self._lock = listener, table, handler, lock
        self._access = access
        self._peers = Peers(access.requests_per_s)
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._stopping = threading.Event()
        # In the order in which they came.
        self._strangers: dict[_Connection, None] = {}
        self._known: set[_Connection] = set()
        self._early: dict[_Connection, None] = {}
        self._look_at = 0.0
        self._heard, self._held_up = time.monotonic(), False
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until `stop` is called, then end all connections and their jobs."""
        try:
            while not self._stopping.is_set():
                found = self._selector.select(self._answer_early())
                self._note_hold_up(time.monotonic())
                for key, events in found:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.data is not None and key.data.events:
                        self._handle(key.data, events)
                self._drop_late()
        finally:
            for connection in self._known:
                self._say_goodbye(connection)
            for connection in [*self._strangers, *self._known]:
                self._drop(connection)
            self.close()

    def _say_goodbye(self, connection: _Connection) -> None:
        """End the jobs of a connection, and tell its client, who need not find out by silence."""
        with self._lock:
            over = [job for job in connection.talk.client.jobs if self._table.end_now(job)]
        if not over:
            return
        jobs = ", ".join(f"job {job.number}" for job in over)
        connection.outgoing += connection.talk.refuse(f"it is ending, and {jobs} with it")
        # One that does not take it now has its connection closed, and asks.
        with contextlib.suppress(OSError):
            connection.client.send(connection.outgoing)

    def _note_hold_up(self, now: float) -> None:
        """Note when the clients were listened to, and let no lease end before they are heard.

        This process may have been stopped, or have waited for a board that was silent.
        """
        held_up = now - self._heard > _HELD_UP_S
        # Renewals that have come meanwhile are read with this look at the sockets, those over new
        # connections with the next ones. But leases end also where each look takes long.
        if held_up and not self._held_up:
            self._look_at = now + _CATCH_UP_S
        self._heard, self._held_up = now, held_up

    def stop(self) -> None:
        """Make `serve` return soon. Thread-safe."""
        self._stopping.set()
        # The socket is closed if `serve` has returned.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def close(self) -> None:
        """Free the sockets, once `serve` has returned or if it was never called."""
        self._selector.close()
        for end in (self._listener, self._wake_in, self._wake_out):
            end.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, address = self._listener.accept()
                own = named(client.getsockname())
            except OSError:
                return
            _prepare(client)
            peer = self._peers.get(address[0])
            talk = Conversation(
                Client(peer.name),
                self._answer_known,
                own,
                self._access.secret,
                any_address=self._access.translated,
            )
            connection = _Connection(client, peer, talk)
            if len(self._strangers) >= _STRANGERS:
                self._drop(self._stranger_to_drop())
            self._strangers[connection] = None
            peer.strangers += 1
            self._watch(connection)

    def _stranger_to_drop(self) -> _Connection:
        """Return the oldest stranger of the peer that has most of them."""
        most = max(connection.peer.strangers for connection in self._strangers)
        return next(each for each in self._strangers if each.peer.strangers == most)

    def _answer_known(self, line: bytes, client: Client) -> bytes:
        with self._lock:
            return self._handler.answer(line, client)

    def _handle(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not self._read(connection):
                self._drop(connection)
                return
            self._send(connection)
        except OSError:
            self._drop(connection)

    def _read(self, connection: _Connection) -> bool:
        """Read and answer. Return whether the connection goes on."""
        try:
            data = connection.client.recv(_LINE_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        connection.incoming += data
        *lines, rest = bytes(connection.incoming).split(b"\n")
        connection.incoming = bytearray(rest)
        connection.lines += lines
        connection.talk.client.gone = _has_ended(connection.client)
        if max(map(len, (*lines, rest))) > _LINE_BYTES:
            return False
        self._answer(connection)
        return len(connection.outgoing) <= _ANSWERS_BYTES

    def _answer(self, connection: _Connection) -> None:
        """Answer the lines that have come, unless the peer asks too fast."""
        talk = connection.talk
        if connection.lines and self._access.secret is None and not talk.known:
            # Without a secret it only has to send a whole line.
            talk.known = True
            self._welcome(connection)
        while connection.lines and not talk.over:
            if talk.known and not self._peers.take(connection.peer):
                self._early[connection] = None
                return
            was_known = talk.known
            if was_known:
                connection.since = time.monotonic()
            connection.outgoing += talk.answer(connection.lines.popleft())
            if talk.known and not was_known:
                self._welcome(connection)
        connection.lines.clear()

    def _welcome(self, connection: _Connection) -> None:
        """Count a connection among those that are known, if its peer may have one more."""
        peer, share = connection.peer, self._access.peer_share
        connection.since = time.monotonic()
        del self._strangers[connection]
        peer.strangers -= 1
        self._known.add(connection)
        peer.connections += 1
        free = _CONNECTIONS - len(self._known) + 1
        if may_take(peer.connections - 1, free, share) == 0:
            connection.outgoing += connection.talk.refuse(
                f"peer {peer.name} has {peer.connections - 1} of {_CONNECTIONS} connections, and "
                f"{free} are left for others (--peer-share {share:g})"
            )

    def _answer_early(self) -> float:
        """Answer what has come too early and is due now; return how long to wait for the rest."""
        for connection in list(self._early):
            # To the end of the queue, if it has to go on waiting.
            del self._early[connection]
            self._answer(connection)
            if len(connection.outgoing) > _ANSWERS_BYTES:
                self._drop(connection)
                continue
            try:
                self._send(connection)
            except OSError:
                self._drop(connection)
        waits = [self._peers.due_s(connection.peer) for connection in self._early]
        return min(waits, default=_TICK_S)

    def _send(self, connection: _Connection) -> None:
        """Send what the client takes now, and wait for what comes next."""
        if connection.outgoing:
            with contextlib.suppress(BlockingIOError):
                sent = connection.client.send(connection.outgoing)
                del connection.outgoing[:sent]
        if connection.talk.over and not connection.outgoing:
            self._drop(connection)
        else:
            self._watch(connection)

    def _watch(self, connection: _Connection) -> None:
        wanted = connection.wanted
        if wanted == connection.events:
            return
        if not connection.events:
            self._selector.register(connection.client, wanted, connection)
        elif not wanted:
            self._selector.unregister(connection.client)
        else:
            self._selector.modify(connection.client, wanted, connection)
        connection.events = wanted

    def _drop(self, connection: _Connection) -> None:
        if connection in self._known:
            self._known.discard(connection)
            connection.peer.connections -= 1
        else:
            del self._strangers[connection]
            connection.peer.strangers -= 1
        self._early.pop(connection, None)
        if connection.events:
            self._selector.unregister(connection.client)
            connection.events = 0
        connection.client.close()
        left = connection.talk.client.jobs
        with self._lock:
            left = [job for job in left if self._table.find(job.number, job.key) is job]
            if left and not self._stopping.is_set():
                _log.warning(
                    "peer %s has ended without closing job %s: its rank 0 has died, or its host "
                    "is gone", connection.peer.name, ", ".join(str(job.number) for job in left),
                )  # fmt: skip
            for job in left:
                self._table.end(job)

    def _drop_late(self) -> None:
        """End what has taken too long: strangers that prove nothing, clients that say nothing.

        Besides, jobs whose leases have ended.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_S
        with self._lock:
            self._table.end_overdue(self._heard)
            self._drops.look(now)
        # A byte now and then does not count as progress: only whole lines do.
        late = [each for each in self._strangers if each.since < now - self._access.prove_s]
        late += [
            each
            for each in self._known
            if each.since < now - _IDLE_S and not each.talk.client.jobs and not each.lines
        ]
        for connection in late:
            self._drop(connection)

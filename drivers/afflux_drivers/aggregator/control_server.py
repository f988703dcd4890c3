"""The control channel's end at the aggregator: TCP connections, one JSON object per line."""

import contextlib
import logging
import selectors
import socket
import threading
import time

from afflux_drivers.aggregator.jobs import Job, JobTable, NoRoom
from afflux_drivers.aggregator.requests import RequestHandler

__all__ = ["ControlServer"]

_log = logging.getLogger("afflux")

_LINE_BYTES = 4096
_CONNECTIONS = 512
_IDLE_S = 30.0
_ANSWERS_BYTES = 1 << 16
_TICK_S = 1.0


class _Connection:
    """One client.

    Attributes:
        client: The connection's socket.
        incoming: Bytes of the next line, as far as they have come.
        outgoing: Bytes of answers that the client has not yet taken.
        jobs: Jobs that the client has created.
        active_at: When it last sent something, on the monotonic clock.
    """

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.jobs: list[Job] = []
        self.active_at = time.monotonic()


class ControlServer:
    """Serves the control channel in one thread. Nothing that a client does makes another wait.

    Lines, connections, unread answers and idle time are bounded. A connection that owns a job may
    idle for ever, and the job ends with it.

    Args:
        listener: A listening TCP socket; closed when serving ends.
        table: The jobs.
        handler: Answers the requests.
        lock: Held while the engine is used.
    """

    def __init__(
        self,
        listener: socket.socket,
        table: JobTable,
        handler: RequestHandler,
        lock: threading.Lock,
    ) -> None:
        self._listener, self._table, self._handler, self._lock = listener, table, handler, lock
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._stopping = threading.Event()
        self._connections: set[_Connection] = set()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until `stop` is called, then end all connections and their jobs."""
        try:
            while not self._stopping.is_set():
                for key, events in self._selector.select(_TICK_S):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.data is not None:
                        self._handle(key.data, events)
                self._drop_idle()
        finally:
            for connection in list(self._connections):
                self._drop(connection)
            self.close()

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
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        if len(self._connections) >= _CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that vanishes must not hold its job for ever.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, 10),
            (socket.TCP_KEEPINTVL, 5),
            (socket.TCP_KEEPCNT, 3),
        ):
            client.setsockopt(socket.IPPROTO_TCP, option, value)
        connection = _Connection(client)
        self._connections.add(connection)
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _handle(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not self._read(connection):
                self._drop(connection)
                return
            if connection.outgoing:
                sent = connection.client.send(connection.outgoing)
                del connection.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)
            return
        wanted = selectors.EVENT_READ
        if connection.outgoing:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(connection.client, wanted, connection)

    def _read(self, connection: _Connection) -> bool:
        """Read and answer. Return whether the connection goes on."""
        data = connection.client.recv(_LINE_BYTES)
        if not data:
            return False
        connection.active_at = time.monotonic()
        connection.incoming += data
        *lines, rest = bytes(connection.incoming).split(b"\n")
        connection.incoming = bytearray(rest)
        for line in lines:
            with self._lock:
                connection.outgoing += self._handler.answer(line, connection.jobs)
        return len(rest) <= _LINE_BYTES and len(connection.outgoing) <= _ANSWERS_BYTES

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.client)
        connection.client.close()
        with self._lock:
            for job in connection.jobs:
                try:
                    self._table.destroy(job)
                except NoRoom as error:
                    # Its slots stay taken. The other clients go on.
                    _log.error("job %d of a client that has left: %s", job.number, error)

    def _drop_idle(self) -> None:
        limit = time.monotonic() - _IDLE_S
        for connection in [c for c in self._connections if c.active_at < limit and not c.jobs]:
            self._drop(connection)

"""The data path of the software engine: C++ from socket to socket, one thread for each share."""

import socket
import threading
from collections.abc import Sequence
from typing import Any

from afflux_drivers import _native
from afflux_drivers.addresses import named
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.parent_ports import bound_parent_port
from afflux_drivers.control.tickets import ParentJob

__all__ = ["SocketPath"]


class SocketPath:
    """Serves an engine in software on sockets of one address and port. A `DataPath`.

    Args:
        engine: The engine.
        sockets: One for each of its shares. With several, the kernel gives each packet to the
            socket of the share that has its slot (SO_REUSEPORT).
    """

    def __init__(self, engine: SoftEngine, sockets: Sequence[socket.socket]) -> None:
        self._address = named(sockets[0].getsockname())
        self._server = _native.SocketServer(engine, [each.fileno() for each in sockets])
        self._shares = len(sockets)

    def serve(self) -> None:
        """Serve each share in a thread of its own; this one stays free for signals."""
        server = self._server
        failures: list[BaseException] = []

        def serve(share: int) -> None:
            try:
                server.serve(share)
            except BaseException as error:
                failures.append(error)
            finally:
                # One alone is of no use.
                server.stop()

        threads = [
            threading.Thread(target=serve, args=(share,), name=f"afflux-serve-{share}")
            for share in range(self._shares)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            server.stop()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def stop(self) -> None:
        """Make `serve` return soon. Thread-safe."""
        self._server.stop()

    def wake(self) -> None:
        """Make the engine send what a command has caused. Thread-safe."""
        self._server.wake()

    def open(self, job: int, parent: ParentJob) -> None:
        """Open the port on which the parent of a job answers. Thread-safe.

        Raises:
            PortTaken: It is not free; then a job of another number may have one.
            OSError: It cannot lead to the parent.
        """
        # The server keeps a copy.
        with bound_parent_port(self._address, job, parent) as udp:
            self._server.open_parent_port(job, udp.fileno())

    def close(self, job: int) -> None:
        """Close the port of a job, if it is open. Thread-safe."""
        self._server.close_parent_port(job)

    def close_all(self) -> None:
        """Close the server's copies of the sockets, once `serve` has returned."""
        self._server.close()

    def traffic(self) -> dict[str, Any]:
        """Return what has passed the sockets so far.

        Keys: `received` and `sent`, each with `calls`, `messages`, `datagrams` and `bytes`;
        `handed_off`, packets that were handed from thread to thread; `waits`, each of which was a
        system call more.
        """
        return self._server.traffic()

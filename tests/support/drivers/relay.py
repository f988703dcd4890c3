"""A relay of datagrams, as a network between a worker and its aggregator."""

import selectors
import socket
import threading
import time

__all__ = ["Relay"]

_LONGEST = 1 << 16
_GLANCE_S = 0.02


class Relay:
    """Passes one worker's datagrams on from a port of its own, which `move` changes.

    Attributes:
        port: Where the worker finds it.
        sent: All that the worker has sent, in order.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._inside.bind(("127.0.0.1", 0))
        self.port = self._inside.getsockname()[1]
        self._outside = self._connected()
        self._in_use: socket.socket | None = None
        self.sent: list[bytes] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def move(self) -> None:
        """Send from another port from now on; packets to the old one are lost."""
        self._outside = self._connected()
        # The thread may still be waiting with the old one.
        while self._in_use is not self._outside:
            time.sleep(_GLANCE_S / 4)

    def send_again(self, data: bytes) -> None:
        """Send a datagram from where those of the worker come from."""
        self._outside.send(data)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._inside.close()

    def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.connect(self._target)
        return made

    def _run(self) -> None:
        worker = None
        while not self._stopping.is_set():
            self._in_use = outside = self._outside
            with selectors.DefaultSelector() as selector:
                for each in (self._inside, outside):
                    selector.register(each, selectors.EVENT_READ)
                for key, _ in selector.select(_GLANCE_S):
                    if key.fileobj is self._inside:
                        data, worker = self._inside.recvfrom(_LONGEST)
                        self.sent.append(data)
                        outside.send(data)
                    elif worker is not None:
                        self._inside.sendto(outside.recv(_LONGEST), worker)
        self._outside.close()

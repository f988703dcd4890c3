"""A proxy of UDP and TCP in front of an aggregator, whose ports a test can do things to.

with aggregator() as url, Proxy(url) as proxy:
    ... proxy.url
"""

import contextlib
import selectors
import socket
import threading
from typing import Self

from afflux.group.settings.aggregator_url import AggregatorUrl

__all__ = ["Address", "Proxy"]

Address = tuple[str, int]

_LONGEST = 1 << 16
_GLANCE_S = 0.02


class Proxy:
    """Passes all on, from ports of its own: one for each stream of UDP.

    Args:
        url: Of the aggregator.
        inside: Address where workers find it.
        outside: Address that the aggregator sees; empty: whichever the system takes.

    Attributes:
        url: Where workers find it.
    """

    def __init__(self, url: str, inside: str, outside: str = "") -> None:
        target = AggregatorUrl.parse(url)
        self._target = target.host, target.port
        self._own = (outside, 0)
        self._selector = selectors.DefaultSelector()
        self._streams: dict[Address, socket.socket] = {}
        self._ends: list[socket.socket] = []
        # Ports keep their numbers, as an aggregator's answer gives its own.
        own = inside, self._target[1]
        self._tcp = socket.create_server(own)
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(own)
        self.url = "{}://{}:{}".format(target.scheme, *own)
        self._selector.register(self._tcp, selectors.EVENT_READ, self._accept)
        self._selector.register(self._udp, selectors.EVENT_READ, self._receive)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._selector.close()
        self.close_ports()

    def close_ports(self) -> None:
        """Refuse all from now on."""
        for each in (self._tcp, self._udp, *self._streams.values(), *self._ends):
            each.close()

    def from_worker(self, data: bytes, source: Address) -> None:
        """Pass a worker's datagram on."""
        if source not in self._streams:
            self._streams[source] = self._open(source)
        self._streams[source].send(data)

    def to_worker(self, data: bytes, worker: Address) -> None:
        """Pass a datagram on to a worker."""
        self._udp.sendto(data, worker)

    def opened(self, stream: socket.socket) -> None:
        """Learn of a new stream."""

    def connected(self, inside: socket.socket, outside: socket.socket) -> None:
        """Learn of a new connection: its ends at the worker and at the aggregator."""

    def passing(self, data: bytes, source: socket.socket) -> bytes:
        """Return what is to be passed on of data that have come at an end of a connection."""
        return data

    def goes_on(self) -> bool:
        """Return whether to go on, after all that has come has been passed on."""
        return True

    def forget_streams(self) -> None:
        """Let the next datagram of each worker begin a new stream."""
        for each in self._streams.values():
            self._selector.unregister(each)
            each.close()
        self._streams.clear()

    def _run(self) -> None:
        while not self._stopping.is_set() and self.goes_on():
            for key, _ in self._selector.select(_GLANCE_S):
                # Something that is closed meanwhile has no more to say.
                with contextlib.suppress(OSError):
                    key.data()

    def _receive(self) -> None:
        self.from_worker(*self._udp.recvfrom(_LONGEST))

    def _open(self, source: Address) -> socket.socket:
        stream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stream.bind(self._own)
        stream.connect(self._target)
        self.opened(stream)

        def back() -> None:
            self.to_worker(stream.recv(_LONGEST), source)

        self._selector.register(stream, selectors.EVENT_READ, back)
        return stream

    def _accept(self) -> None:
        inside, _ = self._tcp.accept()
        outside = socket.create_connection(self._target, 5.0, self._own)
        self._ends += [inside, outside]
        self.connected(inside, outside)
        for one, other in ((inside, outside), (outside, inside)):
            self._selector.register(
                one, selectors.EVENT_READ, lambda a=one, b=other: self._pass(a, b)
            )

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        data = source.recv(_LONGEST)
        if data:
            target.sendall(self.passing(data, source))
            return
        self._selector.unregister(source)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

"""Address translation as a router does it: many workers have one address, with a port for each.

with aggregator() as url, Translator(url) as translator:
    ... translator.url, from behind it
    translator.rebind()
"""

import contextlib
import selectors
import socket
import threading

from afflux.group.settings.aggregator_url import AggregatorUrl

__all__ = ["Translator"]

_LONGEST = 1 << 16
_GLANCE_S = 0.05
_INSIDE = "127.0.0.66"
_OUTSIDE = "127.0.0.77"
"""The one address that is seen outside."""

_REBIND = b"rebind"


class Translator:
    """Passes UDP and TCP on between workers and an aggregator, from ports of its own.

    Args:
        url: Of the aggregator.

    Attributes:
        url: Where workers find it.
        ports: Outside ports of the UDP streams so far.
    """

    def __init__(self, url: str) -> None:
        (self._target,) = AggregatorUrl.parse(url).addresses
        self.ports: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._outside: dict[tuple[str, int], socket.socket] = {}
        self._ends: list[socket.socket] = []
        # Ports keep their numbers, as an aggregator's answer gives its own.
        own = _INSIDE, self._target[1]
        self._tcp = socket.create_server(own)
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(own)
        self.url = "udp://{}:{}".format(*own)
        self._selector.register(self._tcp, selectors.EVENT_READ, self._accept)
        self._selector.register(self._udp, selectors.EVENT_READ, self._from_inside)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Translator":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._selector.close()
        for each in (self._tcp, self._udp, *self._outside.values(), *self._ends):
            each.close()

    @staticmethod
    def rebind(url: str) -> None:
        """Let the one at this URL forget all streams: the next packet of each gets a new port."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(_REBIND, AggregatorUrl.parse(url).addresses[0])

    def _run(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(_GLANCE_S):
                # Something that is closed meanwhile has no more to say.
                with contextlib.suppress(OSError):
                    key.data()

    def _from_inside(self) -> None:
        data, source = self._udp.recvfrom(_LONGEST)
        if data == _REBIND:
            for each in self._outside.values():
                self._selector.unregister(each)
                each.close()
            self._outside.clear()
            return
        if source not in self._outside:
            outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            outside.bind((_OUTSIDE, 0))
            outside.connect(self._target)
            self._outside[source] = outside
            self.ports.append(outside.getsockname()[1])

            def back() -> None:
                self._udp.sendto(outside.recv(_LONGEST), source)

            self._selector.register(outside, selectors.EVENT_READ, back)
        self._outside[source].send(data)

    def _accept(self) -> None:
        inside, _ = self._tcp.accept()
        outside = socket.create_connection(self._target, 5.0, (_OUTSIDE, 0))
        self._ends += [inside, outside]
        for one, other in ((inside, outside), (outside, inside)):
            self._selector.register(
                one, selectors.EVENT_READ, lambda a=one, b=other: self._pass(a, b)
            )

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        data = source.recv(_LONGEST)
        if data:
            target.sendall(data)
            return
        self._selector.unregister(source)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

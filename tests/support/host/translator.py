"""Address translation as a router does it: many workers have one address, with a port for each.

with aggregator() as url, Translator(url) as translator:
    ... translator.url, from behind it
    translator.rebind()
"""

import socket

from afflux.group.settings.aggregator_url import AggregatorUrl
from tests.support.host.proxy import Address, Proxy

__all__ = ["Translator"]

_INSIDE = "127.0.0.66"
_OUTSIDE = "127.0.0.77"
"""The one address that is seen outside."""

_REBIND = b"rebind"


class Translator(Proxy):
    """Passes UDP and TCP on between workers and an aggregator, from ports of its own.

    Args:
        url: Of the aggregator.

    Attributes:
        ports: Outside ports of the UDP streams so far.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, _INSIDE, _OUTSIDE)
        self.ports: list[int] = []

    @staticmethod
    def rebind(url: str) -> None:
        """Let the one at this URL forget all streams: the next packet of each gets a new port."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(_REBIND, AggregatorUrl.parse(url).addresses[0])

    def from_worker(self, data: bytes, source: Address) -> None:
        """Pass a worker's datagram on, or forget all streams."""
        if data == _REBIND:
            self.forget_streams()
        else:
            super().from_worker(data, source)

    def opened(self, stream: socket.socket) -> None:
        """Note its port."""
        self.ports.append(stream.getsockname()[1])

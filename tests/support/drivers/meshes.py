"""Ranks of one process that connect with one another, each in a thread of its own."""

import socket
import threading
from contextlib import ExitStack
from itertools import chain
from typing import Any

from afflux_drivers.streams import connecting
from afflux_drivers.streams.strangers import Listener

__all__ = ["GROUP", "SECRET", "TIMEOUT_S", "Meshes", "is_connected", "open_ports"]

SECRET = b"correct horse battery staple"
GROUP = "00f1e2d3c4b5a697"

TIMEOUT_S = 20.0
"""If a test sets no other."""


class Meshes:
    """Ranks with a listener each, and what becomes of them.

    Args:
        ranks: Number of ranks.
        host: Own address.
        group: What each rank passes to `connect_mesh`: secret, group, links, timeout_s.

    Attributes:
        listeners: By rank.
        endpoints: Of these.
        outcomes: By rank, the sockets or the exception; only of those that have ended.
    """

    def __init__(self, ranks: int, host: str = "127.0.0.1", **group: Any) -> None:
        self._stack = ExitStack()
        self.listeners = open_ports(self._stack, ranks, host)
        self.endpoints = [each.endpoint for each in self.listeners]
        self.outcomes: dict[int, list[list[socket.socket]] | BaseException] = {}
        self._group = {
            "secret": SECRET,
            "group": GROUP,
            "links": 1,
            "timeout_s": TIMEOUT_S,
            **group,
        }
        self._threads: dict[int, threading.Thread] = {}

    def __enter__(self) -> "Meshes":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        for outcome in self.outcomes.values():
            if isinstance(outcome, list):
                for tcp in chain.from_iterable(outcome):
                    tcp.close()
        self._stack.close()

    def start(self, *ranks: int, **changed: Any) -> None:
        """Have ranks connect, in the background; `changed` is what they pass otherwise."""
        for rank in ranks:
            arguments = (self.listeners[rank], rank, changed)
            thread = threading.Thread(target=self._connect, args=arguments)
            self._threads[rank] = thread
            thread.start()

    def wait(self, *ranks: int) -> list[Any]:
        """Wait until ranks, or all, have connected or failed, and return their outcomes."""
        for rank in ranks or list(self._threads):
            self._threads[rank].join()
        return [self.outcomes[rank] for rank in ranks or self._threads]

    def _connect(self, listener: Listener, rank: int, changed: dict[str, Any]) -> None:
        arguments = {"endpoints": self.endpoints, **self._group, **changed}
        try:
            self.outcomes[rank] = connecting.connect_mesh(listener, rank, **arguments)
        except BaseException as error:
            # Its traceback would keep sockets alive that nobody has closed.
            self.outcomes[rank] = error.with_traceback(None)


def open_ports(stack: ExitStack, ranks: int, host: str) -> list[Listener]:
    """Return so many listeners, which the stack closes."""
    return [stack.enter_context(Listener(host)) for _ in range(ranks)]


def is_connected(outcomes: list[Any], links: int) -> bool:
    """Return whether each two ranks have so many connections, and all lead to where they should."""
    for rank, mesh in enumerate(outcomes):
        assert isinstance(mesh, list), mesh
        assert [len(each) for each in mesh] == [
            0 if peer == rank else links for peer in range(len(outcomes))
        ]
        for peer, sockets in enumerate(mesh):
            for link, tcp in enumerate(sockets):
                tcp.sendall(bytes([rank, peer, link]))
    for rank, mesh in enumerate(outcomes):
        for peer, sockets in enumerate(mesh):
            for link, tcp in enumerate(sockets):
                tcp.settimeout(5)
                if tcp.recv(4) != bytes([peer, rank, link]):
                    return False
    return True

"""Aggregators for tests: real ones in a thread, and false ones that answer wrongly or never."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.aggregator.streams_server import StreamsServer


@contextlib.contextmanager
def aggregator(workers: int = 64, lanes: int = 16, may_move: bool = False) -> Iterator[str]:
    """Yield the URL of a software engine that lives as long as the block."""
    engine = SoftEngine(workers=workers, lanes=lanes, jobs=8, slots=512)
    server = AggregatorServer(engine, may_move=may_move)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "udp://{}:{}".format(*server.address)
    finally:
        server.stop()
        thread.join()


@contextlib.contextmanager
def streams_aggregator(**options: Any) -> Iterator[str]:
    """Yield the URL of an aggregator of streams that lives as long as the block.

    Args:
        options: Of `StreamsServer`.
    """
    server = StreamsServer(**options)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join()


@contextlib.contextmanager
def answering(answer: dict[str, Any] | None) -> Iterator[str]:
    """Yield the URL of something that gives every request the same answer, or none at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_connections = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_connections.append(connection)
            if answer is not None:
                with contextlib.suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(json.dumps(answer).encode() + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"udp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # Wakes accept, which close alone does not.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in open_connections:
            connection.close()


def closed_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

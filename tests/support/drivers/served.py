"""An aggregator on a loopback socket, in a thread of the test's process."""

import threading

from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.board import Board
from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.aggregator.job_journal import JobJournal
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.sockets import MulticastGroup

__all__ = ["Served"]


class Served:
    """A server that runs in a thread of the test's process."""

    def __init__(
        self,
        engine: Engine | Board,
        group: MulticastGroup | None = None,
        access: Access | None = None,
        may_move: bool = False,
        journal: JobJournal | None = None,
        port: int = 0,
    ) -> None:
        self.server = AggregatorServer(
            engine, port=port, group=group, access=access, may_move=may_move, journal=journal
        )
        self.address = self.server.address
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()

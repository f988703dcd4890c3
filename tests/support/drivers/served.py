"""An aggregator on a loopback socket, in a thread of the test's process."""

import threading

from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.sockets import MulticastGroup

__all__ = ["Served"]


class Served:
    """A server that runs in a thread of the test's process."""

    def __init__(
        self,
        engine: Engine,
        group: MulticastGroup | None = None,
        access: Access | None = None,
        may_move: bool = False,
    ) -> None:
        self.server = AggregatorServer(engine, group=group, access=access, may_move=may_move)
        self.address = self.server.address
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()

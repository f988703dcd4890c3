"""A process is stopped at a chosen result packet, for a while: an aggregator, or a rank.

A proxy in front of the aggregator, so that a test says at which packet that is.

with Pausing(url, 0, 40, process_of=lambda: pid, pause_s=2.5) as pausing:
    ... pausing.url
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from afflux_hdl.contract import wire
from tests.support.host.proxy import Address, Proxy

__all__ = ["Pausing"]

_INSIDE = "127.0.0.98"


class Pausing(Proxy):
    """Stops a process when a rank has got so many results, and lets it go on after a while.

    Args:
        url: Of the aggregator.
        rank: Whose results are counted.
        results: How many, in all operations.
        process_of: Returns the process that is stopped then.
        pause_s: For how long.
        over: A file that is there when the pause is over; with `holds`, when what was held, too,
            has been passed on.
        holds: Whether results for the other ranks are held up from the stop to the end of the
            pause: the network has them while the aggregator says nothing.

    Attributes:
        stopped_s: When the process was stopped, by the monotonic clock; None before.
        late: Results that were passed on after the pause.
    """

    def __init__(
        self,
        url: str,
        rank: int,
        results: int,
        process_of: Callable[[], int],
        pause_s: float,
        over: Path,
        holds: bool = False,
    ) -> None:
        super().__init__(url, _INSIDE)
        self._rank = rank
        self._left = results
        self._process_of = process_of
        self._pause_s = pause_s
        self._over = over
        self._holds = holds
        self._held: list[tuple[bytes, Address]] = []
        self._stopped = 0
        self.stopped_s: float | None = None
        self.late = 0

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        # A test that has failed leaves nothing behind that is stopped.
        self._continue()

    def goes_on(self) -> bool:
        """Let the process go on when it is time."""
        if self._stopped and time.monotonic() - (self.stopped_s or 0.0) >= self._pause_s:
            self._continue()
            held, self._held = self._held, []
            for data, worker in held:
                self.to_worker(data, worker)
            self._over.touch()
        return True

    def to_worker(self, data: bytes, worker: Address) -> None:
        """Pass a datagram on; count results, and stop the process at the chosen one."""
        if data[0] & 0xF != wire.Type.RESULT:
            super().to_worker(data, worker)
            return
        if self.stopped_s is not None and not self._stopped:
            self.late += 1
        if self._holds and self._stopped and data[3] != self._rank:
            self._held.append((data, worker))
            return
        super().to_worker(data, worker)
        if data[3] == self._rank:
            self._left -= 1
            if self._left == 0:
                self._stopped = self._process_of()
                os.kill(self._stopped, signal.SIGSTOP)
                self.stopped_s = time.monotonic()

    def _continue(self) -> None:
        stopped, self._stopped = self._stopped, 0
        if stopped:
            os.kill(stopped, signal.SIGCONT)

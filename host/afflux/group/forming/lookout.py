"""Looks for aggregators that answer again, or now for the first time, while ranks sum without.

Tested: `tests/host/test_fail_back.py`.
"""

import logging
import socket
import threading
from collections.abc import Callable, Sequence

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux_drivers.control.client import describe
from afflux_drivers.errors import AffluxError

__all__ = ["AggregatorLookout", "pause_before"]

_log = logging.getLogger("afflux")

_ANSWER_S = 2.0

_LONGEST_PAUSE_S = 300.0
"""Each attempt that fails makes the ranks wait for one another, so they become rarer."""

_MOST_DOUBLINGS = 32
"""A job of weeks may see more attempts than a float has room for."""

_JOIN_S = 1.0


def pause_before(attempt: int, every_s: float) -> float:
    """Return how many seconds pass before the first look of an attempt."""
    doublings = min(attempt - 1, _MOST_DOUBLINGS)
    return max(every_s, min(every_s * 2.0**doublings, _LONGEST_PAUSE_S))


class AggregatorLookout:
    """See `afflux.group.reducers.fail_back.Lookout`.

    Args:
        aggregators: Those that may come, the one to be preferred first.
        settings: Of rank 0.
        offer: Returns what ranks must know to join one.
    """

    def __init__(
        self,
        aggregators: Sequence[AggregatorUrl],
        settings: Settings,
        offer: Callable[[AggregatorUrl], str],
    ) -> None:
        self._aggregators = aggregators
        self._settings = settings
        self._offer = offer
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, attempt: int, came: Callable[[str], None]) -> None:
        """Look each AFFLUX_FAIL_BACK seconds, and less often the more attempts have failed."""
        every_s = self._settings.fail_back_s
        arguments = pause_before(attempt, every_s), every_s, came
        name = "afflux-lookout"
        self._thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _run(self, pause_s: float, every_s: float, came: Callable[[str], None]) -> None:
        while not self._closed.wait(pause_s):
            pause_s = every_s
            for each in self._aggregators:
                if self._closed.is_set() or not self._answers(each):
                    continue
                try:
                    came(self._offer(each))
                except (AffluxError, RuntimeError):
                    # Without the store the ranks cannot agree.
                    _log.debug("%s answers, and the ranks do not hear of it", each, exc_info=True)
                    break
                return

    def _answers(self, url: AggregatorUrl) -> bool:
        timeout_s = min(_ANSWER_S, self._settings.connect_timeout_s)
        try:
            if url.scheme == "streams":
                socket.create_connection((url.host, url.port), timeout_s).close()
                return True
            secret = self._settings.control_secret()
            for address in url.addresses:
                describe(address, timeout_s, secret)
        except (AffluxError, OSError):
            _log.debug("%s does not answer", url, exc_info=True)
            return False
        return True

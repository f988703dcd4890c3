"""Renews the leases of jobs, in a thread of the process that has created them."""

import logging
import threading
import time
from collections.abc import Sequence

from afflux_drivers.control.client import JobLease
from afflux_drivers.errors import AffluxError, AggregatorRefused

__all__ = ["Renewal"]

_log = logging.getLogger("afflux")

_RENEWALS = 4
"""In the time of a lease, so that three may fail."""

_AGAIN_S = 1.0
_ANSWER_S = 5.0
"""For an answer: `JobLease.close` waits for it."""


class Renewal:
    """Renews leases until it is stopped, or one of their jobs is over.

    While an aggregator cannot be reached it goes on trying: the jobs of a board live on without
    their controller, and the board's next one gives them a lease to be renewed.

    Args:
        leases: Those that were granted no time are left alone.

    Attributes:
        lost: Why one of the jobs is over; None if none is.
    """

    def __init__(self, leases: Sequence[JobLease]) -> None:
        self._leases = [lease for lease in leases if lease.lease_s]
        self._stopping = threading.Event()
        self.lost: str | None = None
        if not self._leases:
            return
        self._every_s = min(lease.lease_s for lease in self._leases) / _RENEWALS
        # It must not keep the process: the job of one that ends ends with its connection.
        self._thread = threading.Thread(target=self._run, name="afflux-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Renew no more. May be called more than once; waits for an answer that is under way."""
        self._stopping.set()
        if self._leases:
            self._thread.join(_ANSWER_S)

    def _run(self) -> None:
        silent_since: float | None = None
        while not self._stopping.wait(self._every_s if silent_since is None else _AGAIN_S):
            failure: Exception | None = None
            for lease in self._leases:
                try:
                    lease.renew(min(self._every_s, _ANSWER_S))
                except AggregatorRefused as error:
                    if not self._stopping.is_set():
                        self.lost = f"the job is over: {error}"
                        _log.error("%s", self.lost)
                    return
                except (AffluxError, OSError) as error:
                    # The others have their turn.
                    failure = error
            if failure is not None:
                if silent_since is None:
                    silent_since = time.monotonic()
                    _log.warning(
                        "the lease of a job cannot be renewed, which is tried again: %s", failure
                    )
            elif silent_since is not None:
                _log.warning(
                    "the lease of a job is renewed again, after %.0f s",
                    time.monotonic() - silent_since,
                )
                silent_since = None

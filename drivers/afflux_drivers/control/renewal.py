"""Renews the leases of jobs, and notices their end, in a thread of the process that made them."""

import logging
import os
import select
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

_WITH_ITS_PROCESS = ("soft", "rtl")
"""Engines that end with the process that has the control channel; a board goes on without it."""


class Renewal:
    """Renews leases until it is stopped, or one of their jobs is over.

    A job is over if its aggregator says so, of its own accord or in answer to a renewal; and if its
    engine is a process that has ended, or that could not be asked for as long as the lease.

    While another aggregator cannot be reached it goes on trying: the jobs of a board live on
    without their controller, and the board's next one gives them a lease to be renewed.

    Args:
        leases: Those that were granted no time are left alone.

    Attributes:
        lost: Why one of the jobs is over; None if none is.
    """

    def __init__(self, leases: Sequence[JobLease]) -> None:
        self._leases = [lease for lease in leases if lease.lease_s]
        self._stopping = threading.Event()
        # By lease that cannot be renewed: since when.
        self._silent: dict[JobLease, float] = {}
        self.lost: str | None = None
        if not self._leases:
            return
        self._every_s = min(lease.lease_s for lease in self._leases) / _RENEWALS
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        # It must not keep the process: the job of one that ends ends with its connection.
        self._thread = threading.Thread(target=self._run, name="afflux-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Renew no more. May be called more than once; waits for an answer that is under way."""
        if not self._leases or self._stopping.is_set():
            return
        self._stopping.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join(_ANSWER_S)
        if not self._thread.is_alive():
            os.close(self._wake)

    def _run(self) -> None:
        due = time.monotonic() + self._every_s
        while True:
            spoken = self._wait(due)
            if self._stopping.is_set():
                return
            is_due = time.monotonic() >= due
            for lease in self._leases:
                self.lost = self._look_after(lease, lease in spoken, is_due)
                if self.lost is not None:
                    if not self._stopping.is_set():
                        _log.error("%s", self.lost)
                    return
            if is_due or self._silent:
                wait_s = _AGAIN_S if self._silent else self._every_s
                due = time.monotonic() + wait_s

    def _wait(self, until: float) -> list[JobLease]:
        """Wait until a time, or until there is something to do; return whose connections speak."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        connections = {lease.fileno(): lease for lease in self._leases}
        connections.pop(-1, None)
        for number in connections:
            poll.register(number, select.POLLIN)
        found = poll.poll(max(0.0, 1e3 * (until - time.monotonic())))
        return [connections[number] for number, _ in found if number in connections]

    def _look_after(self, lease: JobLease, speaks: bool, is_due: bool) -> str | None:
        """Heed and renew a lease; return why its job is over, None if it is not known to be."""
        try:
            if speaks:
                try:
                    lease.heed()
                except AggregatorRefused:
                    raise
                except AffluxError:
                    # Over another connection, at once: it tells whether the aggregator is there.
                    is_due = True
            if is_due:
                lease.renew(min(self._every_s, _ANSWER_S))
                self._note_renewed(lease)
        except AggregatorRefused as error:
            return f"the job is over: {error}"
        except (AffluxError, OSError) as error:
            # The others have their turn.
            return self._judge(lease, error)
        return None

    def _judge(self, lease: JobLease, failure: Exception) -> str | None:
        """Note that a lease cannot be renewed; return why its job is over, if it must be."""
        now = time.monotonic()
        if lease not in self._silent:
            self._silent[lease] = now
            _log.warning("the lease of a job cannot be renewed, which is tried again: %s", failure)
        if lease.ticket.engine not in _WITH_ITS_PROCESS:
            return None
        if isinstance(failure.__cause__, ConnectionRefusedError):
            return f"the job is over: the aggregator has ended: {failure}"
        silent_s = now - self._silent[lease]
        if silent_s > lease.lease_s:
            return (
                f"the job is over: its lease could not be renewed for {silent_s:.0f} s: {failure}"
            )
        return None

    def _note_renewed(self, lease: JobLease) -> None:
        since = self._silent.pop(lease, None)
        if since is not None:
            _log.warning(
                "the lease of a job is renewed again, after %.0f s", time.monotonic() - since
            )

"""Whether an aggregator from which a worker hears nothing is still there (protocol, section 10.3).

One that waits for a slow rank answers JOINs, so a worker that hears nothing sends some. Silence
alone says little: packets get lost, and a process may be stopped for a while. Two answers say more:

* REFUSED, with the job's key, which nobody else knows: the aggregator has restarted, or has ended
  the job.
* "Port unreachable" from the aggregator's host, which anybody could forge. So it counts only if
  nothing else comes, and if the host refuses a connection to the control channel's port, too: what
  says so has seen the handshake's numbers. A process that is stopped has a kernel that accepts.
"""

from afflux_drivers.addresses import authority, connect_tcp
from afflux_drivers.errors import AggregatorUnreachable
from afflux_drivers.worker.joining import refused_because
from afflux_drivers.worker.line import Line
from afflux_hdl.contract import wire

__all__ = ["LOOK_S", "LivenessCheck"]

QUIET_S = 0.25
"""After so long without a packet an aggregator is asked whether it is there, and then as often."""

LOOK_S = 0.1
"""How often there is a look whether that is due."""

_UNANSWERED = 4
"""JOINs in a row without an answer, after which an aggregator is called silent."""

_CONNECT_S = 0.25

_LOST_JOB = (wire.Refusal.JOB, wire.Refusal.KEY)


class LivenessCheck:
    """Asks one aggregator for signs of life while operations wait for it.

    Args:
        line: To the aggregator.
        since: When the waiting began, in seconds of the monotonic clock.
    """

    def __init__(self, line: Line, since: float) -> None:
        self._line = line
        self._since = since
        self._asked = 0

    def silent_s(self, now: float) -> float:
        """Return for how long nothing has come."""
        return now - max(self._since, self._line.session.heard_at)

    @property
    def unanswered(self) -> bool:
        """Whether it has not answered `_UNANSWERED` JOINs in a row.

        Time alone does not tell: this process may have been stopped meanwhile.
        """
        return self._asked >= _UNANSWERED

    def look(self, now: float) -> None:
        """Ask once more if it is silent; judge what has come instead. Call it every `LOOK_S`.

        Raises:
            AggregatorUnreachable: It has ended, or does not know the job any more.
        """
        line, session = self._line, self._line.session
        silent_s = self.silent_s(now)
        if silent_s < QUIET_S:
            self._asked = 0
            return
        if silent_s < QUIET_S * (self._asked + 1):
            return
        # A packet that is here already answers an earlier one.
        if self._asked:
            if session.refusal in _LOST_JOB:
                raise AggregatorUnreachable(
                    f"rank {session.rank}: the aggregator at {line.peer} has restarted, or has "
                    f"ended the job, and no longer knows job {session.ticket.job}: it refuses its "
                    f"worker ({refused_because(session.refusal)})"
                )
            if line.refused and _refuses_connections(*session.ticket.control):
                raise AggregatorUnreachable(
                    f"rank {session.rank}: the aggregator at {line.peer} has ended: it does not "
                    f"answer since {silent_s:.1f} s, and its host refuses its port and that of its "
                    f"control channel, {authority(*session.ticket.control)}"
                )
        self._asked += 1
        line.probe_liveness()

    def silence(self, now: float) -> str:
        """Return a message's part that the aggregator has not answered for so long."""
        refusal = self._line.session.refusal
        but = f" but by a refusal ({refused_because(refusal)})" if refusal else ""
        return (
            f"the aggregator at {self._line.peer} does not answer since "
            f"{self.silent_s(now):.1f} s{but}{self._line.if_refused}"
        )


def _refuses_connections(host: str, port: int) -> bool:
    try:
        tcp, _ = connect_tcp(host, port, _CONNECT_S)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    tcp.close()
    return False

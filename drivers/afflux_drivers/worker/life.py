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

__all__ = ["QUIET_S", "confirm_life", "silence"]

QUIET_S = 0.25
"""After so long without a packet an aggregator is asked whether it is there, and then as often."""

_CONNECT_S = 0.25

_LOST_JOB = (wire.Refusal.JOB, wire.Refusal.KEY)


def confirm_life(line: Line, silent_s: float) -> None:
    """Ask an aggregator for a sign of life if it has been silent; judge what has come instead.

    To be called every `QUIET_S` while an operation waits.

    Raises:
        AggregatorUnreachable: If it has ended, or does not know the job any more.
    """
    if silent_s < QUIET_S:
        return
    session = line.session
    # Judged only when the second JOIN is due: what is here answers the first one.
    if silent_s >= 2 * QUIET_S:
        if session.refusal in _LOST_JOB:
            raise AggregatorUnreachable(
                f"rank {session.rank}: the aggregator at {line.peer} has restarted, or has ended "
                f"the job, and no longer knows job {session.ticket.job}: it refuses its worker "
                f"({refused_because(session.refusal)})"
            )
        if line.refused and _refuses_connections(*session.ticket.control):
            raise AggregatorUnreachable(
                f"rank {session.rank}: the aggregator at {line.peer} has ended: it does not answer "
                f"since {silent_s:.1f} s, and its host refuses its port and that of its control "
                f"channel, {authority(*session.ticket.control)}"
            )
    line.ask_for_life()


def silence(line: Line, silent_s: float) -> str:
    """Return a message's part that an aggregator has not answered for so long."""
    refusal = line.session.refusal
    but = f" but by a refusal ({refused_because(refusal)})" if refusal else ""
    return (
        f"the aggregator at {line.peer} does not answer since {silent_s:.1f} s{but}"
        f"{line.if_refused}"
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

"""How a worker joins its jobs, and what it says if an aggregator refuses."""

import socket
import time
from collections.abc import Sequence

from afflux_drivers import _native
from afflux_drivers.errors import AggregatorRefused, AggregatorUnreachable
from afflux_drivers.worker.line import Line, UdpLoop
from afflux_hdl.contract import wire

__all__ = ["join", "refused_because"]

_INTERRUPT_EVERY_S = 0.25

_REFUSALS: dict[int, str] = {
    wire.Refusal.VERSION: f"it does not speak version {wire.VERSION} of the protocol: update "
    "Afflux there, or the board's bitstream",
    wire.Refusal.JOB: "it has no such job",
    wire.Refusal.KEY: "the key is not the job's",
    wire.Refusal.WORKER: "the job has no such worker",
    wire.Refusal.ADDRESS: "the job is running, and this worker has joined from another address",
}


def refused_because(cause: int) -> str:
    """Return what the cause in a REFUSED means."""
    return _REFUSALS.get(cause, f"cause {cause}")


def join(loop: UdpLoop, timeout_s: float) -> None:
    """Make a worker's address known to all its aggregators.

    Raises:
        AggregatorUnreachable: If no answer comes in time.
        AggregatorRefused: If an aggregator refuses, or has another job than the ticket's.
    """
    end = time.monotonic() + timeout_s
    joins = [_native.Join(line.session) for line in loop.lines]
    for line, each in zip(loop.lines, joins, strict=True):
        line.open(each)
    try:
        # In slices, so that signals get their turn.
        while not all(each.done for each in joins) and (now := time.monotonic()) < end:
            loop.run(min(end, now + _INTERRUPT_EVERY_S))
    except _native.Refused as error:
        (cause,) = error.args
        line = loop.served
        raise AggregatorRefused(
            f"join: the aggregator at {line.peer} refused rank {line.session.rank} of job "
            f"{line.session.ticket.job}: {refused_because(cause)}"
        ) from None
    except _native.DifferentJob as error:
        (found,) = error.args
        raise _different_job(loop.served, found) from None
    for line, each in zip(loop.lines, joins, strict=True):
        if not each.done:
            raise AggregatorUnreachable(
                f"join timed out: rank {line.session.rank} got no answer from the aggregator at "
                f"{line.peer} in {timeout_s:g} s, {each.sends} packets sent{line.if_refused}"
            )


def _different_job(line: Line, found: Sequence[int]) -> AggregatorRefused:
    """Return the error for a JOINED that differs from the ticket."""
    session = line.session
    ticket, job, group = session.ticket, list(found[:4]), found[4:]
    expected = [ticket.workers, ticket.lanes, ticket.slots, ticket.credit]
    if job != expected:
        return AggregatorRefused(
            f"join: job {ticket.job} on the aggregator at {line.peer} has workers, "
            f"lanes, slots, credit {job}; rank {session.rank} expects {expected}"
        )
    address = socket.inet_ntoa(group[0].to_bytes(4, "big")) if group[0] else ""
    return AggregatorRefused(
        f"join: the aggregator at {line.peer} sends the results of job {ticket.job} to "
        f"{_group_name(address, group[1])}; rank {session.rank} expects "
        f"{_group_name(ticket.group, ticket.group_port)}"
    )


def _group_name(address: str, port: int) -> str:
    return f"the group {address}:{port}" if address else "each worker"

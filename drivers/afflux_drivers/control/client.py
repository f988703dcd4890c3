"""The control channel's end at worker 0: creates jobs, reads counters (protocol, section 10)."""

import contextlib
import ipaddress
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from afflux_drivers.addresses import authority
from afflux_drivers.control.channel import Channel
from afflux_drivers.control.tickets import JobTicket, ParentJob
from afflux_drivers.errors import (
    AffluxError,
    AggregatorMisbehaved,
    AggregatorRefused,
    AggregatorUnreachable,
)
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import wire

__all__ = ["JobLease", "JobTicket", "create_job", "describe", "read_counters"]

T = TypeVar("T")

_JOIN_PARENT_EVERY_S = 0.05
_RANGES_MAX = 64


class JobLease:
    """A job, for as long as it is not closed. Thread-safe.

    The aggregator ends it if the connection breaks, and, if the job was created with a lease, when
    it has not been renewed for so long.

    Args:
        open_channel: Opens another connection to the same aggregator.
        channel: The connection on which the job was created.
        ticket: Data that every rank needs to take part.
        timeout_s: Timeout for each answer.
        lease_s: The lease that the aggregator has granted, in seconds; 0: none.

    Attributes:
        ticket, lease_s: As given.
    """

    def __init__(
        self,
        open_channel: Callable[[float], Channel],
        channel: Channel,
        ticket: JobTicket,
        timeout_s: float,
        lease_s: int = 0,
    ) -> None:
        self._open_channel = open_channel
        # None: closed, or broken while it was being renewed.
        self._channel: Channel | None = channel
        # An answer has not come: one that comes late would be taken for the next one's.
        self._silent = False
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._closed = False
        self.ticket, self.lease_s = ticket, lease_s

    def renew(self, timeout_s: float) -> None:
        """Renew the lease; if the connection has broken or is silent, over another one.

        That an aggregator cannot be reached need not be the end of the job: a board goes on without
        its controller, and a later controller takes it over. So the silent connection stays until
        the job belongs to another one: an aggregator that is only slow would end the job with it.

        Args:
            timeout_s: Timeout for the answer, and for a new connection.

        Raises:
            AggregatorUnreachable: If the aggregator cannot be reached, or does not answer.
            AggregatorRefused: If it refuses: the job is over.
        """
        with self._lock:
            if self._closed:
                return
            channel = self._channel
            if channel is None or self._silent:
                try:
                    channel = self._open_channel(timeout_s)
                except AggregatorRefused as error:
                    # It does not take the connection; of the job nothing is known.
                    raise AggregatorUnreachable(str(error)) from error
            try:
                channel.ask(self._request("renew"), timeout_s)
            except AggregatorRefused:
                self._go_on_with(channel)
                raise
            except BaseException:
                if channel is not self._channel:
                    channel.close()
                elif channel.broken:
                    channel.close()
                    self._channel = None
                else:
                    self._silent = True
                raise
            self._go_on_with(channel)

    def fileno(self) -> int:
        """Return the file number of the job's connection; -1 while there is none."""
        channel = self._channel
        return -1 if channel is None else channel.fileno()

    def heed(self) -> None:
        """Take what the aggregator has said without being asked; give up a broken connection.

        Raises:
            AggregatorRefused: It ends the job.
            AggregatorUnreachable: The connection has ended. Of the job nothing is known.
            NotAuthenticated: Somebody else has said it; the connection is closed.
            AggregatorMisbehaved: It makes no sense; the connection is closed.
        """
        with self._lock:
            channel = self._channel
            if channel is None:
                return
            try:
                channel.heed()
            except AggregatorRefused:
                raise
            except AffluxError:
                channel.close()
                self._channel = None
                raise

    def _go_on_with(self, channel: Channel) -> None:
        former, self._channel, self._silent = self._channel, channel, False
        if former is not None and former is not channel:
            former.close()

    def _request(self, kind: str) -> dict[str, Any]:
        return {"request": kind, "job": self.ticket.job, "key": f"{self.ticket.key:016x}"}

    def join_parent(self, timeout_s: float) -> None:
        """Make the aggregator join its own parent, which the job was created with.

        Raises:
            AggregatorUnreachable: If the aggregator does not answer, or its parent does not answer
                it, in time.
            AggregatorRefused: If the aggregator refuses.
        """
        channel, deadline = self._channel, time.monotonic() + timeout_s
        if channel is None:
            raise AggregatorRefused("the job is closed")
        while not channel.ask(self._request("join_parent"), self._timeout_s).get("joined"):
            if time.monotonic() > deadline:
                raise AggregatorUnreachable(
                    f"the aggregator at {channel.peer} has not joined its parent in {timeout_s:g} s"
                )
            time.sleep(_JOIN_PARENT_EVERY_S)

    def close(self) -> None:
        """End the job. May be called more than once.

        Raises:
            AggregatorUnreachable: If the aggregator does not confirm it. The connection is closed
                all the same, which ends the job when the aggregator notices.
            AggregatorRefused: If the job is over already, as where the aggregator has ended it.
        """
        with self._lock:
            channel, self._channel = self._channel, None
            if self._closed:
                return
            self._closed = True
            with contextlib.ExitStack() as open_channels:
                if channel is not None:
                    open_channels.callback(channel.close)
                if channel is None or self._silent:
                    channel = self._open_channel(self._timeout_s)
                    open_channels.callback(channel.close)
                channel.ask(self._request("close"), self._timeout_s)


def create_job(
    address: tuple[str, int],
    workers: int,
    lanes: int,
    slots: int,
    timeout_s: float,
    parent: ParentJob | None = None,
    to_each: bool = False,
    secret: bytes | None = None,
    lease_s: int = 0,
) -> JobLease:
    """Create a job; lanes and slots are wishes, of which the aggregator may grant less.

    Args:
        address: Host and port of the aggregator's control channel.
        workers: N.
        lanes: Most lanes.
        slots: Most slots.
        timeout_s: How long to wait for an answer.
        parent: The aggregator above, which must be joined before any worker sends:
            `JobLease.join_parent`.
        to_each: Whether results go to each worker by itself, even if the aggregator has a
            multicast group.
        secret: The aggregator's secret; None if it has none.
        lease_s: Seconds after which the job is to end unless it is renewed, 1 to 3600; 0: it ends
            with the connection only. `JobLease.lease_s` is what has been granted: an operator who
            does not know leases grants none.

    Raises:
        AggregatorUnreachable: If the aggregator does not answer in time.
        NotAuthenticated: If only one of both has a secret, or they have different ones.
        AggregatorRefused: If it refuses.
        AggregatorMisbehaved: If its answer makes no sense.
    """

    def open_channel(limit_s: float) -> Channel:
        return Channel(address, limit_s, secret)

    channel = open_channel(timeout_s)
    try:
        answer = channel.ask(
            {
                "request": "create",
                "protocol": wire.VERSION,
                "workers": workers,
                "lanes": lanes,
                "slots": slots,
                **({} if parent is None else {"parent": parent.to_request()}),
                **({"group": False} if to_each else {}),
                **({"lease_s": lease_s} if lease_s else {}),
            },
            timeout_s,
        )
        ticket = _ticket(channel, address[1], answer)
        granted_s = answer.get("lease_s", 0) if lease_s else 0
        if type(granted_s) is not int or not 0 <= granted_s <= lease_s:
            raise AggregatorMisbehaved(
                f"create on the aggregator at {channel.peer}: asked for a lease of {lease_s} s, "
                f"got {granted_s!r}"
            )
        if ticket.workers != workers or not (
            1 <= ticket.lanes <= lanes
            and 1 <= ticket.slots <= min(slots, ticket.credit)
            and (parent is None or ticket.round == parent.round)
            and not (to_each and ticket.group)
        ):
            raise AggregatorMisbehaved(
                f"create on the aggregator at {channel.peer}: asked for {workers} workers, "
                f"{lanes} lanes, {slots} slots, parent {parent}, got {ticket}"
            )
    except BaseException:
        channel.close()
        raise
    return JobLease(open_channel, channel, ticket, timeout_s, granted_s)


def _ticket(channel: Channel, control_port: int, answer: dict[str, Any]) -> JobTicket:
    """Return the ticket that an aggregator's answer to a create request describes."""

    def field(name: str, read: Callable[[Any], T]) -> T:
        try:
            return read(answer[name])
        except (KeyError, TypeError, ValueError):
            raise AggregatorMisbehaved(
                f"create on the aggregator at {channel.peer}: malformed answer: missing or invalid "
                f"{name!r}"
            ) from None

    group = ""
    group_port = 0
    if "group" in answer:
        group_port = field("group_port", int)
        group = field("group", lambda text: MulticastGroup(str(text), group_port).address)
    apart = "host" in answer
    return JobTicket(
        host=field("host", _unicast) if apart else channel.host,
        port=field("port", int),
        job=field("job", int),
        key=field("key", lambda text: int(text, 16)),
        round=field("round", int),
        workers=field("workers", int),
        lanes=field("lanes", int),
        slots=field("slots", int),
        credit=field("credit", int),
        engine=field("engine", str),
        group=group,
        group_port=group_port,
        ranges=field("ranges", _ranges) if "ranges" in answer else 1,
        control_host=channel.host if apart else "",
        control_port=control_port if apart else 0,
    )


def _unicast(text: Any) -> str:
    """Return the address of a board. Raises `ValueError` if workers cannot send there."""
    address = ipaddress.IPv4Address(str(text))
    if address.is_multicast or address.is_unspecified:
        raise ValueError
    return str(address)


def _ranges(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _RANGES_MAX:
        raise ValueError
    return value


def read_counters(
    address: tuple[str, int], timeout_s: float, secret: bytes | None = None
) -> dict[str, int]:
    """Return the engine's counters, by name. Raises what `create_job` does."""
    counters = _ask_once(address, "counters", timeout_s, secret).get("counters")
    if not isinstance(counters, dict):
        raise AggregatorMisbehaved(
            f"counters of the aggregator at {authority(*address)}: malformed answer: "
            "missing or invalid 'counters'"
        )
    return {str(name): int(value) for name, value in counters.items()}


def describe(
    address: tuple[str, int], timeout_s: float, secret: bytes | None = None
) -> dict[str, Any]:
    """Return the aggregator's protocol, engine, limits and port. Raises what `create_job` does."""
    return _ask_once(address, "describe", timeout_s, secret)


def _ask_once(
    address: tuple[str, int], request: str, timeout_s: float, secret: bytes | None
) -> dict[str, Any]:
    channel = Channel(address, timeout_s, secret)
    try:
        return channel.ask({"request": request}, timeout_s)
    finally:
        channel.close()

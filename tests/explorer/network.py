"""Aggregators and the packets to them in virtual time; engine and workers are the real ones.

A packet gets lost, comes twice, or late, as often as the trial says. An aggregator that is dead
answers nothing, and its host refuses; another one may begin at its address, which knows no job.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from afflux_drivers import _native
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import AggregatorUnreachable
from afflux_drivers.frames import FrameMaker, destination_of
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import registers, wire
from tests.explorer.scheduler import Bell, Scheduler
from tests.support.drivers import virtual_job

__all__ = ["LANES", "SLOTS", "Aggregator", "Line", "Loop", "Network"]

LANES = SLOTS = 2
_FIRST_PORT = 5000
_JOBS = 8


class Aggregator:
    """One address at which an engine is, or was.

    Attributes:
        alive: Whether one is there.
        incarnation: How many have begun there.
    """

    def __init__(self) -> None:
        self.alive = False
        self.incarnation = 0
        self._jobs = 0
        self._engine = _engine()
        self._maker = FrameMaker(virtual_job.ENGINE_ADDRESS, wire.PORT)

    def begin(self) -> None:
        """Begin an engine, which knows no job."""
        self.alive = True
        self.incarnation += 1
        self._jobs = 0
        self._engine = _engine()
        virtual_job.configure(self._engine)

    def end(self) -> None:
        """Kill it."""
        self.alive = False

    def new_job(self, host: str, workers: int, key: int) -> JobTicket:
        """Make a job."""
        if not self.alive:
            raise AggregatorUnreachable(f"cannot reach the aggregator at {host}: refused")
        number = self._jobs % _JOBS
        self._jobs += 1
        ticket = virtual_job.ticket_of(workers, LANES, SLOTS, number, key)
        ticket = JobTicket(**{**vars(ticket), "host": host})
        virtual_job.create_job(self._engine, ticket, slot_base=number * SLOTS)
        return ticket

    def end_job(self, ticket: JobTicket) -> None:
        """End a job, if it is still there."""
        if self.alive:
            virtual_job.write_registers(
                self._engine,
                {"job_index": ticket.job, "job_command": registers.Command.DESTROY},
            )

    def play(self, datagram: bytes, rank: int, port: int) -> list[bytes]:
        """Return the frames that come of a worker's packet."""
        if not self.alive:
            return []
        return self._engine.play([self._maker.frame(datagram, f"10.0.1.{rank}", port)])


def _engine() -> SoftEngine:
    return SoftEngine(workers=4, lanes=LANES, jobs=_JOBS, slots=_JOBS * SLOTS)


class Network:
    """All ways between ranks and aggregators.

    Args:
        scheduler: Of all.
        flight: Draws how long a packet flies, once for each of its copies; none if it is lost.

    Attributes:
        aggregators: By the names of their hosts.
        cut: Pairs of a rank and a host between which nothing passes.
    """

    def __init__(self, scheduler: Scheduler, flight: Callable[[], Sequence[float]]) -> None:
        self.scheduler = scheduler
        self.aggregators: dict[str, Aggregator] = {}
        self.cut: set[tuple[int, str]] = set()
        self._flight = flight
        self._lines: list[Line] = []

    def connect(self, line: "Line") -> int:
        """Return the port of a new line."""
        self._lines.append(line)
        return _FIRST_PORT + len(self._lines) - 1

    def send(self, line: "Line", datagram: bytes) -> None:
        """Send a worker's packet."""
        host = line.host

        def come() -> None:
            aggregator = self.aggregators[host]
            line.refused |= not aggregator.alive and (line.rank, host) not in self.cut
            if (line.rank, host) in self.cut:
                return
            for frame in aggregator.play(datagram, line.rank, line.port):
                _, port = destination_of(frame)
                self._answer(self._lines[port - _FIRST_PORT], frame[wire.AFFLUX_OFFSET :])

        for seconds in self._flight():
            self.scheduler.at(self.scheduler.now + seconds, come)

    def _answer(self, line: "Line", datagram: bytes) -> None:
        def come() -> None:
            if not line.closed and (line.rank, line.host) not in self.cut:
                line.inbox.append(datagram)
                line.bell.ring()

        for seconds in self._flight():
            self.scheduler.at(self.scheduler.now + seconds, come)

    def refuses(self, host: str, _port: int) -> bool:
        """Return whether a host refuses connections."""
        return not self.aggregators[host].alive


class Line:
    """A worker's way to one aggregator, as `afflux_drivers.worker.line.Line`."""

    calls = 0
    too_long = 0
    if_refused = ""

    def __init__(self, network: Network, host: str, session: Session) -> None:
        self.peer = self.host = host
        self.session = session
        self.rank = session.rank
        self.refused = False
        self.closed = False
        self.inbox: deque[bytes] = deque()
        self.bell = Bell()
        self.dialogue: Any = None
        self._network = network
        self.port = network.connect(self)

    def open(self, dialogue: Any) -> None:
        self.dialogue = dialogue
        self._send(dialogue.open(self._network.scheduler.now))

    def probe_liveness(self) -> None:
        self._send(_native.Join(self.session).open(self._network.scheduler.now))

    def close(self) -> None:
        self.closed = True

    def serve(self) -> None:
        """Give the dialogue what has come, and its timers."""
        dialogue, now = self.dialogue, self._network.scheduler.now
        while self.inbox:
            datagram = self.inbox.popleft()
            if not dialogue.done:
                answer = dialogue.receive_bytes(datagram, now)
                self._send([] if answer is None else [answer])
        if not dialogue.done and dialogue.next_timer <= now:
            self._send(dialogue.expire(now))

    def _send(self, datagrams: Sequence[bytes]) -> None:
        for each in datagrams:
            self._network.send(self, each)


class Loop:
    """What drives a worker's lines, as `afflux_drivers.worker.line.UdpLoop`."""

    waits = 0
    serving = 0

    def __init__(self, scheduler: Scheduler, lines: Sequence[Line]) -> None:
        self.lines = tuple(lines)
        self._scheduler = scheduler
        self._bell = Bell()
        for line in lines:
            line.bell = self._bell

    @property
    def served(self) -> Line:
        return self.lines[self.serving]

    def open(self, dialogues: Sequence[Any]) -> None:
        for line, dialogue in zip(self.lines, dialogues, strict=False):
            line.open(dialogue)

    def run(self, until: float) -> None:
        while True:
            busy = [line for line in self.lines if line.dialogue is not None]
            for line in busy:
                self.serving = self.lines.index(line)
                line.serve()
            if all(line.dialogue.done for line in busy):
                return
            if self._scheduler.now >= until:
                return
            timer = min(line.dialogue.next_timer for line in busy)
            self._scheduler.wait(self._bell, min(timer, until))

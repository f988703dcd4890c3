"""A job without sockets: operations of all ranks, an engine, and a clock that tests own.

Between them lies a network that does to each packet what its schedule says, so that loss,
duplication, delay and reordering are the same in every run.
"""

import heapq
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

import numpy as np

from afflux_drivers import _native
from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.frames import FrameMaker, destination_of, mac_of
from afflux_drivers.worker.again import Again
from afflux_drivers.worker.operation import HostPiece, Operation
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import registers, wire

ENGINE_ADDRESS = int.from_bytes(bytes((10, 0, 0, 1)), "big")
ENGINE_MAC = mac_of(ENGINE_ADDRESS)
KEY = 0x0123_4567_89AB_CDEF
GROUP_KEY = 0x0FED_CBA9_8765_4321
# Close to the wrap, so that serial arithmetic is at work in every test.
FIRST_ROUND = 0xFFFF_FFFD


NEVER = float("inf")


class Fate(Enum):
    """The network's action on a packet."""

    DELIVER = "deliver"
    LOSE = "lose"
    DOUBLE = "double"
    DELAY = "delay"
    LATE_DOUBLE = "late double"


class Stuck(AssertionError):
    """The ranks did not end in the time or the packets that they had."""


@dataclass(frozen=True)
class Parent:
    """An aggregator above a job, and the job's place there.

    Attributes:
        endpoint: Its MAC address, IPv4 address and UDP port.
        job: Job number there.
        worker: Own worker number there.
        key: Key of the job run there.
    """

    endpoint: tuple[bytes, int, int]
    job: int
    worker: int
    key: int


def write_registers(engine: Engine, values: dict[str, int]) -> None:
    for name, value in values.items():
        engine.write(registers.address_of(name), value)


def counters_of(engine: Engine) -> dict[str, int]:
    values = {}
    for counter in registers.COUNTERS:
        address = registers.counter_address(counter.name)
        low = engine.read(address)
        values[counter.name] = engine.read(address + 4) << 32 | low
    return values


def configure(engine: Engine, port: int = wire.PORT, address: int = ENGINE_ADDRESS) -> None:
    mac = mac_of(address)
    write_registers(
        engine,
        {
            "local_mac_low": int.from_bytes(mac[2:], "big"),
            "local_mac_high": int.from_bytes(mac[:2], "big"),
            "local_address": address,
            "local_port": port,
        },
    )


def joined_words(ticket: JobTicket) -> list[int]:
    """Return the words of the answer to a JOIN."""
    group = int.from_bytes(socket.inet_aton(ticket.group or "0.0.0.0"), "big")
    key = GROUP_KEY if group else 0
    return [
        *(ticket.workers, ticket.lanes, ticket.slots, ticket.credit),
        *(group, ticket.group_port if group else 0, key & 0xFFFF_FFFF, key >> 32),
        *(0,) * 8,
    ]


def create_job(
    engine: Engine,
    ticket: JobTicket,
    slot_base: int = 0,
    parent: Parent | None = None,
    group_key: int = GROUP_KEY,
) -> None:
    mac = int.from_bytes(parent.endpoint[0], "big") if parent is not None else 0
    write_registers(
        engine,
        {
            "job_group_address": int.from_bytes(socket.inet_aton(ticket.group or "0.0.0.0"), "big"),
            "job_group_port": ticket.group_port,
            "job_group_key_low": group_key & 0xFFFF_FFFF,
            "job_group_key_high": group_key >> 32,
            "job_parent_mac_low": mac & 0xFFFF_FFFF,
            "job_parent_mac_high": mac >> 32,
            "job_parent_address": parent.endpoint[1] if parent is not None else 0,
            "job_parent_port": parent.endpoint[2] if parent is not None else 0,
            "job_parent_job": parent.job if parent is not None else 0,
            "job_parent_worker": parent.worker if parent is not None else 0,
            "job_parent_key_low": parent.key & 0xFFFF_FFFF if parent is not None else 0,
            "job_parent_key_high": parent.key >> 32 if parent is not None else 0,
        },
    )
    write_registers(
        engine,
        {
            "job_index": ticket.job,
            "job_key_low": ticket.key & 0xFFFF_FFFF,
            "job_key_high": ticket.key >> 32,
            "job_workers": ticket.workers,
            "job_lanes": ticket.lanes,
            "job_slot_base": slot_base,
            "job_slot_count": ticket.slots,
            "job_round": ticket.round,
            "job_credit": ticket.credit,
            "job_command": registers.Command.CREATE,
        },
    )
    for _ in range(100_000):
        if not engine.read(registers.address_of("job_busy")):
            return
    raise AssertionError("the engine stays busy")


def ticket_of(workers: int, lanes: int, slots: int, job: int = 0, key: int = KEY) -> JobTicket:
    return JobTicket(
        host="aggregator.test",
        port=wire.PORT,
        job=job,
        key=key,
        round=FIRST_ROUND,
        workers=workers,
        lanes=lanes,
        slots=slots,
        credit=slots,
        engine="soft",
    )


def at_random(seed: int, lose: float, double: float, delay: float) -> Iterator[Fate]:
    """Yield an endless schedule with these shares."""
    generator = random.Random(seed)
    while True:
        draw = generator.random()
        if draw < lose:
            yield Fate.LOSE
        elif draw < lose + double:
            yield generator.choice((Fate.DOUBLE, Fate.LATE_DOUBLE))
        elif draw < lose + double + delay:
            yield Fate.DELAY
        else:
            yield Fate.DELIVER


Exchange = TypeVar("Exchange", Operation, Again)


class VirtualNetwork:
    """Ranks and engines, and the packets that fly between them.

    Args:
        sessions: Each rank's part in a job run, in order of rank.
        engines: By IPv4 address.
        homes: Address of each rank's aggregator.
        flight_s: How long a packet flies, in virtual seconds.

    Attributes:
        sessions: The same.
        now: Virtual seconds.
        flight_s: How long a packet flies, in virtual seconds; may be changed between operations.
        down_until: Until then all packets are lost.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        engines: Mapping[str, Engine],
        homes: Sequence[str],
        flight_s: float,
    ) -> None:
        self.flight_s = flight_s
        self.down_until = 0.0
        self.sessions = sessions
        self._engines = engines
        self._homes = homes
        self.now = 0.0
        makers = {
            host: FrameMaker(int.from_bytes(socket.inet_aton(host), "big"), wire.PORT)
            for host in engines
        }
        self._makers = [makers[home] for home in homes]
        self._sequence = 0
        # Time, sequence, the rank or the engine's address that it goes to, datagram or frame.
        self._flying: list[tuple[float, int, int | str, bytes]] = []
        for rank, session in enumerate(self.sessions):
            join = _native.Join(session)
            (packet,) = join.open(self.now)
            (answer,) = self._engines[self._homes[rank]].play([self._frame(rank, packet)])
            answered_at = self.now + 2 * flight_s
            assert join.receive_bytes(answer[wire.AFFLUX_OFFSET :], answered_at) is None
            assert join.done

    def _frame(self, rank: int, datagram: bytes) -> bytes:
        return self._makers[rank].frame(datagram, f"10.0.1.{rank}", 5000 + rank)

    def _send(self, rank: int, datagram: bytes, fates: Iterator[Fate]) -> None:
        self._launch(self._homes[rank], self._frame(rank, datagram), fates)

    def _route(self, frame: bytes, fates: Iterator[Fate]) -> None:
        """Send an engine's frame to where it is addressed."""
        host, port = destination_of(frame)
        datagram = frame[wire.AFFLUX_OFFSET :]
        if host in self._engines:
            self._launch(host, frame, fates)
        elif host.startswith("10.0.1."):
            assert host == f"10.0.1.{port - 5000}"
            self._launch(port - 5000, datagram, fates)
        else:
            receivers = [
                rank
                for rank, session in enumerate(self.sessions)
                if (session.ticket.group, session.ticket.group_port) == (host, port)
            ]
            assert receivers, "nobody is in the group"
            for rank in receivers:
                self._launch(rank, datagram, fates)

    def all_reduce(
        self,
        tensors: Sequence[np.ndarray],
        dtype: wire.Dtype,
        reduction: Reduction,
        fates: Iterable[Fate] = (),
        patience_s: float = 600.0,
        receive: Callable[[Operation, bytes, float], bytes | None] = Operation.receive,
        late_s: Mapping[int, float] | None = None,
        in_place: bool = False,
        hosts: Sequence[HostPiece] = (),
    ) -> list[np.ndarray]:
        """One operation at all ranks. Packets that `fates` does not reach are delivered at once.

        Those follow that bring blocks again. `hosts` are the
        contributions of ranks beside those of the sessions, for each.

        A rank in `late_s` calls the operation so many virtual seconds after the others. In place,
        the results are where the tensors were.

        Raises:
            Stuck: If it is not over after `patience_s` virtual seconds.
            AffluxError: The error of an operation.
        """
        fate = iter(fates)
        hosts = hosts or [HostPiece()] * len(self.sessions)
        operations = [
            Operation(
                session,
                tensor.reshape(-1),
                dtype,
                reduction,
                tensor.shape,
                result=tensor.reshape(-1) if in_place else None,
                host=host,
            )
            for session, tensor, host in zip(self.sessions, tensors, hosts, strict=True)
        ]
        self._run(operations, fate, patience_s, receive, late_s or {})
        left = [operation.not_summed() for operation in operations]
        while any(left):
            agains = [
                Again(
                    session, tensor.reshape(-1), operation.result(), dtype, reduction, blocks, host
                )
                for session, tensor, operation, blocks, host in zip(
                    self.sessions, tensors, operations, left, hosts, strict=True
                )
            ]
            self._run(agains, fate, patience_s, Again.receive, {})
            for again in agains:
                again.finish()
            left = [blocks[again.blocks :] for again, blocks in zip(agains, left, strict=True)]
        # Packets in flight go on into the next operation, as they would in a network.
        return [operation.result() for operation in operations]

    def _run(
        self,
        operations: Sequence[Exchange],
        fate: Iterator[Fate],
        patience_s: float,
        receive: Callable[[Exchange, bytes, float], bytes | None],
        late_s: Mapping[int, float],
    ) -> None:
        give_up = self.now + patience_s
        opens = {rank: self.now + late_s.get(rank, 0.0) for rank in range(len(operations))}
        while not all(operation.done for operation in operations):
            for rank in [rank for rank, at in opens.items() if at <= self.now]:
                del opens[rank]
                for datagram in operations[rank].open(self.now):
                    self._send(rank, datagram, fate)
            timer = min(*(operation.next_timer for operation in operations), *opens.values(), NEVER)
            if self._flying and self._flying[0][0] <= timer:
                self.now, _, target, packet = heapq.heappop(self._flying)
                if isinstance(target, str):
                    for frame in self._engines[target].play([packet]):
                        self._route(frame, fate)
                else:
                    answer = receive(operations[target], packet, self.now)
                    if answer is not None:
                        self._send(target, answer, fate)
            else:
                self.now = timer
                if self.now > give_up:
                    raise Stuck(f"not over after {patience_s} s")
                for rank, operation in enumerate(operations):
                    if operation.next_timer <= self.now:
                        for datagram in operation.expire(self.now):
                            self._send(rank, datagram, fate)

    def _launch(self, target: int | str, packet: bytes, fates: Iterator[Fate]) -> None:
        fate = next(fates, Fate.DELIVER) if self.now >= self.down_until else Fate.LOSE
        flights = {
            Fate.LOSE: (),
            Fate.DELIVER: (self.flight_s,),
            Fate.DOUBLE: (self.flight_s, self.flight_s),
            # Long enough for several rounds to pass, and for retransmissions to overtake.
            Fate.DELAY: (0.5,),
            Fate.LATE_DOUBLE: (self.flight_s, 0.9),
        }[fate]
        for seconds in flights:
            self._sequence += 1
            heapq.heappush(self._flying, (self.now + seconds, self._sequence, target, packet))


class VirtualJob(VirtualNetwork):
    """N ranks of one job on one engine, from a common start through any number of operations.

    Args:
        workers: N.
        lanes: F.
        slots: Slots of the job.
        engine: The aggregator; a fresh SoftEngine if None.
        flight_s: How long a packet flies, in virtual seconds.
        group: Whether results go to a multicast group.
    """

    def __init__(
        self,
        workers: int,
        lanes: int,
        slots: int,
        engine: Engine | None = None,
        flight_s: float = 1e-4,
        group: bool = False,
    ) -> None:
        self.ticket = ticket_of(workers, lanes, slots)
        if group:
            self.ticket = replace(self.ticket, group="239.1.2.3", group_port=4701)
        self.engine = SoftEngine() if engine is None else engine
        configure(self.engine)
        create_job(self.engine, self.ticket)
        sessions = [Session(self.ticket, rank) for rank in range(workers)]
        home = "10.0.0.1"
        super().__init__(sessions, {home: self.engine}, [home] * workers, flight_s)

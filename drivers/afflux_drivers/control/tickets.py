"""Tickets: all that a rank must know to join a job, or a child aggregator its parent's job."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = ["JobTicket", "ParentJob"]


@dataclass(frozen=True)
class JobTicket:
    """One job run on one aggregator. Worker 0 gets it and hands it to the others.

    Attributes:
        host: Name or address of the aggregator, to which workers send.
        port: Its UDP port.
        job: Job number.
        key: Secret of the job run, 64 bits.
        round: First round r0 of every slot.
        workers: N.
        lanes: F.
        slots: Slots of the job.
        credit: Packets that a worker may have in flight.
        engine: Name of the engine behind the aggregator.
        group: Multicast address that results go to; empty if each worker gets its own.
        group_port: UDP port of the group; 0 without one.
        members: Rank of each worker, in a tree of aggregators or where workers are whole hosts;
            empty if worker w is rank w.
        ranks: Ranks of the whole tree; 0 if the job has them all.
        ranges: Ranges of equal length that the slots are in, one for each thread of the aggregator;
            packets of one range are best joined with one another only.
        beside: Of each worker the other ranks of its host, whose elements it sends, too; empty if
            no worker has any.
        secret: Of the control channel, where a rank has started the aggregator; empty where its
            operator has given it one, or none.
        control_host: Name or address of its control channel, if that is elsewhere than `host`, as
            that of a board without a host of its own; else empty.
        control_port: TCP port of that; 0 with an empty `control_host`.

    Raises:
        ValueError: If `members`, `beside` and `ranks` do not fit the number of workers, or one
            another.
    """

    host: str
    port: int
    job: int
    key: int
    round: int
    workers: int
    lanes: int
    slots: int
    credit: int
    engine: str
    group: str = ""
    group_port: int = 0
    members: tuple[int, ...] = ()
    ranks: int = 0
    ranges: int = 1
    beside: tuple[tuple[int, ...], ...] = ()
    secret: str = field(default="", repr=False)
    control_host: str = ""
    control_port: int = 0

    def __post_init__(self) -> None:
        if not self.members and not self.ranks and not self.beside:
            return
        named = [*self.members, *(rank for each in self.beside for rank in each)]
        apart = len(set(named)) == len(named) and len(self.members) == self.workers
        fits = not self.beside or len(self.beside) == self.workers
        if not apart or not fits or not all(0 <= rank < self.ranks for rank in named):
            raise ValueError(
                f"ranks {self.members} of {self.ranks}, beside which are {self.beside}, are not "
                f"those of {self.workers} workers"
            )

    @property
    def control(self) -> tuple[str, int]:
        """Host and port of the aggregator's control channel."""
        return (self.control_host, self.control_port) if self.apart else (self.host, self.port)

    @property
    def apart(self) -> bool:
        """Whether the control channel is on another host than the aggregator."""
        return bool(self.control_host)

    @property
    def size(self) -> int:
        """Ranks whose contributions are summed."""
        return self.ranks or self.workers

    def rank_of(self, worker: int) -> int:
        """Return the rank that is this worker."""
        return self.members[worker] if self.members else worker

    def ranks_of(self, worker: int) -> tuple[int, ...]:
        """Return the ranks whose elements this worker sends, its own first."""
        return (self.rank_of(worker), *(self.beside[worker] if self.beside else ()))

    def worker_of(self, rank: int) -> int:
        """Return the worker that is this rank.

        Raises:
            ValueError: If none is.
        """
        members = self.members or range(self.workers)
        if rank not in members:
            raise ValueError(
                f"rank {rank} is not one of the job's {self.workers} workers"
                + (f", ranks {members}" if self.members else "")
            )
        return members.index(rank)

    def of_units(self, units: Sequence[Sequence[int]]) -> "JobTicket":
        """Return the ticket of a job whose workers send the elements of these ranks each."""
        if all(list(ranks) == [worker] for worker, ranks in enumerate(units)):
            return self
        members = tuple(ranks[0] for ranks in units)
        beside = tuple(tuple(ranks[1:]) for ranks in units)
        return replace(self, members=members, beside=beside, ranks=sum(map(len, units)))

    def to_json(self) -> str:
        """Return one line of JSON; the key is in hexadecimal, as JSON numbers may lose bits."""
        fields = asdict(self)
        fields["key"] = f"{self.key:016x}"
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> "JobTicket":
        """Return the ticket that `to_json` wrote.

        Raises:
            ValueError: If the text is not a ticket.
            TypeError: If a field is missing, or unknown.
        """
        fields = json.loads(text)
        fields["key"] = int(fields["key"], 16)
        fields["members"] = tuple(fields.get("members", ()))
        fields["beside"] = tuple(map(tuple, fields.get("beside", ())))
        return cls(**fields)


@dataclass(frozen=True)
class ParentJob:
    """A job's parent, as a create request states it to the aggregator.

    Attributes:
        address: The parent's address.
        port: Its UDP port.
        job: Job number there.
        key: Key of the job run there.
        worker: Own worker number there.
        round: First round r0, the same at all levels.
    """

    address: str
    port: int
    job: int
    key: int
    worker: int
    round: int

    def to_request(self) -> dict[str, Any]:
        """Return the object that a create request carries; the key is in hexadecimal."""
        return {**asdict(self), "key": f"{self.key:016x}"}

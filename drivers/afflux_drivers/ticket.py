"""What a rank must know to take part in a job."""

import json
from dataclasses import asdict, dataclass

__all__ = ["JobTicket"]


@dataclass(frozen=True)
class JobTicket:
    """One job run on one aggregator. Worker 0 gets it and hands it to the others.

    Attributes:
        host: Name or address of the aggregator.
        port: Its UDP port.
        job: Job number.
        key: Secret of the job run, 64 bits.
        round: First round r0 of every slot.
        workers: N.
        lanes: F.
        slots: Slots of the job.
        credit: Packets that a worker may have in flight.
        engine: Name of the engine behind the aggregator.
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

    def to_json(self) -> str:
        """One line of JSON; the key is in hexadecimal, as JSON numbers may lose bits."""
        fields = asdict(self)
        fields["key"] = f"{self.key:016x}"
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> "JobTicket":
        """The ticket that `to_json` wrote. Raises ``ValueError`` or ``TypeError`` if it is none."""
        fields = json.loads(text)
        fields["key"] = int(fields["key"], 16)
        return cls(**fields)

"""The place of an aggregator's job in the job of its parent (protocol, section 5.6)."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ParentJob"]


@dataclass(frozen=True)
class ParentJob:
    """What the operator of an aggregator must know for a job that has a parent.

    Attributes:
        address: The parent's IPv4 address, as four decimal octets.
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
        """The object that a create request carries; the key is in hexadecimal."""
        return {**asdict(self), "key": f"{self.key:016x}"}

"""The exceptions of workers, other ranks and aggregators. Messages name who, what and where."""

from typing import Any

__all__ = [
    "AffluxError",
    "AggregatorMisbehaved",
    "AggregatorRefused",
    "AggregatorUnreachable",
    "DeadlineExceeded",
    "Disagreement",
    "Interrupted",
    "NotAuthenticated",
    "PacketTooLong",
    "RankRefused",
    "RanksMissing",
    "WorkerFailed",
    "timed_out",
]


def timed_out(seconds: float) -> str:
    """Return how messages about a timeout begin: in the words that scripts look for with Gloo."""
    return f"Timed out waiting {1000 * seconds:g}ms (timeout {seconds:g} s)"


def _restored(
    kind: "type[AffluxError]", arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> "AffluxError":
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class AffluxError(RuntimeError):
    """Any failure of Afflux. The worker that raised it cannot be used again.

    Attributes:
        operation: The operation that failed, such as "3:sum:float32:3x4"; empty if it was none. The
            text begins with it. A caller that names the operation in its own way clears it.
    """

    operation = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"operation {self.operation}: {text}" if self.operation else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by the constructor, which takes other arguments in some classes.
        return _restored, (type(self), self.args, dict(self.__dict__))


class AggregatorUnreachable(AffluxError):
    """The aggregator does not answer: wrong address, dead, or cut off."""


class AggregatorRefused(AffluxError):
    """The aggregator answered, and refused."""


class AggregatorMisbehaved(AffluxError):
    """An answer that carries the job's key breaks the protocol: a fault of the aggregator."""


class NotAuthenticated(AffluxError):
    """The two ends of a connection could not prove to each other that they know one secret."""


class PacketTooLong(AffluxError):
    """A packet does not fit the path's MTU; the job needs fewer lanes."""


class RankRefused(AffluxError):
    """Another rank answered, and refused the connection."""


class DeadlineExceeded(AffluxError):
    """An operation was not over in time."""


class RanksMissing(DeadlineExceeded):
    """An operation was not over in time; the aggregator reports whose contributions are missing.

    Attributes:
        ranks: The missing ranks, ascending.
    """

    def __init__(self, message: str, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks


class Disagreement(AffluxError):
    """The ranks called different operations, or the same one with different arguments.

    Attributes:
        number: Number of the operation at this rank.
        description: This rank's call, as its fingerprint's text.
        fingerprint: CRC-32 of the description.
        fingerprints: The fingerprint of each rank, by rank, or None if the aggregator saw the
            difference first (another opcode, dtype or operation number).
    """

    def __init__(
        self,
        message: str,
        *,
        number: int,
        description: str,
        fingerprint: int,
        fingerprints: tuple[int, ...] | None,
    ) -> None:
        super().__init__(message)
        self.operation = description
        self.number = number
        self.description = description
        self.fingerprint = fingerprint
        self.fingerprints = fingerprints


class Interrupted(AffluxError):
    """The caller's `interrupted` gave a reason to stop waiting."""


class WorkerFailed(AffluxError):
    """The worker had failed before; the message repeats the first error."""

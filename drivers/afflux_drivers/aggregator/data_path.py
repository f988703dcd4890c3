"""The data path: it carries packets between an aggregator's sockets and its engine."""

from typing import Protocol

from afflux_drivers.control.tickets import ParentJob

__all__ = ["DataPath"]


class DataPath(Protocol):
    """A way from UDP sockets to an engine and back."""

    def serve(self) -> None:
        """Serve until `stop` is called; raise what the engine raises."""

    def stop(self) -> None:
        """Make `serve` return soon. Thread-safe."""

    def wake(self) -> None:
        """Make the engine send what a command has caused, without a packet. Thread-safe."""

    def open(self, job: int, parent: ParentJob) -> None:
        """Open the port on which the parent of a job answers. Thread-safe.

        Raises:
            PortTaken: It is not free; then a job of another number may have one.
            OSError: It cannot lead to the parent.
        """

    def close(self, job: int) -> None:
        """Close the port of a job, if it is open. Thread-safe."""

    def close_all(self) -> None:
        """Free everything, once `serve` has returned or if it was never called."""

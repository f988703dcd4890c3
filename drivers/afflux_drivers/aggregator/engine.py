"""What an engine is to the software around it, and the one in software.

The software engine is the aggregator of the protocol's section 5, frame by frame, on the CPU. It is
the embedded aggregator of a run without hardware, and the hardware's twin: the same frames in the
same order for the same input, the same counters, behind the same registers. It sends at once, so
nothing queues and no replay is ever dropped. The work is done in C++ (`drivers/native/engine`),
without the interpreter's lock.
"""

from collections.abc import Sequence
from typing import Protocol

from afflux_drivers import _native

__all__ = ["Engine", "SoftEngine"]


class Engine(Protocol):
    """An aggregation engine behind a network that carries Ethernet frames.

    Attributes:
        name: What it is, such as "soft" or "rtl".
    """

    name: str

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        """Takes whole frames without check sequence, runs until idle, and gives all it sends."""

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Like `play`, but may keep the last answers back until the next `feed` or `play`."""

    def read(self, address: int) -> int:
        """Reads a 32-bit register; see `afflux_hdl.contract.registers`."""

    def write(self, address: int, value: int) -> None:
        """Writes a 32-bit register."""

    def close(self) -> None:
        """Frees what the engine holds."""


class SoftEngine(_native.SoftEngine):
    """An engine in software. Thread-safe.

    Args:
        workers: Most workers of a job, 1 to 64.
        lanes: Most lanes of a slot, 1 to 16.
        jobs: Most jobs at once, 1 to 256.
        slots: Slots of the pool, 1 to 65536.

    Raises:
        ValueError: If a number is out of range; and from `write`, if it is the command to create a
            job that the engine was not built for.
    """

    name = "soft"

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Same as `play`: nothing is kept back."""
        return self.play(frames)

    def close(self) -> None:
        """Does nothing: the engine holds memory only."""

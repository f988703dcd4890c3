"""The interface of an engine to the software around it, and the engine in software.

The software engine is the aggregator of the protocol's section 5, frame by frame, on the CPU. It is
the embedded aggregator of a run without hardware, and the hardware's twin: it sends the same frames
in the same order for the same input, and has the same counters behind the same registers. It sends
at once, so nothing queues and no replay is ever dropped. The work is done in C++
(`drivers/native/engine`), without the interpreter's lock.
"""

from collections.abc import Sequence
from typing import Protocol

from afflux_drivers import _native
from afflux_drivers.registers import Registers
from afflux_hdl.contract.registers import WriteRefused

__all__ = ["Engine", "SoftEngine"]


class Engine(Registers, Protocol):
    """An aggregation engine behind a network that carries Ethernet frames.

    Attributes:
        name: Its kind, such as "soft" or "rtl".
    """

    name: str

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        """Take whole frames without check sequences, run until idle, and return all frames sent."""

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Do as `play`, but possibly keep the last answers until the next `feed` or `play`."""


class SoftEngine(_native.SoftEngine):
    """An engine in software. Thread-safe.

    Args:
        workers: Maximum of workers per job, 1 to 64.
        lanes: Maximum of lanes per slot, 1 to 16.
        jobs: Maximum of jobs at the same time, 1 to 256.
        slots: Slots of the pool, 1 to 65536.
        shares: Cores that have an equal part of each job's slots, 1 to 64: one for each thread that
            serves the engine on sockets.
        partial_bits: Bits of each partial sum of float32 that a job sends to its parent: 40, 48 or
            64.

    Raises:
        ValueError: If a number is out of range.
    """

    name = "soft"

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Raises:
            WriteRefused: If it is a command that there is not, or for a job that the engine was not
                built for.
        """
        try:
            super().write(address, value)
        except ValueError as error:
            raise WriteRefused(str(error)) from None

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Do the same as `play`: nothing is kept back."""
        return self.play(frames)

    def close(self) -> None:
        """Do nothing: the engine holds memory only."""

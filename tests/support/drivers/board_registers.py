"""The registers of a board without a board: the software engine's, and what a node adds to them."""

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_hdl.contract import registers

__all__ = ["BoardRegisters"]


class BoardRegisters:
    """`Registers`: engine and node as a board has them.

    Attributes:
        engine: The engine behind the lower registers.
        there: Whether there is a board: of one that is gone, all registers read as ones.
        failure: The error that each access raises; None: nothing.
    """

    def __init__(self, address: int = 0, port: int = 0) -> None:
        self.engine = SoftEngine(workers=8, lanes=16, jobs=4, slots=64)
        self.there = True
        self.failure: Exception | None = None
        self.closed = False
        self.engine.write(registers.address_of("local_address"), address)
        self.engine.write(registers.address_of("local_port"), port)

    def read(self, address: int) -> int:
        if self.failure is not None:
            raise self.failure
        if not self.there:
            return 0xFFFF_FFFF
        if address == registers.node_address_of("node_identity"):
            return registers.NODE_IDENTITY
        if address >= registers.NODE_BASE:
            # So that each word of each counter is another number.
            return address & 0xFFF
        return self.engine.read(address)

    def write(self, address: int, value: int) -> None:
        if self.failure is not None:
            raise self.failure
        assert address < registers.NODE_BASE
        self.engine.write(address, value)

    def close(self) -> None:
        self.closed = True
